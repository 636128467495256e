"""Walks, random edges, and pairs of nodes that are near on walks."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numba import njit

from tasks.arrays import Array
from tasks.sampling.walks.biased_loops import SPAN, _bit, _patient_step, coin_limits, is_member, signatures
from tasks.sampling.walks.random_walks import Walks, expected_pairs, most_pairs, walk_pairs
from tests.sampling.test_edge_draws import expect_counts

Csr = tuple[Array, Array]


def csr(edges: list[tuple[int, int]], num_nodes: int) -> Csr:
    rows, columns = np.array(sorted(edges)).T
    indptr = np.zeros(num_nodes + 1, np.int64)
    indptr[1:] = np.bincount(rows, minlength=num_nodes).cumsum()
    return indptr, columns.astype(np.int32)


def random_csr(num_nodes: int, degree: int, seed: int = 0) -> Csr:
    """A symmetric graph; its last node has no edge."""
    pairs = np.random.default_rng(seed).integers(num_nodes - 1, size=(num_nodes * degree // 2, 2))
    edges = {(int(u), int(v)) for u, v in pairs if u != v}
    return csr(sorted(edges | {(v, u) for u, v in edges}), num_nodes)


def walk(graph: Csr, count: int, length: int, **options: Any) -> Array:
    tokens = np.empty((count, length), np.int32)
    Walks(*graph, length=length, **{"key": 5, **options}).fill(0, tokens)
    return tokens


def nodes(tokens: Array) -> Array:
    return np.where(tokens < 0, ~tokens, tokens)


def edges_of(graph: Csr) -> set[tuple[int, int]]:
    indptr, indices = graph
    return set(zip(np.repeat(np.arange(len(indptr) - 1), np.diff(indptr)).tolist(), indices.tolist(), strict=True))


@pytest.mark.parametrize("options", [{}, {"by_degree": True}, {"p": 4.0, "q": 2.0}, {"p": 0.25, "q": 4.0}])
def test_walks_follow_edges(options: dict[str, Any]) -> None:
    graph = random_csr(50, 6)
    tokens = walk(graph, 101, 17, **options)
    assert (tokens[:, 0] < 0).all()
    assert (tokens[:, 1:] >= 0).all()
    steps = nodes(tokens)
    assert set(zip(steps[:, :-1].ravel().tolist(), steps[:, 1:].ravel().tolist(), strict=True)) <= edges_of(graph)


@pytest.mark.parametrize("options", [{}, {"by_degree": True}, {"p": 4.0, "q": 2.0}])
def test_a_walk_depends_on_its_number_alone(options: dict[str, Any]) -> None:
    graph = random_csr(300, 8)
    walks = Walks(*graph, key=5, length=9, **options)
    together, apart = np.empty((70, 9), np.int32), np.empty((70, 9), np.int32)
    walks.fill(1000, together)
    for first, last in ((0, 1), (1, 34), (34, 70)):
        walks.fill(1000 + first, apart[first:last])
    assert (together == apart).all()


def test_every_round_begins_once_at_every_node_that_has_edges() -> None:
    graph = random_csr(60, 5)
    begins = np.flatnonzero(np.diff(graph[0]))
    starts = nodes(walk(graph, 3 * len(begins), 2)[:, 0]).reshape(3, -1)
    assert (np.sort(starts, 1) == begins).all()
    assert (starts[0] != starts[1]).any()


def test_starts_and_steps_by_degree_are_uniform_edges() -> None:
    graph = random_csr(20, 5)
    steps = nodes(walk(graph, 200_000, 2, by_degree=True))
    walked = np.bincount(steps[:, 0].astype(np.int64) * 20 + steps[:, 1], minlength=400)
    drawn = np.empty((2, 200_000), np.int32)
    Walks(*graph, key=8, length=2, by_degree=True).fill_edges(0, drawn[0], drawn[1])
    sampled = np.bincount(drawn[0].astype(np.int64) * 20 + drawn[1], minlength=400)
    shares = np.zeros(400)
    for u, v in edges_of(graph):
        shares[20 * u + v] = 1 / len(edges_of(graph))
    expect_counts(walked, shares)
    expect_counts(sampled, shares)


def test_weighted_edges() -> None:
    graph = csr([(0, 1), (0, 2), (1, 2), (2, 0), (3, 0)], 4)
    weight = np.array([1, 3, 2, 4, 0], np.float32)
    drawn = np.empty((2, 100_000), np.int32)
    Walks(*graph, key=8, length=2, by_degree=True, weight=weight).fill_edges(7, drawn[0], drawn[1])
    counts = np.bincount(drawn[0] * 4 + drawn[1], minlength=16)
    shares = np.zeros(16)
    shares[[1, 2, 6, 8]] = 0.1, 0.3, 0.2, 0.4
    expect_counts(counts, shares)


@pytest.mark.parametrize(("p", "q"), [(4.0, 2.0), (0.25, 4.0), (1.0, 0.5), (0.5, 1.0)])
@pytest.mark.parametrize("weighted", [False, True])
def test_steps_of_second_order(p: float, q: float, weighted: bool) -> None:
    """From 0 to 1: then back to 0, to 2 (which 0 has an edge to), or to 3 and 4 (which it has not)."""
    undirected = [(0, 1), (0, 2), (1, 2), (1, 3), (1, 4)]
    graph = csr(undirected + [(v, u) for u, v in undirected], 5)
    weight = np.ones(len(graph[1]), np.float32)
    row = slice(graph[0][1], graph[0][2])  # 1's: to 0, 2, 3, 4
    if weighted:
        weight[row] = [1, 2, 3, 0.5]
    steps = nodes(walk(graph, 300_000, 3, p=p, q=q, weight=weight if weighted else None))
    third = steps[(steps[:, 0] == 0) & (steps[:, 1] == 1), 2]
    expected = weight[row].astype(np.float64) * [1 / p, 1, 1 / q, 1 / q]
    expect_counts(np.bincount(third, minlength=5)[[0, 2, 3, 4]], expected / expected.sum())


def directed(known: int) -> Csr:
    """Node 0 has edges to 1, 2, 3 and so many others; 1 to 3 have some to these, to 0 and to others."""
    rng = np.random.default_rng(known)
    others = rng.permutation(np.arange(4, 400))
    edges = {(0, v) for v in (1, 2, 3, *others[:known].tolist())}
    for v in (1, 2, 3):
        edges |= {(v, 0), (v, v % 3 + 1)}
        edges |= {(v, int(y)) for y in (*rng.choice(others[:known], 8, replace=False), *rng.choice(others[known:], 20))}
    return csr(sorted(edges | {(int(y), 0) for y in others[known::2]}), 400)


@pytest.mark.parametrize(("p", "q"), [(4.0, 2.0), (0.25, 0.25), (4.0, 0.5), (0.5, 4.0)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("known", [10, 40, 300])
def test_steps_of_second_order_over_directed_edges(p: float, q: float, weighted: bool, known: int) -> None:
    """Whether signatures have few bits, many or all, and whatever edges lead back."""
    indptr, indices = directed(known)
    weight = np.random.default_rng(1).random(len(indices)).astype(np.float32) + np.float32(0.1)
    weight[1 : len(indices) : 2] *= 3
    weight[:3] = known  # more walks go from 0 to 1, 2 and 3
    kinds = {"p": p, "q": q, "weight": weight if weighted else None}
    steps = walk((indptr, indices), 1_000_000, 3, by_degree=True, **kinds)
    near = set(indices[indptr[0] : indptr[1]].tolist())
    for v in (1, 2, 3):
        row = slice(indptr[v], indptr[v + 1])
        bias = np.array([1 / p if y == 0 else 1 if y in near else 1 / q for y in indices[row].tolist()])
        expected = bias * (weight[row] if weighted else 1)
        third = steps[(steps[:, 0] == ~0) & (steps[:, 1] == v), 2]
        assert len(third) > 1000
        expect_counts(np.bincount(third, minlength=400)[indices[row]], expected / expected.sum())


@pytest.mark.parametrize("options", [{"p": 4.0, "q": 2.0}, {"p": 0.3, "q": 0.2}, {"p": 1e4, "q": 1e4}])
@pytest.mark.parametrize("weighted", [False, True])
def test_biased_walks_do_not_depend_on_those_beside_them(options: dict[str, Any], weighted: bool) -> None:
    """Walks that take turns end, begin anew, and are drawn from all edges, at different times."""
    graph = csr([(u, v) for u, v in edges_of(random_csr(200, 12)) if u % 9], 200)
    weight = np.random.default_rng(2).random(len(graph[1])).astype(np.float32) if weighted else None
    walks = Walks(*graph, key=5, length=9, weight=weight, **options)
    together, apart = np.empty((500, 9), np.int32), np.empty((500, 9), np.int32)
    walks.fill(70, together)
    for first, last in ((0, 1), (1, 98), (98, 300), (300, 500)):
        walks.fill(70 + first, apart[first:last])
    assert (together == apart).all()
    assert (together[:, 1:] < 0).any()


def test_searches_that_find_nothing_count_as_refusals() -> None:
    """Signatures have all bits, and no step is back or near: a walk without patience would not end."""
    circle = csr([(u, v) for u in range(600) for v in range((u + 1) % 3, 600, 3)], 600)
    assert (signatures(*circle) == np.uint64(2**64 - 1)).all()
    steps = nodes(walk(circle, 2000, 21, p=1e9, q=1e9))
    assert ((steps[:, 1:] - steps[:, :-1]) % 3 == 1).all()
    expect_counts(np.bincount(steps[:, 20], minlength=600), np.full(600, 1 / 600))


def test_signatures_have_the_bits_of_all_neighbours() -> None:
    indptr, indices = random_csr(300, 8)
    bits = np.array([_bit_of(v) for v in range(300)])
    assert np.bincount(bits.astype(np.int64), minlength=64).min() > 0
    for v, found in enumerate(signatures(indptr, indices).tolist()):
        assert found == sum({1 << int(bits[y]) for y in indices[indptr[v] : indptr[v + 1]]})
    walks = {p: Walks(indptr, indices, key=1, length=3, p=p) for p in (1.0, 2.0)}
    assert walks[1.0].signatures is None
    assert walks[2.0].signatures is not None


@njit
def _bit_of(node):  # type: ignore[no-untyped-def]
    return _bit(node)


def test_limits_of_coins() -> None:
    assert coin_limits(0.25, 0.5).tolist() == [2**62 - 1, 2**64 - 1, 2**63 - 1]
    assert coin_limits(0.5, 4.0).tolist() == [2**61 - 1, 2**62 - 1, 2**64 - 1]
    assert coin_limits(1e-30, 1e30).tolist() == [0, 0, 2**64 - 1]


@pytest.mark.parametrize(("p", "q"), [(1e-9, 1.0), (1e9, 1e9), (1.0, 1e-9)])
@pytest.mark.parametrize("weighted", [False, True])
def test_steps_that_are_refused_nearly_always(p: float, q: float, weighted: bool) -> None:
    """Everybody knows everybody: a walk goes back, or goes where the node before has an edge too, or has to."""
    everybody = csr([(u, v) for u in range(6) for v in range(6) if u != v], 6)
    weight = np.arange(1, len(everybody[1]) + 1, dtype=np.float32) if weighted else None
    steps = nodes(walk(everybody, 200, 30, p=p, q=q, weight=weight))
    is_back = steps[:, 2:] == steps[:, :-2]
    if p < 1:
        assert is_back.all()
    elif p > 1:
        assert not is_back.any()
    else:
        assert 0.1 < is_back.mean() < 0.3


@pytest.mark.parametrize("weighted", [False, True])
def test_steps_drawn_from_all_edges_are_those_of_the_formula(weighted: bool) -> None:
    graph = random_csr(40, 8, 3)
    weight = np.random.default_rng(1).random(len(graph[1])).astype(np.float32) if weighted else None
    found, (indptr, indices) = np.zeros(40), graph
    before, v, back, out = 3, int(indices[indptr[3]]), 0.25, 3.0
    for number in range(20_000):
        edge = _patient_step(indptr, indices, weight, v, before, back, out, (number + 1) / 20_000)
        found[indices[edge]] += 1
    known = set(indices[indptr[before] : indptr[before + 1]].tolist())
    share = np.zeros(40)
    for edge in range(indptr[v], indptr[v + 1]):
        y = int(indices[edge])
        bias = back if y == before else 1.0 if y in known else out
        share[y] = bias * (1 if weight is None else weight[edge])
    np.testing.assert_allclose(found / 20_000, share / share.sum(), atol=2e-4)


def test_a_walk_begins_anew_where_it_can_go_no_further() -> None:
    graph = csr([(0, 1), (1, 2), (3, 2)], 5)  # 2 and 4 have no out-edge
    tokens = walk(graph, 200, 7)
    for row in tokens.tolist():
        for before, here in itertools.pairwise(row):
            node = before if before >= 0 else ~before
            if node == 2:
                assert ~here in (0, 1, 3)
            else:
                assert (node, here) in {(0, 1), (1, 2), (3, 2)}


def test_edges_of_weight_0_are_no_edges() -> None:
    graph = csr([(0, 1), (1, 0), (1, 2)], 3)
    tokens = walk(graph, 100, 6, weight=np.array([1, 0, 2], np.float32))
    assert set(map(tuple, nodes(tokens)[:, :2].tolist())) <= {(0, 1), (1, 2)}
    with pytest.raises(ValueError, match="nowhere to walk"):
        walk(graph, 1, 2, weight=np.zeros(3, np.float32))


def test_nowhere_to_walk() -> None:
    with pytest.raises(ValueError, match="no node has an out-edge"):
        Walks(np.zeros(4, np.int64), np.empty(0, np.int32), key=1, length=3)


def brute_force(tokens: Array, window: int, forward: bool) -> list[tuple[int, int]]:
    found = []
    for row in tokens.tolist():
        for i in range(len(row)):
            for j in range(max(0, i - window), min(len(row), i + window + 1)):
                apart = any(token < 0 for token in row[min(i, j) + 1 : max(i, j) + 1])
                if j != i and not apart and (j > i or not forward):
                    found.append(tuple(token if token >= 0 else ~token for token in (row[i], row[j])))
    return found


@pytest.mark.parametrize("forward", [False, True])
@pytest.mark.parametrize("window", [1, 3, 20])
def test_pairs_within_a_window(window: int, forward: bool) -> None:
    tokens = walk(csr([(0, 1), (1, 2), (2, 0), (2, 3), (4, 3)], 6), 30, 11)  # some begin anew
    assert (tokens[:, 1:] < 0).any()
    centres, contexts = walk_pairs(tokens, window, forward=forward, shrink=False, key=1, first=0)
    assert list(zip(centres.tolist(), contexts.tolist(), strict=True)) == brute_force(tokens, window, forward)
    assert len(centres) <= 30 * most_pairs(11, window, forward)
    whole = walk(random_csr(20, 5), 10, 11)
    centres, _ = walk_pairs(whole, window, forward=forward, shrink=False, key=1, first=0)
    assert len(centres) == 10 * most_pairs(11, window, forward)
    assert len(centres) == 10 * expected_pairs(11, window, forward, shrink=False)


def test_windows_of_their_own() -> None:
    """A centre takes contexts at a distance d with probability (window - d + 1) / window."""
    tokens = walk(random_csr(50, 8), 4000, 20)
    centres, contexts = walk_pairs(tokens, 4, forward=True, shrink=True, key=3, first=0)
    again = walk_pairs(tokens[1000:], 4, forward=True, shrink=True, key=3, first=1000)
    assert (centres[-len(again[0]) :] == again[0]).all()
    assert (contexts[-len(again[1]) :] == again[1]).all()
    assert len(centres) == pytest.approx(4000 * expected_pairs(20, 4, forward=True, shrink=True), rel=0.01)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("size", [1, SPAN - 1, SPAN, 3 * SPAN + 1, 1000])
def test_members_of_a_list(dtype: Any, size: int) -> None:
    """Neighbours of other nodes lie before and after a list and do not count."""
    rng = np.random.default_rng(size)
    array = np.sort(rng.integers(2 * size, size=size)).astype(dtype)
    for _ in range(200):
        low, high = sorted(rng.integers(size + 1, size=2).tolist())
        number = int(rng.integers(-1, 2 * size + 1))
        assert _is_member(array, low, high, number) == (number in array[low:high])


@njit
def _is_member(array, low, high, number):  # type: ignore[no-untyped-def]
    return is_member(array, low, high, number)
