"""Rows of tables that are gathered, moved by their rules, and given the length 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from models.kernels.tables.row_layout import Precision, RuleName, UpdateRule
from models.kernels.tables.row_moves import gather_rows, move_rows, set_lengths
from models.kernels.tables.row_tables import RowTable
from tasks.arrays import Array

RULES: list[RuleName] = ["sgd", "momentum", "adagrad", "elementwise_adagrad", "adam"]
WIDTHS = [1, *(pytest.param(width, marks=pytest.mark.slow) for width in (2, 3)), 7, 33, 200, 500]


def table(num_rows: int, width: int, precision: Precision = "float32", rule: UpdateRule | None = None) -> RowTable:
    made = RowTable.zeros(num_rows, width, precision, rule)
    made.write(slice(None), np.random.default_rng(1).normal(size=(num_rows, width)).astype(np.float32))
    return made


def drawn(num_rows: int, count: int, seed: int, dtype: Any = np.int64) -> Array:
    """Row numbers in no order, the first ones several times."""
    rows = np.random.default_rng(seed).integers(num_rows, size=count).astype(dtype)
    rows[count // 2 : count // 2 + count // 5] = rows[: count // 5]
    return rows


def gradients(count: int, width: int, seed: int) -> torch.Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed))


class Moved:
    """Rows in float64 that move one by one as `UpdateRule` says."""

    def __init__(self, rows: Array, rule: UpdateRule) -> None:
        self.rows, self.rule = rows.astype(np.float64), rule
        self.moment = np.zeros_like(self.rows)
        self.mean, self.steps = np.zeros(len(rows)), np.zeros(len(rows))

    def step(self, rows: Array, gradients: Array, rate: float) -> None:
        for row in np.unique(rows):
            self.rows[row] -= rate * self._step(row, gradients[rows == row].astype(np.float64).sum(0))

    def _step(self, row: Any, g: Array) -> Array:
        rule, square = self.rule, float((g**2).mean())
        if rule.name == "momentum":
            self.moment[row] = rule.decay * self.moment[row] + g
            return np.asarray(self.moment[row])
        if rule.name == "adagrad":
            self.mean[row] += square
            return np.asarray(g / (np.sqrt(self.mean[row]) + rule.epsilon))
        if rule.name == "elementwise_adagrad":
            self.moment[row] += g**2
            return np.asarray(g / np.sqrt(self.moment[row]))
        if rule.name == "adam":
            self.steps[row] += 1
            self.moment[row] = rule.decay * self.moment[row] + (1 - rule.decay) * g
            self.mean[row] = rule.second_decay * self.mean[row] + (1 - rule.second_decay) * square
            mean = self.mean[row] / (1 - rule.second_decay ** self.steps[row])
            moment = self.moment[row] / (1 - rule.decay ** self.steps[row])
            return np.asarray(moment / (np.sqrt(mean) + rule.epsilon))
        return g


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("width", WIDTHS)
def test_rows_are_gathered(width: int, precision: Precision, dtype: Any) -> None:
    made, rows = table(91, width, precision), drawn(91, 150, 3, dtype)
    found = gather_rows(made, rows)
    assert found.shape == (150, width)
    assert found.is_contiguous()
    assert np.array_equal(found.numpy(), made.read(rows))
    assert gather_rows(made, rows[:0]).shape == (0, width)
    assert np.array_equal(gather_rows(made, rows[::2]).numpy(), made.read(rows[::2]))
    found.zero_()
    assert made.read(rows).any(), "a copy"


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("width", WIDTHS)
def test_steps_are_those_of_the_rule(width: int, rule: RuleName) -> None:
    made = table(61, width, rule=UpdateRule(rule, decay=0.8, second_decay=0.95))
    expected = Moved(made.read(), made.rule)
    for step in range(4):
        rows, found = drawn(61, 50, step, np.int32 if step % 2 else np.int64), gradients(50, width, step)
        move_rows(made, rows, found, rate=0.1, noise=1)
        expected.step(rows, found.numpy(), 0.1)
    np.testing.assert_allclose(made.read(), expected.rows, rtol=2e-5, atol=2e-5)
    assert not made.values.reshape(61, -1)[:, width:].any()


def test_gradients_of_a_row_are_summed_in_their_order() -> None:
    made, rows = table(3, 2), np.array([1, 0, 1, 1])
    found = torch.tensor([[3e7, 1.0], [1.0, 1.0], [-3e7, 2.0], [1.0, 3.0]])
    made.write(slice(None), np.zeros((3, 2), np.float32))
    move_rows(made, rows, found, rate=1.0, noise=1)
    assert made.read().tolist() == [[-1, -1], [-1, -6], [0, 0]], "the other way round 1 is lost beside 3e7"


def test_no_rows_and_gradients_that_lie_apart() -> None:
    made = table(20, 9)
    before, rows, found = made.read(), drawn(20, 13, 2), gradients(13, 18, 2)
    move_rows(made, rows[:0], found[:0, :9], rate=0.1, noise=1)
    set_lengths(made, rows[:0])
    assert np.array_equal(made.read(), before)
    move_rows(made, rows, found[:, ::2], rate=0.1, noise=1)
    expected = Moved(before, UpdateRule())
    expected.step(rows, found[:, ::2].numpy(), 0.1)
    np.testing.assert_allclose(made.read(), expected.rows, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rule", RULES)
def test_small_steps_reach_tables_of_16_bits(rule: RuleName) -> None:
    """Steps that are far below bfloat16's resolution add up to what float32 makes of them; the noise decides."""
    rate = {"sgd": 1e-4, "momentum": 2e-5, "adagrad": 1e-3, "elementwise_adagrad": 1e-3, "adam": 1e-4}[rule]
    found = gradients(40, 33, 1)
    rows, results = drawn(8, 40, 2), []
    runs: list[tuple[Precision, int]] = [("float32", 1), ("bfloat16", 1), ("bfloat16", 1), ("bfloat16", 7001)]
    for precision, first in runs:
        made = table(8, 33, precision, UpdateRule(rule))
        before = made.read()
        for step in range(200):
            move_rows(made, rows, found, rate, noise=first + 2 * step)
        results.append(made.read() - before)
    exact, rough, again, other = results
    assert float((exact * rough).sum() / (exact**2).sum()) == pytest.approx(1, abs=0.1)
    assert np.array_equal(rough, again)
    assert not np.array_equal(rough, other)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("width", WIDTHS)
def test_lengths(width: int, precision: Precision) -> None:
    made = table(30, width, precision)
    made.write(slice(4, 5), np.zeros((1, width), np.float32))
    made.write(slice(5, 6), np.full((1, width), 1e15, np.float32))
    before, rows = made.read(), np.array([3, 5, 4, 3, 17], np.int32)
    set_lengths(made, rows)
    expected = before.astype(np.float64)
    moved = [3, 5, 17]
    expected[moved] /= np.linalg.norm(expected[moved], axis=1, keepdims=True)
    np.testing.assert_allclose(made.read(), expected, rtol=2**-8 if precision == "bfloat16" else 1e-6)
    assert np.array_equal(np.delete(made.read(), moved, 0), np.delete(before, moved, 0))


def test_wrong_shapes() -> None:
    made, rows = table(5, 4), np.arange(3)
    for wrong in (torch.zeros(3, 5), torch.zeros(2, 4), torch.zeros(3, 4, dtype=torch.float64)):
        with pytest.raises(AssertionError):
            move_rows(made, rows, wrong, rate=0.1, noise=1)
    with pytest.raises(AssertionError):
        gather_rows(made, rows[None])
    with pytest.raises(AssertionError):
        set_lengths(made, rows[None])
