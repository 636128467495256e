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
