"""Kernels against plain references on random graphs with isolated nodes, duplicates and self-loops."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from tasks.components.renumbering import permute_rows
from tasks.partition import coarsened as levels
from tasks.partition.base import Csr, Parts, WeightedCsr
from tasks.partition.coarsened import Level, Limits, cluster_by_ranges, coarsen, finest_level
from tasks.partition.kernels.clusters import RANGES_PER_WAVE, RangeRows, choose_clusters
from tasks.partition.kernels.graphs import count_cut, is_simple, order_by_part, unite_rows
from tasks.partition.kernels.moves import move_all, rebalance
from tests.partition.test_partitioners import csr_of, grid, make, planted


def random_rows(num_nodes: int, num_edges: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A multigraph's rows, ascending; the last nodes are isolated."""
    rng = np.random.default_rng(seed)
    row, column = rng.integers(0, max(1, num_nodes - 3), (2, num_edges))
    order = np.lexsort((column, row))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=num_nodes))])
    return indptr.astype(np.int64), column[order].astype(np.int32)


@pytest.mark.parametrize(("num_nodes", "num_edges"), [(1, 0), (7, 40), (60, 6000), (301, 900)])
@pytest.mark.parametrize("num_parts", [2, 5, 200])
@pytest.mark.parametrize("wanted", [True, False])
def test_permute_rows(num_nodes: int, num_edges: int, num_parts: int, wanted: bool) -> None:
    indptr, indices = random_rows(num_nodes, num_edges, seed=num_nodes)
    part = np.random.default_rng(1).integers(0, num_parts, num_nodes).astype(np.int32)
    order = order_by_part(part, num_parts, np.dtype(np.int32))
    assert np.array_equal(order.new_to_old, np.argsort(part, kind="stable"))
    assert np.array_equal(order.old_to_new[order.new_to_old], np.arange(num_nodes))
    out, positions = np.empty(num_edges, np.int32), np.empty(num_edges if wanted else 0, np.int64)
    permute_rows(indptr, indices, order.new_to_old, order.old_to_new, part, num_parts, out, positions)
    expected = [np.sort(order.old_to_new[indices[indptr[v] : indptr[v + 1]]]) for v in order.new_to_old]
    assert np.array_equal(out, np.concatenate(expected))
    if wanted:
        assert np.array_equal(np.sort(positions), np.arange(num_edges))
        assert np.array_equal(order.old_to_new[indices[positions]], out)


@pytest.mark.parametrize("seed", range(4))
def test_union_of_both_directions(seed: int) -> None:
    num_nodes = 37
    indptr, indices = random_rows(num_nodes, 150, seed)
    matrix = sp.csr_matrix((np.ones(150), indices, indptr), shape=(num_nodes, num_nodes))
    transposed = matrix.T.tocsr()
    transposed.sort_indices()
    both = ((matrix + transposed) > 0).tolil()
    both.setdiag(False)
    both = both.tocsr()
    both.eliminate_zeros()
    both.sort_indices()
    out = (transposed.indptr.astype(np.int64), transposed.indices.astype(np.int32))
    sizes = np.zeros(num_nodes + 1, np.int64)
    unite_rows(indptr, indices, *out, sizes, np.empty(0, np.int32))
    union_indptr = np.cumsum(sizes)
    union = np.empty(union_indptr[-1], np.int32)
    unite_rows(indptr, indices, *out, union_indptr, union)
    assert np.array_equal(union_indptr, both.indptr)
    assert np.array_equal(union, both.indices)
    assert is_simple(union_indptr, union)
    assert not is_simple(indptr, indices)


def test_rebalance_brings_parts_under_their_limits() -> None:
    rng = np.random.default_rng(3)
    csr = csr_of(*rng.integers(0, 600, (2, 2400)), 600)
    train_idx = np.arange(0, 600, 3)
    level = finest_level(csr, train_idx)
    part = np.zeros(600, np.int32)
    part[:50] = 1
    part[50:60] = 2
    size = np.bincount(part, minlength=3)
    train_size = np.bincount(part[train_idx], minlength=3)
    rebalance(level.graph, Parts(part, level.weight, level.train, size, train_size, 206, 69))
    assert np.array_equal(size, np.bincount(part, minlength=3))
    assert np.array_equal(train_size, np.bincount(part[train_idx], minlength=3))
    assert size.max() <= 206
    assert train_size.max() <= 69


def random_graph(num_nodes: int, num_edges: int, seed: int, dtype: type = np.int32) -> Csr:
    rng = np.random.default_rng(seed)
    return csr_of(*rng.integers(0, max(2, num_nodes - 3), (2, num_edges)), num_nodes, dtype)


def alone(csr: Csr, cap: int, train_idx: np.ndarray | None = None, train_cap: int = 0) -> tuple[WeightedCsr, Parts]:
    """A graph, and each node as a cluster of its own."""
    level = finest_level(csr, train_idx)
    label = np.arange(csr.num_nodes, dtype=csr.indices.dtype)
    return level.graph, Parts(label, level.weight, level.train, level.weight.copy(), level.train.copy(), cap, train_cap)


def choose(graph: WeightedCsr, clusters: Parts, first: int, last: int, key: int, sample: bool = False) -> np.ndarray:
    begin, end = graph.indptr[first], graph.indptr[last]
    rows = RangeRows(first, graph.indptr[first : last + 1], graph.indices[begin:end], graph.edge_weight[begin:end])
    chosen = np.empty(last - first, clusters.part.dtype)
    choose_clusters(rows, clusters, key, sample, chosen)
    return chosen


@pytest.mark.parametrize(("num_nodes", "num_edges"), [(5, 4), (101, 700), (301, 9001)])
@pytest.mark.parametrize("weighted", [False, True])
def test_clusters_of_a_range_against_plain_loops(num_nodes: int, num_edges: int, weighted: bool) -> None:
    csr, rng = random_graph(num_nodes, num_edges, num_nodes), np.random.default_rng(1)
    label = rng.integers(0, max(2, num_nodes // 6), num_nodes).astype(np.int32)
    weight = rng.integers(1, 5, num_nodes).astype(np.int32) if weighted else np.ones(num_nodes, np.int32)
    size = np.bincount(label, weight, num_nodes).astype(np.int32)
    edge_weight = rng.integers(1, 9, csr.num_edges if weighted else 0).astype(np.int32)
    first, last, cap = num_nodes // 4, num_nodes - 1, int(size.max()) + 40
    none = np.zeros(0, np.int32)
    clusters = Parts(label.copy(), weight, none, size.copy(), none, cap, 0)
    chosen = choose(WeightedCsr(csr.indptr, csr.indices, edge_weight), clusters, first, last, 7)
    assert np.array_equal(label, clusters.part)
    seen, arrivals = label.copy(), Counter[int]()
    for v in range(first, last):
        counts, w, old, new = Counter[int](), int(weight[v]), int(seen[v]), int(chosen[v - first])
        for e in range(csr.indptr[v], csr.indptr[v + 1]):
            counts[int(seen[csr.indices[e]])] += int(edge_weight[e]) if weighted else 1
        room = {c: cap - int(size[c]) for c in counts}
        open_to = {
            c: count
            for c, count in counts.items()
            if room[c] >= w and arrivals[c] + w <= max(w, room[c] // RANGES_PER_WAVE)
        }
        open_to[old] = counts[old]
        assert open_to[new] == max(open_to.values())
        arrivals[new] += w if new != old else 0
        seen[v] = new
    nodes = first + np.flatnonzero(chosen != label[first:last])
    move_all(nodes, chosen[nodes - first], clusters)
    assert np.array_equal(clusters.part, seen)
    assert np.array_equal(clusters.size, np.bincount(seen, weight, num_nodes))


def test_ties_are_drawn_evenly() -> None:
    """A star: in the first round each leaf has one choice, the centre has all."""
    graph, clusters = alone(csr_of(np.zeros(6, int), np.arange(1, 7), 7), 9)
    chosen = Counter(int(choose(graph, clusters, 0, 1, key, sample=True)[0]) for key in range(3000))
    assert set(chosen) == set(range(1, 7))
    assert max(chosen.values()) < 1.25 * min(chosen.values())


@pytest.mark.parametrize("threads", [2, 5])
def test_any_number_of_threads_finds_the_same(threads: int) -> None:
    csr = planted(6001)
    labels = []
    for count in (1, threads):
        graph, clusters = alone(csr, 60)
        cluster_by_ranges(graph, clusters, 4, 3, count)
        labels.append(clusters.part)
    assert np.array_equal(*labels)
    assert np.array_equal(*(make("coarsened", threads=count).partition(csr, 4) for count in (1, threads)))


def test_clusters_keep_to_their_limits_and_follow_communities() -> None:
    csr = grid(90)
    graph, clusters = alone(csr, 50, np.arange(0, csr.num_nodes, 7), 12)
    cluster_by_ranges(graph, clusters, 4, 1, 2)
    assert np.array_equal(clusters.size, np.bincount(clusters.part, minlength=csr.num_nodes))
    assert np.array_equal(clusters.train_size, np.bincount(clusters.part[::7], minlength=csr.num_nodes))
    assert clusters.size.max() <= 50 + 16
    assert clusters.train_size.max() <= 12 + 16
    assert np.count_nonzero(clusters.size) < csr.num_nodes / 3
    assert count_cut(csr.indptr, csr.indices, clusters.part) < 0.6 * csr.num_edges


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_contraction_against_scipy(
    threads: int, mapped: bool, weighted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(levels, "MAPPED_ENTRIES", 0 if mapped else 1 << 40)
    csr, rng = random_graph(211, 1500, 0), np.random.default_rng(0)
    label = np.unique(rng.integers(0, 40, 211), return_inverse=True)[1].astype(np.int32)
    count = int(label.max()) + 1
    adjacency = sp.csr_matrix((np.ones(csr.num_edges), csr.indices, csr.indptr), shape=(211, 211))
    level = finest_level(csr, np.arange(0, 211, 5))
    if weighted:
        adjacency.data = rng.integers(1, 9, csr.num_edges).astype(float)
        level = Level(level.graph._replace(edge_weight=adjacency.data.astype(np.int32)), level.weight, level.train)
    coarse = levels._contract(level, label, count, np.empty(211, np.int32), threads, tmp_path)
    member = sp.csr_matrix((np.ones(211), (label, np.arange(211))), shape=(count, 211))
    expected = (member @ adjacency @ member.T).toarray()
    np.fill_diagonal(expected, 0)
    graph = coarse.graph
    found = sp.csr_matrix((graph.edge_weight, graph.indices, graph.indptr), shape=(count, count))
    assert np.array_equal(found.toarray(), expected)
    assert found.nnz == np.count_nonzero(expected)
    assert np.array_equal(coarse.weight, np.bincount(label))
    assert np.array_equal(coarse.train, np.bincount(label[::5], minlength=count))
    assert list(tmp_path.iterdir()) == []


def test_large_levels_lie_in_files_cut_to_their_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels, "MAPPED_ENTRIES", 1000)
    cut: list[int] = []
    truncate = os.truncate
    monkeypatch.setattr(os, "truncate", lambda path, size: (cut.append(size), truncate(path, size)))
    csr = planted(4001)
    limits = Limits(num_parts=4, cap=1100, train_cap=0, cluster_cap=60, cluster_train_cap=1)
    _, coarse = coarsen(finest_level(csr, None), limits, 1, 2, tmp_path)
    assert cut == [128 + 4 * coarse.num_edges] * 2
    assert coarse.weight.sum() == csr.num_nodes
