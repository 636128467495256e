"""Sampling against plain references, on graphs with isolated nodes, loops and hubs; draws against probabilities."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from math import comb
from typing import Any

import numpy as np
import pytest
import scipy  # scipy.stats takes a second, where it is used
import scipy.sparse as sp
from numba import njit

from tasks.edge_ends import ANY
from tasks.sampling.negatives import draw_negatives
from tasks.sampling.neighborhoods.fast_random import STEP, below_and_fraction, output, stream, unit
from tasks.sampling.neighborhoods.in_edges import Sample, find_edge
from tasks.sampling.neighborhoods.neighbors import NeighborSampler
from tasks.sampling.neighborhoods.relabel import ALL_ASKED


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


def random_weights(count: int, seed: int = 0) -> np.ndarray:
    """Weights of several orders of magnitude, a fifth of them 0."""
    rng = np.random.default_rng(seed)
    return (rng.exponential(1, count) ** 3 * (rng.random(count) > 0.2)).astype(np.float32)


def regular(num_nodes: int, degree: int) -> tuple[np.ndarray, np.ndarray]:
    """`num_nodes` nodes that all have the neighbours 0 to degree - 1; those beyond them have none."""
    indptr = np.minimum(np.arange(max(num_nodes, degree) + 1), num_nodes) * degree
    return indptr, np.tile(np.arange(degree, dtype=np.int32), num_nodes)


def edges_of(sample: Sample, nodes: np.ndarray) -> list[tuple[int, int]]:
    """Edges of a layer as (source, destination) in the graph's own ids."""
    dst = np.repeat(np.arange(len(sample.indptr) - 1), np.diff(sample.indptr))
    return list(zip(nodes[sample.indices].tolist(), nodes[dst].tolist(), strict=True))


def drawn_sets(sampler: NeighborSampler, degree: int, rounds: int) -> Counter[tuple[int, ...]]:
    """How often each set of in-edges was drawn, over all nodes of a regular graph."""
    num_nodes = int(sampler.edges.indptr[-1]) // degree
    counts: Counter[tuple[int, ...]] = Counter()
    for key in range(rounds):
        layer = sampler.sample(np.arange(num_nodes), key)[1][0]
        for v in range(num_nodes):
            taken = layer.positions[layer.indptr[v] : layer.indptr[v + 1]] - v * degree
            counts[tuple(sorted(taken.tolist()))] += 1
    return counts


def fits(counts: Counter[Any], chances: dict[Any, float]) -> bool:
    """Whether counts are what draws with these chances give (chi-square)."""
    assert set(counts) <= set(chances)
    total = sum(counts.values())
    seen = [counts[item] for item in chances]
    return bool(scipy.stats.chisquare(seen, [chance * total for chance in chances.values()]).pvalue > 1e-3)


@pytest.mark.parametrize(("num_nodes", "num_edges"), [(1, 0), (7, 20), (97, 901), (301, 4003)])
@pytest.mark.parametrize("fanouts", [(3,), (4, 2), (-1, -1), (70, 3)])
def test_blocks_hold_true_edges_of_the_right_number(num_nodes, num_edges, fanouts) -> None:
    indptr, indices = random_graph(num_nodes, num_edges, num_nodes)
    seeds = np.unique(np.random.default_rng(1).integers(0, num_nodes, 11))
    sampler = NeighborSampler(indptr, indices, fanouts)
    nodes, layers = sampler.sample(seeds, key=5)
    assert len(np.unique(nodes)) == len(nodes)
    assert (nodes[: len(seeds)] == seeds).all()
    num_dst = len(seeds)
    for fanout, layer in zip(fanouts, layers[::-1], strict=True):
        assert len(layer.indptr) == num_dst + 1
        degree = np.diff(indptr)[nodes[:num_dst]]
        assert (np.diff(layer.indptr) == (degree if fanout < 0 else np.minimum(degree, fanout))).all()
        edges = edges_of(layer, nodes)
        assert len(set(edges)) == len(edges)
        assert all(find_edge(indptr, indices, s, d) >= 0 for s, d in edges)
        assert (indices[layer.positions] == nodes[layer.indices]).all()
        num_dst = len(layer.degree)
        assert (layer.degree == np.diff(indptr)[nodes[:num_dst]]).all()
    assert num_dst == len(nodes)


@pytest.mark.parametrize(
    ("degree", "fanout"),
    [
        (6, 3),  # up to 64 edges a bit for each tells what is taken
        (70, 2),  # above, a bit for several
        (67, 66),  # one scan
    ],
)
def test_every_set_of_neighbours_is_drawn_equally_often(degree: int, fanout: int) -> None:
    """Equal shares of single neighbours would not notice pairs that always come together; sets do."""
    counts = drawn_sets(NeighborSampler(*regular(50, degree), (fanout,)), degree, 400)
    assert fits(counts, dict.fromkeys(itertools.combinations(range(degree), fanout), 1 / comb(degree, fanout)))


@pytest.mark.parametrize(("degree", "fanout"), [(100, 80), (5000, 70), (1000, 15)])
def test_every_neighbour_is_drawn_equally_often(degree: int, fanout: int) -> None:
    sampler = NeighborSampler(*regular(1, degree), (fanout,))
    counts = np.zeros(degree)
    rounds = 4000
    for key in range(rounds):
        counts[sampler.sample(np.array([0]), key)[1][0].positions] += 1
    expected = rounds * fanout / degree
    spread = np.sqrt(expected * (1 - fanout / degree))
    assert np.abs(counts - expected).max() < 5 * spread
    assert 0.9 < counts.std() / spread < 1.1


def test_nodes_draw_independently_of_each_other() -> None:
    num_nodes, degree, fanout = 40, 6, 3
    sampler = NeighborSampler(*regular(num_nodes, degree), (fanout,))
    both: Counter[tuple[int, int]] = Counter()
    for key in range(100):
        drawn = np.sort(sampler.sample(np.arange(num_nodes), key)[1][0].positions.reshape(num_nodes, fanout))
        lowest = (drawn[:, 0] - np.arange(num_nodes) * degree).tolist()
        both.update(itertools.pairwise(lowest))
    table = np.array([[both[a, b] for b in range(degree - fanout + 1)] for a in range(degree - fanout + 1)])
    assert scipy.stats.chi2_contingency(table).pvalue > 1e-3


def test_weights_make_sums_unbiased() -> None:
    indptr, indices = random_graph(40, 700, 4)
    edge_weight = random_weights(len(indices), 3)
    x = np.random.default_rng(0).standard_normal(40)
    sampler = NeighborSampler(indptr, indices, (3,), inverse_chances=True)
    draws = []
    for key in range(3000):
        nodes, [layer] = sampler.sample(np.arange(40), key)
        messages = layer.weight * edge_weight[layer.positions] * x[nodes[layer.indices]]
        rows = np.repeat(np.arange(40), np.diff(layer.indptr))
        draws.append(np.bincount(rows, messages, 40))
    exact = sp.csr_matrix((edge_weight, indices, indptr), shape=(40, 40)) @ x
    error = np.std(draws, axis=0) / np.sqrt(len(draws))
    assert (np.abs(np.mean(draws, axis=0) - exact) < 5 * error + 1e-5).all()
    assert np.mean(draws, axis=0)[0] != pytest.approx(exact[0], rel=1e-9)  # the hub was sampled


def test_a_sample_depends_on_its_key_only() -> None:
    """Not on samples before, nor on those that other threads draw at the same time."""
    indptr, indices = random_graph(200, 5000, 0)
    jobs = [(np.arange(key, key + 50), key) for key in range(12)]
    alone = [NeighborSampler(indptr, indices, (4, 4)).sample(*job) for job in jobs]
    shared = NeighborSampler(indptr, indices, (4, 4))
    got: dict[int, Any] = {}
    start = threading.Barrier(3)

    def work(first: int) -> None:
        start.wait()
        for number in range(first, 12, 3):
            got[number] = shared.sample(*jobs[number])

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, range(3)))
    for number, (nodes, layers) in enumerate(alone):
        assert np.array_equal(nodes, got[number][0])
        for a, b in zip(layers, got[number][1], strict=True):
            assert np.array_equal(a.indptr, b.indptr)
            assert np.array_equal(a.indices, b.indices)
            assert np.array_equal(a.positions, b.positions)
    assert 1 <= len(shared._idle) <= 3
    other = shared.sample(jobs[0][0], 99)
    assert not np.array_equal(alone[0][1][1].positions, other[1][1].positions)


def test_an_open_hop_draws_the_same_and_numbers_nothing() -> None:
    indptr, indices = random_graph(150, 3000, 2)
    sampler = NeighborSampler(indptr, indices, (4, 3), positions=False)
    nodes, (outer, inner) = sampler.sample(np.arange(20), 7)
    kept, (opened, same) = sampler.sample(np.arange(20), 7, open_last=True)
    assert len(kept) == len(inner.degree) == len(opened.degree)
    assert np.array_equal(kept, nodes[: len(kept)])
    assert np.array_equal(opened.indices, nodes[outer.indices])
    assert np.array_equal(opened.indptr, outer.indptr)
    assert np.array_equal(opened.degree, outer.degree[: len(kept)])
    assert np.array_equal(same.indices, inner.indices)
    assert opened.positions is None


@pytest.mark.parametrize("open_last", [False, True])
@pytest.mark.parametrize("takes_all", [False, True])
def test_excluded_pairs_carry_no_messages_either_way(takes_all: bool, open_last: bool) -> None:
    indptr, indices = random_graph(60, 1500, 3)
    dst = np.repeat(np.arange(60), np.diff(indptr))
    chosen = np.random.default_rng(0).choice(len(indices), 20, replace=False)
    pairs = np.stack([indices[chosen].astype(np.int64), dst[chosen]])
    sampler = NeighborSampler(indptr, indices, (-1, -1) if takes_all else (9, 9), inverse_chances=True)
    local, seeds = sampler.number(pairs)
    assert (seeds[local] == pairs).all()
    nodes, layers = sampler.sample(seeds, 0, excluded=local, open_last=open_last)
    free = sampler.sample(seeds, 0, open_last=True)[1][1]
    banned = {(int(a), int(b)) for a, b in pairs.T} | {(int(b), int(a)) for a, b in pairs.T}
    dropped = 0
    stays = [pair not in banned for pair in zip(indices.tolist(), dst.tolist(), strict=True)]
    degree = np.bincount(dst[stays], minlength=60)
    for number, layer in enumerate(layers):
        assert (layer.degree == degree[nodes[: len(layer.degree)]]).all()  # drawn or not: a degree tells nothing either
        names = np.arange(60) if open_last and number == 0 else nodes
        targets = nodes[np.repeat(np.arange(len(layer.indptr) - 1), np.diff(layer.indptr))]
        kept = list(zip(names[layer.indices].tolist(), targets.tolist(), strict=True))
        assert not set(kept) & banned
        assert layer.indptr[-1] == len(layer.indices) == len(layer.positions) == len(layer.weight)
        assert (indices[layer.positions] == names[layer.indices]).all()
        if takes_all:
            every = {(int(s), int(d)) for d in set(targets.tolist()) for s in indices[indptr[d] : indptr[d + 1]]}
            assert set(kept) == every - banned
            dropped += len(every & banned)
    if takes_all:
        assert dropped >= 20
    else:  # what stays keeps its weight
        [inner] = layers[1:]
        before = dict(zip(free.positions.tolist(), free.weight.tolist(), strict=True))
        assert all(before[p] == w for p, w in zip(inner.positions.tolist(), inner.weight.tolist(), strict=True))


def test_negatives_are_neither_edges_nor_loops_and_cover_all_nodes() -> None:
    indptr, indices = random_graph(50, 700, 2)
    out = np.empty((5000, 2), np.int64)
    draw_negatives(indptr, indices, ANY, 9, 50, out, ALL_ASKED)
    assert (out[:, 0] != out[:, 1]).all()
    assert not any(find_edge(indptr, indices, a, b) >= 0 for a, b in out)
    assert set(out[:, 0]) == set(range(50))


@njit
def _draws(key: int, limit: int, places: Any, rests: Any, units: Any, bits: Any) -> None:
    for row in range(len(places)):
        state = stream(key, row)
        for column in range(places.shape[1]):
            state += STEP
            places[row, column], fraction = below_and_fraction(state, limit)
            rests[row, column] = np.float64(fraction) / 2.0**64
            units[row, column], bits[row, column] = unit(state), output(state)


@pytest.mark.parametrize("key", [0, 1, 2**63 - 1])
def test_random_numbers_are_uniform_and_independent(key: int) -> None:
    """Over streams, within streams, and in both numbers that come of one draw."""
    shape, limit = (2000, 16), 7
    places, rests, units = (np.empty(shape, kind) for kind in (np.int64, np.float64, np.float64))
    bits = np.empty(shape, np.uint64)
    _draws(key, limit, places, rests, units, bits)
    for column in (0, 15):
        assert scipy.stats.chisquare(np.bincount(places[:, column], minlength=limit)).pvalue > 1e-3
    for values in (rests, units):
        assert scipy.stats.chisquare(np.histogram(values, 20, (0, 1))[0]).pvalue > 1e-3
    together = np.histogram2d(places.ravel(), rests.ravel(), (limit, 10))[0]
    in_a_row = np.histogram2d(units[:, 0::2].ravel(), units[:, 1::2].ravel(), 8)[0]
    across = np.histogram2d(units[0::2].ravel(), units[1::2].ravel(), 8)[0]
    for table in (together, in_a_row, across):
        assert scipy.stats.chi2_contingency(table).pvalue > 1e-3
    ones = ((bits[:, :, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)).reshape(-1, 64)
    spread = 0.5 / np.sqrt(len(ones))
    assert np.abs(ones.mean(0) - 0.5).max() < 5 * spread
    correlation = np.corrcoef(ones.T) - np.eye(64)
    assert np.abs(correlation).max() < 6 / np.sqrt(len(ones))
