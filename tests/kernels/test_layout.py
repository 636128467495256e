"""Layouts' steps on points of two and three dimensions, and the curve of UMAP's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import curve_fit

from models.kernels.layout.move_points import GROUP, PointRows, layout_loss, move_points
from models.kernels.layout.objectives import LayoutObjective
from models.layout.objectives import umap_curve
from tasks.arrays import Array
from tests.kernels.plain_steps import reference_move_points

OBJECTIVES = [
    LayoutObjective("largevis", gamma=7.0, epsilon=0.1),
    LayoutObjective("umap", gamma=1.5, epsilon=1e-3, a=1.577, b=0.895),
    LayoutObjective("umap", a=0.6, b=1.3, epsilon=1e-3),
    LayoutObjective("tsne", odds=0.03),
]
EXACT = [LayoutObjective("largevis", gamma=7.0), LayoutObjective("umap", gamma=1.5, a=1.577, b=0.895), OBJECTIVES[3]]


def points(count: int, dim: int, seed: int = 1, stride: int = 0) -> PointRows:
    stride = stride or (2 if dim == 2 else 4)
    made = PointRows(np.full(count * stride, 99, np.float32), stride, dim)
    made.rows[:] = np.random.default_rng(seed).normal(size=(count, dim))
    return made


def samples(num_points: int, count: int, negatives: int, seed: int = 3) -> tuple[Array, Array]:
    """Pairs and negatives with repeated rows, some within a sample."""
    rng = np.random.default_rng(seed)
    pairs, others = rng.integers(num_points, size=(count, 2)), rng.integers(num_points, size=(count, negatives))
    if negatives:
        others[: count // 5, 0] = pairs[: count // 5, 1]
        others[: count // 7, -1] = pairs[: count // 7, 0]
    return pairs.astype(np.int32), others.astype(np.int32)


def check_steps(table: PointRows, count: int, negatives: int, objective: LayoutObjective, **options: Any) -> None:
    expected = table.rows.astype(np.float64)
    pairs, others = samples(61, count, negatives)
    move_points(table, table, *pairs.T, others, objective, **options)
    reference_move_points(expected, pairs, others, objective, **options)
    np.testing.assert_allclose(table.rows, expected, rtol=2e-4, atol=2e-4)
    assert (table.values.reshape(61, -1)[:, table.rows.shape[1] :] == 99).all()


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda one: f"{one.name}-{one.b}")
@pytest.mark.parametrize(("dim", "stride"), [(2, 2), (2, 16), pytest.param(3, 4, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("count", "negatives"), [(1, 5), (GROUP, 1), (151, 5), (37, 0), (70, 8)])
def test_steps_are_those_of_the_formula(
    objective: LayoutObjective, dim: int, stride: int, count: int, negatives: int
) -> None:
    check_steps(points(61, dim, stride=stride), count, negatives, objective, rate=0.02)


def test_steps_in_three_dimensions() -> None:
    check_steps(points(61, 3), 151, 5, OBJECTIVES[0], rate=0.02)


@pytest.mark.parametrize(("tails", "negatives"), [(False, False), (True, False), (False, True)])
def test_tails_and_negatives_may_stay(tails: bool, negatives: bool) -> None:
    stay = {"move_tails": tails, "move_negatives": negatives}
    check_steps(points(61, 2), 90, 5, OBJECTIVES[1], rate=0.1, most=0.3, **stay)


def bits(objective: LayoutObjective, dim: int, count: int, dtype: type = np.int32) -> bytes:
    table = points(1000, dim)
    pairs, others = (rows.astype(dtype) for rows in samples(1000, count, 5))
    move_points(table, table, *pairs.T, others, objective, rate=1.0)
    return table.rows.tobytes()


@pytest.mark.slow
def test_rows_by_large_numbers_are_the_same() -> None:
    assert bits(OBJECTIVES[0], 2, 151) == bits(OBJECTIVES[0], 2, 151, np.int64)


@pytest.mark.parametrize("objective", OBJECTIVES[1:], ids=lambda one: f"{one.name}-{one.b}")
def test_one_thread_gives_the_same_bits(objective: LayoutObjective) -> None:
    assert bits(objective, 2, 5000) == bits(objective, 2, 5000)


def test_rows_asked_for_ahead_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    for near in (0, 1 << 30):
        monkeypatch.setattr("models.kernels.layout.move_points._NEAR_BYTES", near)
        made.append(bits(OBJECTIVES[0], 3, 4001))
    assert made[0] == made[1]


def test_blocks_of_points_are_moved_as_one_table_is() -> None:
    whole = points(60, 3)
    own, others = PointRows(whole.values[:80].copy(), 4, 3), PointRows(whole.values[80:].copy(), 4, 3)
    rng = np.random.default_rng(2)
    sizes = (20, 99), (40, 99), (40, (99, 5))
    heads, tails, negatives = (rng.integers(most, size=size, dtype=np.int32) for most, size in sizes)
    move_points(own, others, heads, tails, negatives, OBJECTIVES[0], rate=0.1)
    move_points(whole, whole, heads, tails + np.int32(20), negatives + np.int32(20), OBJECTIVES[0], rate=0.1)
    np.testing.assert_array_equal(np.concatenate([own.rows, others.rows]), whole.rows)


@pytest.mark.parametrize("objective", EXACT, ids=lambda one: one.name)
@pytest.mark.parametrize("dim", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_steps_are_the_gradient_of_the_loss_by_torch(objective: LayoutObjective, dim: int) -> None:
    rows = np.random.default_rng(5).permutation(97).astype(np.int32)[:78].reshape(13, 6)
    pairs, others = rows[:, :2], rows[:, 2:]  # of one group that share no rows: steps are the summed loss's gradient
    table = points(97, dim)
    before = table.rows.copy()
    y = torch.tensor(before, dtype=torch.float64, requires_grad=True)
    near = (y[pairs[:, 0]] - y[pairs[:, 1]]).square().sum(-1)
    far = (y[pairs[:, :1]] - y[others]).square().sum(-1)
    if objective.name == "tsne":
        p_near, p_far = (1 / (1 + d) / (1 / (1 + d) + objective.odds) for d in (near, far))
    else:
        p_near, p_far = (1 / (1 + objective.a * d**objective.b) for d in (near, far))
    loss = -p_near.log().sum() - objective.gamma * (1 - p_far).log().sum()
    assert layout_loss(table, table, *pairs.T, others, objective) == pytest.approx(loss.item() / 13, rel=1e-9)
    loss.backward()
    move_points(table, table, *pairs.T, others, objective, rate=1.0, most=1e9)
    np.testing.assert_allclose(before - table.rows, y.grad.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("objective", [*OBJECTIVES, *EXACT], ids=lambda one: f"{one.name}-{one.b}-{one.epsilon}")
@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-4, 1e15])
def test_equal_and_extreme_points_stay_numbers(objective: LayoutObjective, scale: float) -> None:
    table = points(31, 2)
    table.rows[:] *= np.float32(scale)
    pairs, others = samples(31, 400, 5)
    before = table.rows.copy()
    move_points(table, table, *pairs.T, others, objective, rate=1.0)
    assert np.isfinite(table.rows).all()
    if scale == 0:
        np.testing.assert_array_equal(table.rows, before)


def test_numbers_that_are_none_pass_and_no_samples() -> None:
    table = points(31, 2)
    before, (pairs, others) = table.rows.copy(), samples(31, 400, 5)
    move_points(table, table, *pairs[:0].T, others[:0], EXACT[0], rate=1.0)
    np.testing.assert_array_equal(table.rows, before)
    table.rows[:3] = np.nan
    move_points(table, table, *pairs.T, others, OBJECTIVES[0], rate=1.0)
    assert np.isnan(table.rows).sum() > 6


def test_neighbours_come_together() -> None:
    """Two rings of points, each drawn to its next ones, part and get small within."""
    for objective in OBJECTIVES:
        rng = np.random.default_rng(0)
        table = PointRows.zeros(200, 2)
        table.rows[:] = rng.normal(size=(200, 2)) * 1e-2
        for number in range(60):
            heads = rng.integers(200, size=2000, dtype=np.int32)
            tails = heads // 100 * 100 + (heads + rng.integers(1, 4, size=2000, dtype=np.int32)) % 100
            negatives = rng.integers(200, size=(2000, 5), dtype=np.int32)
            move_points(table, table, heads, tails, negatives, objective, rate=0.5 * (1 - number / 60))
        near = np.linalg.norm(table.rows - np.roll(table.rows.reshape(2, 100, 2), 1, 1).reshape(-1, 2), axis=1)
        gaps = np.linalg.norm(table.rows[:, None] - table.rows, axis=-1)
        assert np.median(near) < 0.5 * np.median(gaps), objective


@pytest.mark.parametrize(
    ("min_dist", "spread"), [(0.1, 1.0), (0.0, 1.0), (0.5, 1.0), (0.99, 1.0), (0.2, 3.0), (0.001, 0.1)]
)
def test_umaps_curve_is_the_nearest_one(min_dist: float, spread: float) -> None:
    x = np.linspace(0, 3 * spread, 300)
    y = np.where(x < min_dist, 1, np.exp(-(x - min_dist) / spread))
    start = (spread**-2, 1.0)
    expected, _ = curve_fit(lambda x, a, b: 1 / (1 + a * x ** (2 * b)), x, y, p0=start, bounds=(0, np.inf))
    np.testing.assert_allclose(umap_curve(min_dist, spread), expected, rtol=2e-4)


def test_every_curve_is_found_and_the_usual_one_is_that_of_umaps_authors() -> None:
    assert umap_curve(0.1) == pytest.approx((1.5769434603, 0.8950608780), rel=1e-6)
    for near in np.linspace(0, 1, 21):
        assert np.isfinite(umap_curve(near)).all()
        assert min(umap_curve(near)) > 0


@pytest.mark.parametrize(
    ("min_dist", "spread"), [(-0.1, 1), (1.1, 1), (0.1, 0), (0.1, -1), (np.nan, 1), (0.1, np.inf), (0, np.nan)]
)
def test_distances_out_of_range_are_refused(min_dist: float, spread: float) -> None:
    with pytest.raises(ValueError, match="must be from 0 to spread="):
        umap_curve(min_dist, spread)
