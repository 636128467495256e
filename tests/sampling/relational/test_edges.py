"""In-edges by relation, time and source against a plain sort."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from configs.errors import DataError
from tasks.sampling.relational.cuts import Clock
from tasks.sampling.relational.edges import Relation
from tasks.storage.graph_store import ALWAYS
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
