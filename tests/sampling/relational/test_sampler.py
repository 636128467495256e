"""The relational sampler against a plain Python reference, draws against probabilities, and what a cut hides."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from math import comb
from typing import Any

import numpy as np
import pytest
import scipy  # scipy.stats takes a second, where it is used

from configs.errors import DataError, RecipeError
from tasks.sampling.relational import numbering
from tasks.sampling.relational.edges import Relation
from tasks.sampling.relational.sampler import RelationalSampler, TypedSample
from tasks.storage.graph_store import ALWAYS
from tests.sampling.relational.typed_graphs import TypedGraph, check_sample, random_graph, reference_draw, taken_edges


def seeds_of(graph: TypedGraph, seed: int, count: int = 19) -> tuple[np.ndarray, np.ndarray]:
    """Nodes of all types with a cut each, some of them twice."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, len(graph.node_type), count), rng.integers(-6, 22, count)


def equal(one: TypedSample, other: TypedSample) -> bool:
    """Whether two samples are the same to the bit."""

    def arrays(sample: TypedSample) -> list[Any]:
        parts = [part for layer in sample.layers for part in layer.relations]
        found = [*sample.ids, *(sample.cuts or ()), sample.seed_rows]
        for part in parts:
            found += [part.indptr, part.indices, part.positions]
        return found

    pairs = list(zip(arrays(one), arrays(other), strict=True))
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in pairs) and all(
        (a.num_dst, a.num_src) == (b.num_dst, b.num_src) for a, b in zip(one.layers, other.layers, strict=True)
    )


@pytest.mark.parametrize("times", ["both", "edge", "node", "none"])
@pytest.mark.parametrize("recent", [False, True])
@pytest.mark.parametrize("ids", [np.int32, np.int64])
def test_samples_are_those_of_the_reference(times: str, recent: bool, ids: type) -> None:
    if recent and times == "none":
        pytest.skip("nothing is newer than anything")
    for seed in range(3):
        graph = random_graph(seed, times=times, ids=ids)
        edges = graph.edges()
        fanouts = {"default": (3, 2), edges.relations[0].name: (-1, 0), edges.relations[3].name: (70, 1)}
        sampler = RelationalSampler(edges, fanouts, newest=recent)
        nodes, cuts = seeds_of(graph, seed)
        for given in (None, cuts, np.full(19, 7), np.full(19, ALWAYS + 1), np.full(19, 1 << 62)):
            sample = sampler.sample(nodes, given, seed)
            check_sample(graph, edges, sample, (nodes, given), fanouts, recent)


def test_times_of_more_than_32_bits_are_cut_alike() -> None:
    for seed in range(3):
        graph = random_graph(seed)
        for times in (graph.edge_time, graph.node_time):
            times[times != ALWAYS] *= 1 << 30
        nodes, cuts = seeds_of(graph, seed)
        for given in (cuts << 30, np.full(19, 7 << 30)):
            sample = RelationalSampler(graph.edges(), (3, 2), newest=True).sample(nodes, given, seed)
            check_sample(graph, graph.edges(), sample, (nodes, given), {"default": (3, 2)}, recent=True)


def test_draws_are_the_written_ones() -> None:
    """Floyd's algorithm over wyrand's numbers of the key, the hop, the cut and the slot."""
    graph = random_graph(5)
    edges = graph.edges()
    sampler = RelationalSampler(edges, (2, 3))
    nodes, cuts = seeds_of(graph, 5)
    drawn = 0
    for given in (cuts, np.full(19, 9)):
        sample = sampler.sample(nodes, given, 77)
        for hop, limit in enumerate((2, 3)):
            for (node, cut, relation), taken in taken_edges(sample, edges, 1 - hop).items():
                seen = graph.seen(node, relation, cut)
                if len(seen) > limit:
                    slot = int(edges.slot_start[node]) + edges.into[graph.node_type[node]].index(relation)
                    assert taken == reference_draw(seen, limit, slot, cut, hop, 77)
                    drawn += 1
    assert drawn > 50


@pytest.mark.parametrize(("degree", "limit"), [(7, 3), (90, 5), (100, 70)])
@pytest.mark.parametrize("cut", [None, 1000])
def test_draws_are_uniform(degree: int, limit: int, cut: int | None) -> None:
    """Every set is as likely as another, or where there are too many, every edge; what is after the cut has no part."""
    num_nodes, later = 40, 0 if cut is None else 13
    dst = np.repeat(np.arange(num_nodes), degree + later)
    src = np.tile(np.arange(degree + later), num_nodes) % num_nodes
    time = np.tile(np.r_[np.arange(degree), np.full(later, 2000)], num_nodes)
    relation = Relation("node__to__node", 0, 0)
    graph = TypedGraph(np.zeros(num_nodes, int), ("node",), (relation,), src, dst, np.zeros(len(src), int), time)
    sampler = RelationalSampler(graph.edges(), (limit,))
    times = time[graph.order]
    counts: Counter[Any] = Counter()
    rounds = 100
    for key in range(rounds):
        cuts = None if cut is None else cut + np.arange(num_nodes) % 3
        part = sampler.sample(np.arange(num_nodes), cuts, key).layers[0].relations[0]
        for v in range(num_nodes):
            taken = times[part.positions[part.indptr[v] : part.indptr[v + 1]]].tolist()
            assert len(set(taken)) == limit
            counts.update([tuple(sorted(taken))] if degree < 10 else taken)
    kinds = comb(degree, limit) if degree < 10 else degree
    assert len(counts) == kinds
    # Of draws without replacement the counts vary less than independent ones: the test is on the safe side.
    assert scipy.stats.chisquare(list(counts.values())).pvalue > 1e-3


@pytest.mark.parametrize("recent", [False, True])
def test_what_a_seed_gets_does_not_depend_on_the_batch(recent: bool) -> None:
    graph = random_graph(1)
    edges = graph.edges()
    sampler = RelationalSampler(edges, (2, 2), newest=recent)
    nodes, cuts = seeds_of(graph, 1)
    together = [taken_edges(sampler.sample(nodes, cuts, 3), edges, layer) for layer in (0, 1)]
    for i in range(len(nodes)):
        alone = sampler.sample(nodes[i : i + 1], cuts[i : i + 1], 3)  # by the array; together by the hash table
        for layer in (0, 1):
            for row, taken in taken_edges(alone, edges, layer).items():
                assert together[layer][row] == taken
    assert not equal(sampler.sample(nodes, cuts, 4), sampler.sample(nodes, cuts, 3)) or recent


def test_threads_share_a_sampler() -> None:
    graph = random_graph(2)
    sampler = RelationalSampler(graph.edges(), (3, 3))
    batches = [(*seeds_of(graph, key), key) for key in range(40)]
    batches = [(nodes, cuts if key % 2 else np.full_like(cuts, 8), key) for nodes, cuts, key in batches]
    wanted = [sampler.sample(*one) for one in batches]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda one: sampler.sample(*one), batches))
    assert all(map(equal, found, wanted))


def change_what_is_later(graph: TypedGraph, cut: int, seed: int) -> tuple[TypedGraph, np.ndarray]:
    """Rewire, remove, add and delay all edges and rows whose time is not before a cut.

    Returns the other graph and what its edges were before: int64 (E,), -1 for edges that are new.
    """
    rng = np.random.default_rng(seed)
    late = np.array([graph.time(e) >= cut for e in range(len(graph.src))])
    kept = np.flatnonzero(~late)
    count = int(rng.integers(0, 2 * late.sum() + 1))
    kind = rng.choice([0, 2, 3, 6], count)  # a row that is there gets no further keys of its own
    of = [np.flatnonzero(graph.node_type == t) for t in range(5)]
    src = np.array([rng.choice(of[graph.relations[k].source]) for k in kind], int)
    dst = np.array([rng.choice(of[graph.relations[k].target]) for k in kind], int)
    node_time = graph.node_time.copy()
    late_rows = node_time >= cut
    node_time[late_rows] = cut + rng.integers(0, 9, late_rows.sum())
    changed = TypedGraph(
        graph.node_type,
        graph.node_types,
        graph.relations,
        np.r_[graph.src[kept], src],
        np.r_[graph.dst[kept], dst],
        np.r_[graph.edge_type[kept], kind],
        np.r_[graph.edge_time[kept], cut + rng.integers(0, 9, count)],
        node_time,
    )
    return changed, np.r_[kept, np.full(count, -1)]


@pytest.mark.parametrize("recent", [False, True])
@pytest.mark.parametrize("cut", [-6, 0, 5, 11, 30])
def test_what_is_not_before_the_cut_changes_nothing(recent: bool, cut: int) -> None:
    graph = random_graph(4)
    nodes, cuts = seeds_of(graph, 4, 33)
    cuts = np.minimum(cuts, cut)
    there = graph.node_time[nodes] < cuts
    nodes, cuts = nodes[there], cuts[there]
    cuts[0] = cut
    fanouts = {"default": (3, -1), graph.relations[1].name: (1, 2)}
    for seed in range(5):
        changed, before = change_what_is_later(graph, cut, seed)
        for given in (cuts, np.full_like(cuts, cut)):
            one, other = (
                RelationalSampler(g.edges(), fanouts, newest=recent).sample(nodes, given, 9) for g in (graph, changed)
            )
            for sample, g, known in ((one, graph, np.arange(len(graph.src))), (other, changed, before)):
                for part in (part for layer in sample.layers for part in layer.relations):
                    part.positions = known[g.order[part.positions]]  # positions shift; the edges are the same
            assert equal(one, other)


def test_equal_seeds_are_one_row() -> None:
    graph = random_graph(0)
    sampler = RelationalSampler(graph.edges(), (2,))
    node = int(np.flatnonzero(graph.node_type == 3)[0])
    sample = sampler.sample(np.array([node, node, node]), np.array([5, 9, 5]), 0)
    assert sample.seed_rows.tolist() == [0, 1, 0]
    assert sample.layers[0].num_dst == (0, 0, 0, 2, 0)
    assert sampler.sample(np.array([node, node]), None, 0).seed_rows.tolist() == [0, 0]


def test_a_batch_without_seeds_is_empty() -> None:
    sampler = RelationalSampler(random_graph(0).edges(), (2, 2))
    for cuts in (None, np.zeros(0, np.int64)):
        sample = sampler.sample(np.zeros(0, np.int64), cuts, 0)
        assert all(len(ids) == 0 for ids in sample.ids)
        assert [part.indptr.tolist() for layer in sample.layers for part in layer.relations] == [[0]] * 14


def test_positions_only_where_asked_for() -> None:
    graph = random_graph(0)
    with_positions, without = (RelationalSampler(graph.edges(), (2, 2), positions=wanted) for wanted in (True, False))
    nodes, cuts = seeds_of(graph, 0)
    one, other = with_positions.sample(nodes, cuts, 1), without.sample(nodes, cuts, 1)
    for mine, theirs in zip(one.layers, other.layers, strict=True):
        for a, b in zip(mine.relations, theirs.relations, strict=True):
            assert b.positions is None
            assert np.array_equal(a.indices, b.indices)


def test_tables_start_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of batches long ago are never taken for the present one's, and a batch beyond all room is refused."""
    graph = random_graph(6)
    edges = graph.edges()
    nodes, cuts = seeds_of(graph, 6)
    fresh = [RelationalSampler(edges, (3, 2)).sample(nodes, given, 1) for given in (cuts, np.full(19, 8))]
    monkeypatch.setattr(numbering, "_LAST_BASE", 3000)
    monkeypatch.setattr(numbering, "_FIRST_ROOM", 16)
    sampler = RelationalSampler(edges, (3, 2))
    for _ in range(30):
        for given, wanted in zip((cuts, np.full(19, 8)), fresh, strict=True):
            assert equal(sampler.sample(nodes, given, 1), wanted)
    monkeypatch.setattr(numbering, "_LAST_BASE", 60)
    with pytest.raises(DataError, match=r"a batch reaches \d+ edges; lower train.loader.batch_size"):
        sampler.sample(nodes, cuts, 1)


def test_the_newest_need_times() -> None:
    edges = random_graph(0, times="none").edges()
    with pytest.raises(RecipeError, match=r"nothing in this graph has a time; name a time column"):
        RelationalSampler(edges, (2,), newest=True)
