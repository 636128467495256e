"""`RowTable`s on a device: the same rows, with the same padding, as tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.kernels.tables.row_layout import UpdateRule
from models.kernels.tables.row_tables import RowTable


@dataclass(frozen=True)
class DeviceTable:
    """Rows of numbers, and what their rule remembers of each. Not yet run on a GPU."""

    values: Tensor
    """float32 or bfloat16 (num_rows, stride). Columns from `width` on are 0 and stay so."""
    width: int
    rule: UpdateRule
    moment: Tensor | None
    """float32 (num_rows, stride)."""
    scalars: Tensor | None
    """float32 (num_rows, 2)."""

    @classmethod
    def of(cls, table: RowTable, device: torch.device) -> DeviceTable:
        """Copy a table to a device."""
        # A copy on the CPU too, where `to` would return the table's own memory.
        parts = {name: _tensor(array).to(device, copy=True) for name, array in table.arrays().items()}
        rows = {name: part.view(table.num_rows, -1) for name, part in parts.items()}
        return cls(rows["values"], table.width, table.rule, rows.get("moment"), rows.get("scalars"))

    def copy_to(self, table: RowTable) -> None:
        """Write the rows into the table that they came from."""
        arrays = {"values": self.values, "moment": self.moment, "scalars": self.scalars}
        for name, array in table.arrays().items():
            part = arrays[name]
            assert part is not None
            _tensor(array).copy_(part.view(-1))

    def read(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        """Return rows, as `RowTable.read` does: float32 (..., width) on the CPU."""
        values = self.values[torch.from_numpy(rows.astype(np.int64)).to(self.values.device)]
        return np.asarray(values[..., : self.width].float().cpu().numpy())


def _tensor(array: NDArray[Any]) -> Tensor:
    """Return a view of an array, bfloat16 where it holds uint16."""
    if array.dtype == np.uint16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


_LOW_BITS = 0xFFFF
"""What bfloat16 has not of a float32."""
_ROWS_AT_ONCE = 1 << 16
"""Where a whole table moves: what that takes beside it is bounded."""


def device_rows(table: DeviceTable, rows: NDArray[Any]) -> Tensor:
    """Return rows (n,) as float32 (n, width)."""
    return table.values[_on(table, rows), : table.width].float()


def move_device_rows(table: DeviceTable, rows: NDArray[Any], gradients: Tensor, rate: float, noise: int) -> None:
    """Move each of the rows (n,) once, by the sum of its gradients (n, width), as the table's rule says."""
    count = len(table.values)
    if len(rows) == count and np.array_equal(rows, np.arange(count)):
        for low in range(0, count, _ROWS_AT_ONCE):
            part = slice(low, min(count, low + _ROWS_AT_ONCE))
            _move(table, part, _padded(table, gradients[part]), rate, noise + 2 * low)
        return
    distinct, places = np.unique(rows, return_inverse=True)
    summed = _padded(table, gradients.new_zeros(len(distinct), table.width))
    summed[:, : table.width].index_add_(0, _on(table, places.reshape(-1)), gradients)
    _move(table, _on(table, distinct), summed, rate, noise)


def _padded(table: DeviceTable, gradients: Tensor) -> Tensor:
    """Return gradients (n, stride), zeros behind the last column."""
    return torch.nn.functional.pad(gradients, (0, table.values.shape[1] - table.width))


def _move(table: DeviceTable, own: Tensor | slice, summed: Tensor, rate: float, noise: int) -> None:
    step = _step(table, own, summed) * -rate
    table.values[own] = _rounded(table.values[own].float() + step, table.values.dtype, noise)


def _step(table: DeviceTable, own: Tensor | slice, summed: Tensor) -> Tensor:
    """Return what rows move by at a rate of 1, and remember what the rule remembers: see `UpdateRule`."""
    rule, moment, scalars = table.rule, table.moment, table.scalars
    if rule.name == "sgd":
        return summed
    if rule.name == "elementwise_adagrad":
        assert moment is not None
        squares = moment[own] + summed.square()
        moment[own] = squares
        return torch.where(squares > 0, summed * squares.clamp_min(torch.finfo(torch.float32).tiny).rsqrt(), 0.0)
    if rule.name == "momentum":
        assert moment is not None
        moved = rule.decay * moment[own] + summed
        moment[own] = moved
        return moved
    assert scalars is not None
    mean = summed.square().sum(1) / table.width
    if rule.name == "adagrad":
        scalars[own, 0] += mean
        return summed / (scalars[own, 0].sqrt() + rule.epsilon)[:, None]
    assert moment is not None
    scalars[own, 0] = rule.second_decay * scalars[own, 0] + (1 - rule.second_decay) * mean
    scalars[own, 1] += 1
    moved = rule.decay * moment[own] + (1 - rule.decay) * summed
    moment[own] = moved
    steps = scalars[own, 1]
    second = scalars[own, 0] / (1 - rule.second_decay**steps)
    return moved / ((1 - rule.decay**steps) * (second.sqrt() + rule.epsilon))[:, None]


def _rounded(numbers: Tensor, dtype: torch.dtype, noise: int) -> Tensor:
    """Return float32 numbers as bfloat16, up or down by chance and right on average."""
    if dtype == torch.float32:
        return numbers
    generator = torch.Generator(numbers.device).manual_seed(noise & (2**63 - 1))
    bits = numbers.view(torch.int32)
    drawn = torch.randint(_LOW_BITS + 1, bits.shape, generator=generator, device=bits.device, dtype=torch.int32)
    drawn[numbers == 0] = 0  # padding stays 0
    return ((bits + drawn) & ~_LOW_BITS).view(torch.float32).to(dtype)


def set_device_lengths(table: DeviceTable, rows: NDArray[Any]) -> None:
    """Give rows the length 1; rows of zeros stay."""
    distinct = _on(table, np.unique(rows))
    before = table.values[distinct].float()
    lengths = before.norm(dim=1, keepdim=True)
    table.values[distinct] = torch.where(lengths > 0, before / lengths, before).to(table.values.dtype)


def _on(table: DeviceTable, numbers: NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(numbers, np.int64)).to(table.values.device, non_blocking=True)
