"""In-edges by relation, time and source against a plain sort."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from configs.errors import DataError
from configs.load import load_recipe
from tasks.apply.graph_file import _own_features
from tasks.calls import load_stage
from tasks.preprocess import features
from tasks.preprocess.features import FeatureMatrices
from tasks.sampling.relational import links as module
from tasks.sampling.relational.batches import TypedNeighborhoods
from tasks.sampling.relational.edges import Clock, Relation
from tasks.sampling.relational.links import RankedLinks
from tasks.sampling.relational.type_features import TypeFeatures
from tasks.stage import Parent, run_stage
from tasks.storage.graph_store import ALWAYS, GraphStore
from tasks.storage.home import Home
from tasks.storage.manifests import array_of_type
from tests.ranked_shop import EDGE_TYPES, MOMENTS, ranked_shop, store_of
from tests.sampling.relational.typed_graphs import TypedGraph, random_graph


@pytest.mark.parametrize("times", ["both", "edge", "node", "none"])
@pytest.mark.parametrize("ids", [np.int32, np.int64])
@pytest.mark.parametrize("threads", [1, 3])
def test_slots_hold_edges_by_time_and_source(times: str, ids: type, threads: int) -> None:
    graph = random_graph(3, times=times, ids=ids)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        edges = graph.edges()
    finally:
        torch.set_num_threads(before)
    assert edges.id_type == ids
    assert edges.entries.dtype == np.int32, "32 bits do"
    assert (edges.times is None) == (times == "none")
    assert edges.edge_types == tuple(range(7))
    sources = graph.src[graph.order]
    for node in range(len(graph.node_type)):
        into = edges.into[graph.node_type[node]]
        assert edges.slot_start[node + 1] - edges.slot_start[node] == len(into)
        for column, relation in enumerate(into):
            slot = edges.slot_start[node] + column
            low, high = edges.indptr[slot], edges.indptr[slot + 1]
            wanted = graph.seen(node, relation, None)
            assert edges.entries[low:high, 1].tolist() == wanted
            assert edges.entries[low:high, 0].tolist() == sources[wanted].tolist()
            if edges.times is not None:
                times = [graph.time(e) for e in graph.order[wanted].tolist()]
                assert edges.times.dtype == np.int32, "32 bits do"
                assert edges.times[low:high].tolist() == [-1 if time == ALWAYS else time + 5 for time in times]
    assert edges.indptr[-1] == len(graph.src)


@pytest.mark.parametrize(("span", "dtype"), [(2**31 - 2, np.int32), (2**31 - 1, np.int64), (2**40, np.int64)])
@pytest.mark.parametrize("first", [-(2**50), 0, 1_700_000_000])
def test_kept_times_compare_as_the_times_do(span: int, dtype: type, first: int) -> None:
    rng = np.random.default_rng(0)
    times = np.r_[ALWAYS, first, first + span, rng.integers(first, first + span, 50)]
    clock = Clock.spanning(times, None)
    assert clock.dtype is dtype
    near = (times[1:, None] + np.arange(-1, 2)).reshape(-1)
    cuts = np.r_[ALWAYS + 1, 1 << 62, np.iinfo(np.int64).max, first - 2**40, first + 2**45, near]
    kept = np.maximum(times - clock.origin, clock.least).astype(dtype)
    assert clock.cuts(cuts).dtype == dtype
    assert np.array_equal(kept[:, None] < clock.cuts(cuts), times[:, None] < cuts)


def test_a_clock_of_nothing_but_what_was_always_there() -> None:
    clock = Clock.spanning(np.full(3, ALWAYS))
    assert (max(ALWAYS - clock.origin, clock.least) < clock.cuts(np.array([ALWAYS + 1, 0, 1 << 62]))).all()


def test_long_slots_in_any_order_are_sorted() -> None:
    """Merge sort, and slots that are in order already."""
    rng = np.random.default_rng(0)
    num_nodes, degree = 5, 300
    src, dst = np.tile(np.arange(num_nodes), degree), np.repeat(np.arange(num_nodes), degree)
    time = rng.integers(0, 40, len(src))
    time[:degree] = np.sort(time[:degree])
    one = TypedGraph(
        np.zeros(num_nodes, int),
        ("node",),
        (Relation("node__to__node", 0, 0),),
        src,
        dst,
        np.zeros(len(src), int),
        time,
    )
    edges = one.edges()
    for node in range(num_nodes):
        assert edges.entries[edges.indptr[node] : edges.indptr[node + 1], 1].tolist() == one.seen(node, 0, None)


def test_relations_of_the_task_type_are_left_out() -> None:
    graph = random_graph(0)
    edges = graph.edges(left_out=1)
    assert edges.edge_types == (2, 3, 4, 5)
    assert edges.into[1] == ()
    assert len(edges.entries) == np.isin(graph.edge_type, edges.edge_types).sum()
    kept = graph.edge_type[graph.order[edges.entries[:, 1]]]
    assert set(kept.tolist()) == {2, 3, 5}


def test_a_graph_without_edges_has_empty_slots() -> None:
    none = np.zeros(0, int)
    relations = Relation("a__r__b", 0, 1), Relation("b__r__b", 1, 1)
    edges = TypedGraph(np.array([0, 1, 1]), ("a", "b"), relations, none, none, none, none).edges()
    assert edges.slot_start.tolist() == [0, 0, 2, 4]
    assert edges.indptr.tolist() == [0] * 5
    assert edges.entries.shape == (0, 2)


def test_a_relation_between_more_than_two_types_is_named() -> None:
    types = np.array([0, 1, 1])
    relations = Relation("a__r__b", 0, 1), Relation("self_loop", 1, 1)
    loops = TypedGraph(
        types, ("a", "b"), relations, np.array([0, 0, 2]), np.array([1, 0, 2]), np.array([0, 1, 1]), np.full(3, ALWAYS)
    )
    with pytest.raises(DataError, match=r"relation self_loop leads to node 0, which is of type a; .* take remove"):
        loops.edges()


def together_store(folder: Path) -> GraphStore:
    """The small shop, in which products go with products of one customer: tasks' entities are not read."""
    store = store_of(ranked_shop(folder))
    ranking = store.manifest.ranking
    manifest = store.manifest.model_copy(update={"ranking": ranking.model_copy(update={"together": True})})
    return GraphStore(store.folder, manifest)


@pytest.mark.parametrize("newest", [256, 3])
def test_pasts_are_those_of_loops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, newest: int) -> None:
    monkeypatch.setattr(module, "_NEWEST", newest)
    store = together_store(tmp_path)
    links = RankedLinks(store)
    assert store.manifest.edge_types[0] == EDGE_TYPES[0]
    places = np.flatnonzero(store["edge_type"] == 0)
    product = np.searchsorted(store["csc_indptr"], places, side="right") - 1
    customer, time = np.asarray(store["csc_indices"])[places], np.asarray(store["edge_time"])[places]
    entities = links.candidates[links.candidate_time == ALWAYS][[5, 0, 12, 7]]
    mine = np.isin(product, entities)
    assert len(np.unique(time[mine])) == mine.sum(), "which is newest is not left to chance"
    moments = np.array([MOMENTS[2], MOMENTS[0] - 10**9, MOMENTS[4], MOMENTS[5]])
    indptr, column, counts, last = links.past(entities, moments)
    for row, (entity, at) in enumerate(zip(entities.tolist(), moments.tolist(), strict=True)):
        mine = np.flatnonzero((product == entity) & (time < at))
        mine = mine[np.argsort(time[mine])][-newest:]
        wanted: Counter[int] = Counter()
        latest: dict[int, int] = {}
        for one in mine.tolist():
            for other in np.flatnonzero((customer == customer[one]) & (time < at)).tolist():
                if product[other] != entity:
                    wanted[product[other]] += 1
                    both = max(time[one], time[other])
                    latest[product[other]] = max(latest.get(product[other], both), both)
        some = slice(indptr[row], indptr[row + 1])
        found = links.candidates[column[some]].tolist()
        assert found == sorted(wanted)
        assert counts[some].tolist() == [wanted[one] for one in found]
        assert last[some].tolist() == [latest[one] for one in found]
    assert indptr[1] == indptr[2]
    assert indptr[-1] > 20


def test_what_is_asked_about_is_no_candidate_for_itself(tmp_path: Path) -> None:
    links = RankedLinks(together_store(tmp_path))
    links._entity = links.candidates[np.arange(len(links._entity)) % 31]
    own = links.own_columns(links._tasks)
    assert own.tolist() == (np.arange(len(own)) % 31).tolist()


SIZES = ["dataset.num_customers=200", "dataset.num_products=40", "dataset.reviews_a_quarter=150"]
PARTS = ["partition.name=metis", "partition.num_parts=3"]


def shop(home: Home, *overrides: str) -> GraphStore:
    recipe, made = load_recipe("shop", [*SIZES, *overrides]), dict[str, Parent]()
    for name in ("ingest", "preprocess", "components", "partition"):
        made[name] = run_stage(load_stage(name), recipe, dict(made), home).parent
    return GraphStore.open(made["partition"].folder)


def batch(store: GraphStore) -> Any:
    return TypedNeighborhoods(store, [4, 4, 4], newest=True).batch(
        np.asarray(store["train_idx"][::7]), 3, torch.empty(0)
    )


@pytest.fixture
def one_matrix(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    def shared(*args: Any, by_type: bool) -> FeatureMatrices:
        return FeatureMatrices(*args, by_type=False)

    monkeypatch.setattr(features, "FeatureMatrices", shared)
    return monkeypatch


def test_batches_are_those_of_a_shared_matrix(tmp_path: Path, one_matrix: pytest.MonkeyPatch) -> None:
    shared = shop(Home.open(tmp_path / "shared"))
    one_matrix.undo()
    own = shop(Home.open(tmp_path / "own"))
    assert ("feat" in shared, "feat" in own) == (True, False)
    for one, two in zip(batch(shared).inputs.types, batch(own).inputs.types, strict=True):
        for field in fields(one):
            torch.testing.assert_close(
                getattr(one, field.name), getattr(two, field.name), rtol=0, atol=0, equal_nan=True
            )
    cells = [sum(np.prod(s.manifest.arrays[n].shape) for n in s.manifest.arrays if "feat" in n) for s in (shared, own)]
    assert cells[1] < 0.5 * cells[0]


def test_rows_follow_nodes_that_are_numbered_anew(tmp_path: Path) -> None:
    home = Home.open(tmp_path)
    plain, parts = shop(home), shop(home, *PARTS)
    assert not np.array_equal(plain["node_ids"], parts["node_ids"])
    for kind, name in enumerate(plain.manifest.node_types):
        for what in ("feat", "feat_cat"):
            table = plain.get(array_of_type(what, name))
            columns = plain.manifest.type_columns[name]
            wanted = columns.numeric if what == "feat" else columns.categorical
            if table is None:
                continue
            nodes = np.flatnonzero(np.asarray(parts["node_type"]) == kind)[::3]
            rows = parts["node_ids"][nodes] - plain.manifest.type_offsets[kind]
            for some in (wanted, wanted[::-1][:1]):
                found = TypeFeatures(parts, what).gather(kind, nodes, some, np.float32)  # type: ignore[arg-type]
                expected = table[rows][:, [wanted.index(column) for column in some]]
                np.testing.assert_array_equal(found.numpy(), expected.astype(np.float32))
            exported = _own_features(parts, name, nodes)[what]
            np.testing.assert_array_equal(exported.numpy(), table[rows])
    assert TypeFeatures(plain, "feat").gather(0, np.arange(3), (), np.float32) is None
