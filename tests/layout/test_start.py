"""Starts of layouts, and points without an edge around the others."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.csgraph import shortest_path

from models.layout.configs import forces_of
from tasks.arrays import Array
from tasks.layout.quality.measure import measure_layout
from tasks.layout.start import coarse_start, is_mesh, pivot_distances, put_around


def csr(matrix: sp.spmatrix) -> tuple[Array, Array]:
    matrix = sp.csr_matrix(matrix)
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)


def grid(width: int, height: int) -> tuple[Array, Array]:
    lines = [sp.diags([np.ones(side - 1)] * 2, [-1, 1]) for side in (height, width)]
    return csr(sp.kron(lines[0], sp.eye(width)) + sp.kron(sp.eye(height), lines[1]))


def mean_square(found: Array, edges: tuple[Array, Array]) -> float:
    sources = np.repeat(np.arange(len(found)), np.diff(edges[0]))
    return float(np.square(found[sources] - found[edges[1]]).sum(axis=1).mean())


@pytest.mark.parametrize("dim", [2, 3])
def test_a_grid_is_unfolded_whatever_the_order_of_its_nodes(dim: int) -> None:
    order = np.random.default_rng(0).permutation(600)
    matrix = sp.csr_matrix((np.ones(len(grid(30, 20)[1])), *grid(30, 20)[::-1]))[order][:, order]
    edges = csr(matrix)
    found = coarse_start(*edges, dim, threads=2)
    assert found.shape == (600, dim)
    assert found.dtype == np.float32
    assert mean_square(found, edges) == pytest.approx(1, rel=1e-3)
    measures, _ = measure_layout(found, edges=edges)
    assert measures["stress"] < 0.06
    assert measures["stretched_edges"] == 0
    np.testing.assert_array_equal(found, coarse_start(*edges, dim, threads=1))
    assert (found != coarse_start(*edges, dim, seed=1)).any()


def test_distances_are_those_of_shortest_paths_from_far_nodes() -> None:
    edges = grid(12, 9)
    nodes = np.arange(108)
    found = pivot_distances(*edges, nodes, 7, 30)
    every = shortest_path(sp.csr_matrix((np.ones(len(edges[1])), *edges[::-1])), unweighted=True)
    pivots = [int(np.flatnonzero((every == row).all(axis=1))[0]) for row in found]
    assert pivots[0] == 30
    for i in range(1, 4):
        nearest = every[pivots[:i]].min(axis=0)
        assert nearest[pivots[i]] == nearest.max()
    assert len(set(pivots)) == 7


def test_components_stand_beside_each_other_with_room_for_their_nodes() -> None:
    parts = [sp.csr_matrix((np.ones(len(e[1])), *e[::-1])) for e in (grid(20, 20), grid(10, 12), grid(3, 1))]
    edges = csr(sp.block_diag([*parts, sp.csr_matrix((9, 9))]))
    found = coarse_start(*edges)
    bounds = np.cumsum([0, 400, 120, 3, *[1] * 9])
    boxes = [(found[a:b].min(axis=0), found[a:b].max(axis=0)) for a, b in itertools.pairwise(bounds)]
    for i, (low, high) in enumerate(boxes):
        for other_low, other_high in boxes[:i]:
            assert (low >= other_high).any() or (high <= other_low).any()
    assert np.ptp(found[:400], axis=0).max() / np.ptp(found[400:520], axis=0).max() == pytest.approx(
        np.sqrt(400 / 120), rel=1e-3
    )


@pytest.mark.parametrize("count", [0, 1, 2, 3, 30])
def test_few_nodes_and_graphs_without_edges_get_places(count: int) -> None:
    empty = coarse_start(np.zeros(count + 1, np.int64), np.zeros(0, np.int32))
    assert empty.shape == (count, 2)
    assert np.isfinite(empty).all()
    full = csr(np.ones((count, count)) - np.eye(count)) if count else (np.zeros(1, np.int64), np.zeros(0, np.int32))
    found = coarse_start(*full, 3)
    assert found.shape == (count, 3)
    assert np.isfinite(found).all()
    loops = np.arange(count + 1), np.arange(count, dtype=np.int32)
    assert np.isfinite(coarse_start(*loops)).all()


def test_a_mesh_is_told_from_a_network() -> None:
    rng = np.random.default_rng(0)
    assert is_mesh(*grid(60, 50))
    ends = rng.integers(3000, size=(2, 9000))
    network = sp.csr_matrix((np.ones(9000), ends), (3000, 3000))
    assert not is_mesh(*csr(network + network.T))
    assert not is_mesh(*csr(sp.csr_matrix((4, 4))))
    assert not is_mesh(np.zeros(1, np.int64), np.zeros(0, np.int32))


def test_forces_reach_as_far_as_they_are_told() -> None:
    forces = forces_of(3000, 5, 4000)
    assert forces.gamma == pytest.approx(4000 / 15_000)
    assert forces_of(3000, 5, 4).edge_length < forces.edge_length
    assert forces_of(3000, 5, 7 * 5 * 3000).gamma == pytest.approx(7)
    assert forces_of(30, 5, 1e12).epsilon == 0.1


@pytest.mark.parametrize("dim", [2, 3])
def test_lonely_points_lie_around_all_others(dim: int) -> None:
    rng = np.random.default_rng(0)
    points = (5 * rng.standard_normal((501, dim)) + 100).astype(np.float32)
    alone = rng.random(501) < 0.3
    before = points.copy()
    put_around(points, alone, 7)
    np.testing.assert_array_equal(points[~alone], before[~alone])
    distance = np.linalg.norm(points - np.median(before[~alone], axis=0), axis=1)
    reach = np.quantile(distance[~alone], 0.99)
    assert distance[alone].min() >= 1.099 * reach
    assert distance[alone].max() <= 1.201 * reach
    sides = np.sign(points[alone] - np.median(before[~alone], axis=0)).mean(0)
    assert np.abs(sides).max() < 0.5
    again = before.copy()
    put_around(again, alone, 7)
    np.testing.assert_array_equal(again, points)


def test_directions_can_stay() -> None:
    rng = np.random.default_rng(0)
    points = rng.standard_normal((101, 2)).astype(np.float32)
    alone = np.arange(101) < 20
    middle = np.median(points[~alone], axis=0)
    points[0] = middle  # no direction to keep: one is drawn
    before = points.copy()
    put_around(points, alone, 1, keep_directions=True)
    for kept, moved in zip(before[1:20] - middle, points[1:20] - middle, strict=True):
        np.testing.assert_allclose(moved / np.linalg.norm(moved), kept / np.linalg.norm(kept), atol=1e-5)
    assert np.linalg.norm(points[0] - middle) > 1


def test_there_may_be_none_or_nothing_else() -> None:
    for alone in (np.zeros(4, bool), np.ones(4, bool)):
        points = np.arange(8, dtype=np.float32).reshape(4, 2)
        put_around(points, alone, 0)
        np.testing.assert_array_equal(points, np.arange(8).reshape(4, 2))
    points = np.ones((3, 2), np.float32)
    put_around(points, np.array([True, False, False]), 0)  # the others at one place
    assert np.linalg.norm(points[0] - 1) > 1
