"""Layouts' steps on points of two and three dimensions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from models.kernels.layout.loops import GROUP
from models.kernels.layout.move_points import PointRows, move_points
from models.kernels.layout.objectives import LayoutObjective
from models.kernels.layout.reference import layout_loss, reference_move_points
from tasks.arrays import Array

OBJECTIVES = [
    LayoutObjective("largevis", gamma=7.0, epsilon=0.1),
    LayoutObjective("umap", gamma=1.5, epsilon=1e-3, a=1.577, b=0.895),
    LayoutObjective("umap", a=0.6, b=1.3, epsilon=1e-3),
    LayoutObjective("tsne", odds=0.03),
]
EXACT = [
    LayoutObjective("largevis", gamma=7.0),
    LayoutObjective("umap", gamma=1.5, a=1.577, b=0.895),
    LayoutObjective("tsne", odds=0.03),
]


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


def fresh(num_points: int, count: int, negatives: int) -> tuple[Array, Array]:
    """Samples of one group that share no rows: the steps are then the gradient of their summed loss."""
    rows = (
        np.random.default_rng(5).permutation(num_points).astype(np.int32)[: count * (negatives + 2)].reshape(count, -1)
    )
    return rows[:, :2], rows[:, 2:]


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda one: f"{one.name}-{one.b}")
@pytest.mark.parametrize(("dim", "stride"), [(2, 2), (2, 16), pytest.param(3, 4, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("count", "negatives"), [(1, 5), (GROUP, 1), (151, 5), (37, 0), (70, 8)])
def test_steps_are_those_of_the_formula(
    objective: LayoutObjective, dim: int, stride: int, count: int, negatives: int
) -> None:
    table = points(61, dim, stride=stride)
    expected = table.rows.astype(np.float64)
    pairs, others = samples(61, count, negatives)
    move_points(table, table, pairs[:, 0], pairs[:, 1], others, objective, rate=0.02)
    reference_move_points(expected, pairs, others, objective, rate=0.02)
    np.testing.assert_allclose(table.rows, expected, rtol=2e-4, atol=2e-4)
    assert (table.values.reshape(61, stride)[:, dim:] == 99).all()


def test_steps_in_three_dimensions() -> None:
    test_steps_are_those_of_the_formula(OBJECTIVES[0], 3, 4, 151, 5)


@pytest.mark.slow
def test_rows_by_large_numbers_are_the_same() -> None:
    found = []
    for dtype in (np.int32, np.int64):
        table = points(61, 2)
        pairs, others = (rows.astype(dtype) for rows in samples(61, 151, 5))
        move_points(table, table, pairs[:, 0], pairs[:, 1], others, OBJECTIVES[0], rate=0.1)
        found.append(table.rows.tobytes())
    assert found[0] == found[1]


@pytest.mark.parametrize("moved", [(False, False), (True, False), (False, True)])
def test_tails_and_negatives_may_stay(moved: tuple[bool, bool]) -> None:
    table = points(61, 2)
    expected = table.rows.astype(np.float64)
    pairs, others = samples(61, 90, 5)
    stay = {"move_tails": moved[0], "move_negatives": moved[1]}
    move_points(table, table, pairs[:, 0], pairs[:, 1], others, OBJECTIVES[1], rate=0.1, most=0.3, **stay)
    reference_move_points(expected, pairs, others, OBJECTIVES[1], rate=0.1, most=0.3, **stay)
    np.testing.assert_allclose(table.rows, expected, rtol=2e-4, atol=2e-4)


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
    count, negatives = 13, 4
    pairs, others = fresh(97, count, negatives)
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
    assert layout_loss(table, table, *pairs.T, others, objective) == pytest.approx(loss.item() / count, rel=1e-9)
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


def test_numbers_that_are_none_pass() -> None:
    table = points(31, 2)
    table.rows[:3] = np.nan
    pairs, others = samples(31, 400, 5)
    move_points(table, table, *pairs.T, others, OBJECTIVES[0], rate=1.0)
    assert np.isnan(table.rows).sum() > 6


@pytest.mark.parametrize("objective", OBJECTIVES[1:], ids=lambda one: f"{one.name}-{one.b}")
def test_one_thread_gives_the_same_bits(objective: LayoutObjective) -> None:
    found = []
    for _ in range(2):
        table = points(1000, 2)
        pairs, others = samples(1000, 5000, 5)
        move_points(table, table, *pairs.T, others, objective, rate=1.0)
        found.append(table.rows.tobytes())
    assert found[0] == found[1]


def test_rows_asked_for_ahead_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for near in (0, 1 << 30):
        monkeypatch.setattr("models.kernels.layout.move_points._NEAR_BYTES", near)
        table = points(1000, 3)
        pairs, others = samples(1000, 4001, 5)
        move_points(table, table, *pairs.T, others, OBJECTIVES[0], rate=1.0)
        found.append(table.rows.tobytes())
    assert found[0] == found[1]


def test_no_samples() -> None:
    table = points(5, 2)
    before = table.rows.copy()
    move_points(
        table, table, np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros((0, 5), np.int32), EXACT[0], rate=1.0
    )
    np.testing.assert_array_equal(table.rows, before)


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
