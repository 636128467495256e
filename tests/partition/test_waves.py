"""Passes by ranges of nodes: a range's choices against plain loops, the same outcome on any number of threads."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from tasks.partition import levels
from tasks.partition.base import Csr
from tasks.partition.kernels.quality import count_cut
from tasks.partition.kernels.range_clusters import RANGES_PER_WAVE, RangeRows, apply_changes, choose_clusters
from tasks.partition.levels import Level, Limits, coarsen, finest_level
from tasks.partition.waves import cluster_by_ranges
from tests.partition.test_partitioners import csr_of, grid, make, planted


def random_graph(num_nodes: int, num_edges: int, seed: int, dtype: type = np.int32) -> Csr:
    rng = np.random.default_rng(seed)
    return csr_of(*rng.integers(0, max(2, num_nodes - 3), (2, num_edges)), num_nodes, dtype)


def rows_of(csr: Csr, first: int, last: int) -> RangeRows:
    indptr = csr.indptr[first : last + 1]
    return RangeRows(first, indptr, csr.indices[indptr[0] : indptr[-1]])


@pytest.mark.parametrize(("num_nodes", "num_edges"), [(5, 4), (101, 700), (301, 9001)])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_clusters_of_a_range_against_plain_loops(num_nodes: int, num_edges: int, dtype: type) -> None:
    csr, rng = random_graph(num_nodes, num_edges, num_nodes, dtype), np.random.default_rng(1)
    label = rng.integers(0, max(2, num_nodes // 6), num_nodes).astype(dtype)
    size = np.bincount(label, minlength=num_nodes).astype(np.int32)
    first, last, cap = num_nodes // 4, num_nodes - 1, int(size.max()) + 40
    own, before = np.empty(last - first, dtype), label.copy()
    choose_clusters(rows_of(csr, first, last), label, size, cap, 7, False, own)
    assert np.array_equal(label, before)
    seen, arrivals = label.copy(), Counter()
    for v in range(first, last):
        counts = Counter(seen[csr.indices[csr.indptr[v] : csr.indptr[v + 1]]].tolist())
        quota = {c: max(1, (cap - int(size[c])) // RANGES_PER_WAVE) for c in counts if size[c] < cap}
        open_to = {c: counts[c] for c in quota if arrivals[c] < quota[c] or c == seen[v]}
        open_to[int(seen[v])] = counts[int(seen[v])]
        best = max(open_to.values())
        assert open_to[int(own[v - first])] == best
        if own[v - first] != seen[v]:
            arrivals[int(own[v - first])] += 1
        seen[v] = own[v - first]
    nodes = first + np.flatnonzero(own != label[first:last])
    apply_changes(nodes, own[nodes - first], label, size)
    assert np.array_equal(label, seen)
    assert np.array_equal(size, np.bincount(seen, minlength=num_nodes))


def test_ties_are_drawn_evenly() -> None:
    """A star: in the first round each leaf has one choice, the centre has all."""
    csr = csr_of(np.zeros(6, int), np.arange(1, 7), 7)
    chosen = Counter()
    for key in range(3000):
        own = np.empty(1, np.int32)
        label, size = np.arange(7, dtype=np.int32), np.ones(7, np.int32)
        choose_clusters(rows_of(csr, 0, 1), label, size, 9, key, True, own)
        chosen[int(own[0])] += 1
    assert set(chosen) == set(range(1, 7))
    assert max(chosen.values()) < 1.25 * min(chosen.values())


@pytest.mark.parametrize("threads", [2, 5])
def test_any_number_of_threads_finds_the_same(threads: int) -> None:
    csr = planted(6001)
    alone, together = (cluster_by_ranges(csr, 60, 4, 3, count) for count in (1, threads))
    assert np.array_equal(alone[0], together[0])
    assert np.array_equal(alone[1], together[1])
    assert np.array_equal(*(make("coarsened", threads=count).partition(csr, 4) for count in (1, threads)))


def test_clusters_keep_to_their_limit_and_follow_communities() -> None:
    csr = grid(90)
    label, size = cluster_by_ranges(csr, 50, 4, 1, 2)
    assert np.array_equal(size, np.bincount(label, minlength=csr.num_nodes))
    assert size.max() <= 50 + 16
    assert np.count_nonzero(size) < csr.num_nodes / 3
    assert count_cut(csr.indptr, csr.indices, label) < 0.6 * csr.num_edges


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
