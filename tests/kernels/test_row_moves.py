"""Rows of tables that are gathered, moved by their rules, and given the length 1, in memory and on a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from models.kernels.tables import device_tables
from models.kernels.tables.device_tables import DeviceTable
from models.kernels.tables.row_layout import Precision, RuleName, UpdateRule
from models.kernels.tables.row_moves import all_rows, gather_rows, move_rows, set_lengths
from models.kernels.tables.row_tables import RowTable
from tasks.arrays import Array

RULES: list[RuleName] = ["sgd", "momentum", "adagrad", "elementwise_adagrad", "adam"]
WIDTHS = [1, *(pytest.param(width, marks=pytest.mark.slow) for width in (2, 3)), 7, 33, 200, 500]


DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
on_each = pytest.mark.parametrize("on_device", [False, True])


def table(
    num_rows: int, width: int, precision: Precision = "float32", rule: UpdateRule | None = None, on_device: bool = False
) -> Any:
    made = RowTable.zeros(num_rows, width, precision, rule)
    made.write(slice(None), np.random.default_rng(1).normal(size=(num_rows, width)).astype(np.float32))
    return DeviceTable.of(made, DEVICE) if on_device else made


def numbers(made: RowTable | DeviceTable) -> Array:
    """All rows; what fills their lines is 0."""
    filling = made.values.reshape(-1, made.stride) if isinstance(made, RowTable) else made.values.cpu().float()
    assert not filling[:, made.width :].any()
    return all_rows(made).cpu().numpy()


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
            return np.asarray(g / np.sqrt(np.maximum(self.moment[row], 1e-300)))
        if rule.name == "adam":
            self.steps[row] += 1
            self.moment[row] = rule.decay * self.moment[row] + (1 - rule.decay) * g
            self.mean[row] = rule.second_decay * self.mean[row] + (1 - rule.second_decay) * square
            mean = self.mean[row] / (1 - rule.second_decay ** self.steps[row])
            moment = self.moment[row] / (1 - rule.decay ** self.steps[row])
            return np.asarray(moment / (np.sqrt(mean) + rule.epsilon))
        return g


@on_each
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("width", WIDTHS)
def test_rows_are_gathered(width: int, precision: Precision, dtype: Any, on_device: bool) -> None:
    made, rows = table(91, width, precision, on_device=on_device), drawn(91, 150, 3, dtype)
    gathered = gather_rows(made, rows)
    assert gathered.is_contiguous()
    assert np.array_equal(gathered.cpu().numpy(), made.read(rows))
    assert gather_rows(made, rows[:0]).shape == (0, width)
    assert np.array_equal(gather_rows(made, rows[::2]).cpu().numpy(), made.read(rows[::2]))
    gathered.zero_()
    all_rows(made).zero_()
    assert made.read(rows).any(), "copies"


@on_each
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("width", WIDTHS)
def test_steps_are_those_of_the_rule(
    width: int, rule: RuleName, on_device: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_tables, "_ROWS_AT_ONCE", 25)
    made = table(61, width, rule=UpdateRule(rule, decay=0.8, second_decay=0.95), on_device=on_device)
    expected = Moved(numbers(made), made.rule)
    for step in range(5):
        rows, moved = drawn(61, 50, step, np.int32 if step % 2 else np.int64), gradients(50, width, step)
        if step == 3:
            moved[:] = 0  # a rule that divides by what it remembers
        if step == 4:
            rows, moved = np.arange(61), gradients(61, width, step)  # a whole table, on a device some rows at a time
        move_rows(made, rows, moved.to(DEVICE) if on_device else moved, rate=0.1, noise=1)
        expected.step(rows, moved.numpy(), 0.1)
    np.testing.assert_allclose(numbers(made), expected.rows, rtol=2e-5, atol=2e-5)
    if on_device:
        back = table(61, width, rule=UpdateRule(rule))
        made.copy_to(back)
        assert np.array_equal(back.read(), numbers(made))


def test_gradients_of_a_row_are_summed_in_their_order() -> None:
    made, rows = table(3, 2), np.array([1, 0, 1, 1])
    large = torch.tensor([[3e7, 1.0], [1.0, 1.0], [-3e7, 2.0], [1.0, 3.0]])
    made.write(slice(None), np.zeros((3, 2), np.float32))
    move_rows(made, rows, large, rate=1.0, noise=1)
    assert made.read().tolist() == [[-1, -1], [-1, -6], [0, 0]], "the other way round 1 is lost beside 3e7"


@on_each
def test_no_rows_and_gradients_that_lie_apart(on_device: bool) -> None:
    made = table(20, 9, on_device=on_device)
    before, rows, moved = numbers(made), drawn(20, 13, 2), gradients(13, 18, 2).to(DEVICE if on_device else "cpu")
    move_rows(made, rows[:0], moved[:0, :9], rate=0.1, noise=1)
    set_lengths(made, rows[:0])
    assert np.array_equal(numbers(made), before)
    move_rows(made, rows, moved[:, ::2], rate=0.1, noise=1)
    expected = Moved(before, UpdateRule())
    expected.step(rows, moved[:, ::2].cpu().numpy(), 0.1)
    np.testing.assert_allclose(numbers(made), expected.rows, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("rule", "on_device"), [*((rule, False) for rule in RULES), ("sgd", True)])
def test_small_steps_reach_tables_of_16_bits(rule: RuleName, on_device: bool) -> None:
    """Steps that are far below bfloat16's resolution add up to what float32 makes of them; the noise decides."""
    rate = {"sgd": 1e-4, "momentum": 2e-5, "adagrad": 1e-3, "elementwise_adagrad": 1e-3, "adam": 1e-4}[rule]
    moved = gradients(40, 33, 1).to(DEVICE if on_device else "cpu")
    rows, results = drawn(8, 40, 2), []
    runs: list[tuple[Precision, int]] = [("float32", 1), ("bfloat16", 1), ("bfloat16", 1), ("bfloat16", 7001)]
    for precision, first in runs:
        made = table(8, 33, precision, UpdateRule(rule), on_device)
        before = numbers(made)
        for step in range(200):
            move_rows(made, rows, moved, rate, noise=first + 2 * step)
        results.append(numbers(made) - before)
    exact, rough, again, other = results
    assert float((exact * rough).sum() / (exact**2).sum()) == pytest.approx(1, abs=0.1)
    assert np.array_equal(rough, again)
    assert not np.array_equal(rough, other)


@on_each
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("width", WIDTHS)
def test_lengths(width: int, precision: Precision, on_device: bool) -> None:
    made = RowTable.zeros(30, width, precision)
    made.write(slice(None), np.random.default_rng(1).normal(size=(30, width)).astype(np.float32))
    made.write(slice(4, 5), np.zeros((1, width), np.float32))
    made.write(slice(5, 6), np.full((1, width), 1e15, np.float32))
    place: Any = DeviceTable.of(made, DEVICE) if on_device else made
    before, rows, moved = numbers(place), np.array([3, 5, 4, 3, 17], np.int32), [3, 5, 17]
    set_lengths(place, rows)
    expected = before.astype(np.float64)
    expected[moved] /= np.linalg.norm(expected[moved], axis=1, keepdims=True)
    np.testing.assert_allclose(numbers(place), expected, rtol=2**-8 if precision == "bfloat16" else 1e-6)
    assert np.array_equal(np.delete(numbers(place), moved, 0), np.delete(before, moved, 0))


def test_wrong_shapes() -> None:
    made, rows = table(5, 4), np.arange(3)
    for wrong in (torch.zeros(3, 5), torch.zeros(2, 4), torch.zeros(3, 4, dtype=torch.float64)):
        with pytest.raises(AssertionError):
            move_rows(made, rows, wrong, rate=0.1, noise=1)
    for call in (gather_rows, set_lengths):
        with pytest.raises(AssertionError):
            call(made, rows[None])
