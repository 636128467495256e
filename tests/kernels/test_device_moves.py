"""Rows of tables on a device move as those on the CPU do."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from models.kernels.tables import device_tables
from models.kernels.tables.device_tables import DeviceTable
from models.kernels.tables.row_layout import Precision, RuleName, UpdateRule
from models.kernels.tables.row_moves import all_rows, gather_rows, move_rows, set_lengths
from tests.kernels.test_row_moves import RULES, WIDTHS, drawn, gradients, table

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_rows_are_read(precision: Precision) -> None:
    own = table(50, 33, precision)
    copy, rows = DeviceTable.of(own, DEVICE), drawn(50, 20, 3)
    assert torch.equal(gather_rows(copy, rows).cpu(), gather_rows(own, rows))
    assert torch.equal(all_rows(copy).cpu(), all_rows(own))
    all_rows(copy).zero_()
    assert all_rows(copy).any(), "a copy"


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("width", WIDTHS)
def test_steps_are_those_of_the_cpu(width: int, rule: RuleName, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_tables, "_ROWS_AT_ONCE", 25)
    own = table(60, width, rule=UpdateRule(rule))
    copy, back = DeviceTable.of(own, DEVICE), table(60, width, rule=UpdateRule(rule))
    for number in range(4):
        rows, moved = drawn(60, 40, number, np.int32), gradients(40, width, number)
        if number == 3:  # a whole table, some rows at a time
            rows, moved = np.arange(60), gradients(60, width, number)
        if number == 2:
            moved[:] = 0  # a rule that divides by what it remembers
        move_rows(own, rows, moved, 0.1, 7 + 2 * number)
        move_rows(copy, rows, moved.to(DEVICE), 0.1, 7 + 2 * number)
    copy.copy_to(back)
    for name, array in own.arrays().items():
        torch.testing.assert_close(torch.from_numpy(back.arrays()[name]), torch.from_numpy(array), rtol=2e-5, atol=1e-5)


def test_no_rows() -> None:
    own = table(5, 8)
    copy = DeviceTable.of(own, DEVICE)
    move_rows(copy, np.empty(0, np.int64), torch.empty(0, 8, device=DEVICE), 1.0, 1)
    assert torch.equal(all_rows(copy).cpu(), all_rows(own))


def test_small_steps_reach_tables_of_16_bits() -> None:
    copy = DeviceTable.of(table(1, 500, "bfloat16"), DEVICE)
    before, rows = all_rows(copy), np.zeros(1, np.int64)
    for number in range(200):
        move_rows(copy, rows, torch.full((1, 500), 1e-4, device=DEVICE), -1.0, 2 * number + 1)
    assert float((all_rows(copy) - before).mean()) == pytest.approx(200 * 1e-4, rel=0.05)
    assert not copy.values[:, 500:].any()


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_lengths(precision: Precision) -> None:
    own = table(30, 33, precision)
    own.write(slice(4, 5), np.zeros((1, 33), np.float32))
    copy, rows = DeviceTable.of(own, DEVICE), np.array([3, 4, 9, 3])
    set_lengths(own, rows)
    set_lengths(copy, rows)
    tolerance = 1e-6 if precision == "float32" else 1e-2
    torch.testing.assert_close(all_rows(copy).cpu(), all_rows(own), rtol=tolerance, atol=tolerance)
