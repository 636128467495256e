"""Sampling kernels against plain references, on graphs with isolated nodes, self-loops and hubs."""

from __future__ import annotations

from collections import Counter
from math import comb

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import chi2_contingency, chisquare

from tasks.train.loaders.sampling import NeighborSampler, draw_negatives, is_edge


def random_graph(num_nodes: int, num_edges: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """CSC with self-loops, a hub (node 0) and isolated nodes (the last third has no in-edges)."""
    rng = np.random.default_rng(seed)
    src = rng.integers(0, num_nodes, num_edges)
    dst = rng.integers(0, max(1, 2 * num_nodes // 3), num_edges)
    dst[: num_edges // 3] = 0
    matrix = sp.csr_matrix((np.ones(num_edges), (dst, src)), shape=(num_nodes, num_nodes))
    matrix.sum_duplicates()
    matrix.sort_indices()
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)


def edges_of(sample, nodes: np.ndarray) -> list[tuple[int, int]]:
    """Edges of a layer as (source, destination) in the graph's own ids."""
    dst = np.repeat(np.arange(len(sample.indptr) - 1), np.diff(sample.indptr))
    return list(zip(nodes[sample.indices], nodes[dst], strict=True))


@pytest.mark.parametrize(("num_nodes", "num_edges"), [(1, 0), (7, 20), (97, 901), (301, 4003)])
@pytest.mark.parametrize("fanouts", [(3,), (4, 2), (-1, -1), (70, 3)])
def test_blocks_hold_distinct_true_edges_of_the_right_number(num_nodes, num_edges, fanouts) -> None:
    indptr, indices = random_graph(num_nodes, num_edges, num_nodes)
    seeds = np.unique(np.random.default_rng(1).integers(0, num_nodes, 11))
    nodes, layers = NeighborSampler(indptr, indices, fanouts).sample(seeds, key=5)
    assert len(np.unique(nodes)) == len(nodes)
    assert (nodes[: len(seeds)] == seeds).all()
    num_dst = len(seeds)
    for fanout, layer in zip(fanouts, layers[::-1], strict=True):
        assert len(layer.indptr) == num_dst + 1
        degree = indptr[nodes[:num_dst] + 1] - indptr[nodes[:num_dst]]
        expected = degree if fanout < 0 else np.minimum(degree, fanout)
        assert (np.diff(layer.indptr) == expected).all()
        edges = edges_of(layer, nodes)
        assert len(set(edges)) == len(edges)  # without replacement
        assert all(is_edge(indptr, indices, int(s), int(d)) for s, d in edges)
        assert (indices[layer.positions] == nodes[layer.indices]).all()
        num_dst = len(layer.degree)
        assert (layer.degree == np.diff(indptr)[nodes[:num_dst]]).all()
    assert num_dst == len(nodes)


@pytest.mark.parametrize("fanout", [5, 80])  # Floyd's algorithm and selection sampling
def test_every_neighbour_is_drawn_equally_often(fanout: int) -> None:
    degree = 100
    indptr, indices = np.array([0, degree]), np.zeros(degree, np.int32)
    sampler = NeighborSampler(indptr, indices, (fanout,))
    counts = np.zeros(degree)
    rounds = 4000
    for key in range(rounds):
        counts[sampler.sample(np.array([0]), key)[1][0].positions] += 1
    expected = rounds * fanout / degree
    spread = np.sqrt(expected * (1 - fanout / degree))
    assert np.abs(counts - expected).max() < 5 * spread
    assert counts.std() > 0.5 * spread  # random, not round-robin


def test_every_subset_of_neighbours_is_drawn_equally_often() -> None:
    """Equal shares of single neighbours would not notice pairs that always come together; subsets do."""
    num_nodes, degree, fanout, rounds = 40, 6, 3, 100
    indptr, indices = np.arange(0, num_nodes * degree + 1, degree), np.zeros(num_nodes * degree, np.int32)
    sampler = NeighborSampler(indptr, indices, (fanout,))
    counts: Counter[tuple[int, ...]] = Counter()
    both: Counter[tuple[int, int]] = Counter()
    for key in range(rounds):
        positions = np.sort(sampler.sample(np.arange(num_nodes), key)[1][0].positions.reshape(num_nodes, fanout))
        subsets = [tuple(row) for row in (positions - indptr[:-1, None]).tolist()]
        counts.update(subsets)
        both.update(zip([subset[0] for subset in subsets], [subset[0] for subset in subsets[1:]], strict=False))
    assert len(counts) == comb(degree, fanout)
    assert chisquare(list(counts.values())).pvalue > 1e-3
    # neighbouring nodes draw independently of each other
    first = range(degree - fanout + 1)
    table = np.array([[both[a, b] for b in first] for a in first])
    assert chi2_contingency(table).pvalue > 1e-3


def test_a_sample_depends_on_its_key_only() -> None:
    indptr, indices = random_graph(200, 5000, 0)
    seeds = np.arange(0, 50)
    first = NeighborSampler(indptr, indices, (4, 4))
    again = NeighborSampler(indptr, indices, (4, 4))
    again.sample(np.arange(100, 120), key=77)
    a, b, c = first.sample(seeds, 1), again.sample(seeds, 1), first.sample(seeds, 2)
    assert (a[0] == b[0]).all()
    assert all((x.indices == y.indices).all() for x, y in zip(a[1], b[1], strict=True))
    assert not np.array_equal(a[1][1].positions, c[1][1].positions)


def test_excluded_pairs_carry_no_messages_either_way() -> None:
    indptr, indices = random_graph(60, 1500, 3)
    dst = np.repeat(np.arange(60), np.diff(indptr))
    chosen = np.random.default_rng(0).choice(len(indices), 20, replace=False)
    pairs = np.stack([indices[chosen].astype(np.int64), dst[chosen]])
    sampler = NeighborSampler(indptr, indices, (-1, -1))
    local, seeds = sampler.number(pairs)
    assert (seeds[local] == pairs).all()
    nodes, layers = sampler.sample(seeds, 0, excluded=local)
    banned = {(int(a), int(b)) for a, b in pairs.T} | {(int(b), int(a)) for a, b in pairs.T}
    for layer in layers:
        kept = set(edges_of(layer, nodes))
        assert not kept & banned
        wanted = nodes[: len(layer.indptr) - 1]
        every = {(int(s), int(d)) for d in wanted for s in indices[indptr[d] : indptr[d + 1]]}
        assert kept == every - banned
        assert layer.indptr[-1] == len(layer.indices) == len(layer.positions)


def test_negatives_are_neither_edges_nor_loops_and_cover_all_nodes() -> None:
    indptr, indices = random_graph(50, 700, 2)
    out = np.empty((5000, 2), np.int64)
    draw_negatives(indptr, indices, 9, 50, out)
    assert (out[:, 0] != out[:, 1]).all()
    assert not any(is_edge(indptr, indices, a, b) for a, b in out)
    assert set(out[:, 0]) == set(range(50))
