"""Tables of rows that kernels read and change at random: no row is on a line too many, memory is in large pages."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from models.kernels.tables.row_layout import Precision, UpdateRule, row_stride

_HUGE_PAGE = 1 << 21
_ROWS_A_DRAW = 4096
_ITEMS: dict[str, Any] = {"float32": np.float32, "bfloat16": np.uint16}


@dataclass(frozen=True)
class RowTable:
    """Rows of numbers, and what their rule remembers of each."""

    values: NDArray[Any]
    """Flat: float32, or bfloat16 as uint16; row r begins at r * stride. Columns from `width` on are 0 and stay so."""
    num_rows: int
    width: int
    rule: UpdateRule
    moment: NDArray[np.float32] | None
    """Flat, as `values`."""
    scalars: NDArray[np.float32] | None
    """Flat: 2 numbers a row."""

    @classmethod
    def zeros(
        cls, num_rows: int, width: int, precision: Precision = "float32", rule: UpdateRule | None = None
    ) -> RowTable:
        """Return rows of zeros."""
        rule = rule or UpdateRule()
        stride = row_stride(width, precision)
        values = large_array(num_rows * stride, _ITEMS[precision])
        moment = large_array(num_rows * stride, np.float32) if rule.has_moment else None
        scalars = large_array(num_rows * 2, np.float32) if rule.has_scalars else None
        return cls(values, num_rows, width, rule, moment, scalars)

    @property
    def stride(self) -> int:
        """Items from row to row."""
        return row_stride(self.width, self.precision)

    @property
    def precision(self) -> Precision:
        """What items are."""
        return "bfloat16" if self.values.dtype == np.uint16 else "float32"

    @property
    def rows(self) -> NDArray[Any]:
        """The rows without what fills their lines: a view (num_rows, width), bfloat16 as uint16."""
        return self.values.reshape(self.num_rows, self.stride)[:, : self.width]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all that makes up the table, flat, by name."""
        by_name = {"values": self.values, "moment": self.moment, "scalars": self.scalars}
        return {name: array for name, array in by_name.items() if array is not None}

    def set_uniform(self, seed: int) -> None:
        """Draw numbers between -1/2 and 1/2 over `width`, as word2vec does."""
        random = np.random.Generator(np.random.Philox(seed))
        for low in range(0, self.num_rows, _ROWS_A_DRAW):
            count = min(_ROWS_A_DRAW, self.num_rows - low)
            drawn = (random.random((count, self.width), dtype=np.float32) - np.float32(0.5)) / np.float32(self.width)
            self.write(slice(low, low + count), drawn)

    def write(self, rows: slice, numbers: NDArray[Any]) -> None:
        """Set rows, float32 (n, width)."""
        if self.precision == "bfloat16":
            numbers = torch.from_numpy(np.ascontiguousarray(numbers)).to(torch.bfloat16).view(torch.uint16).numpy()
        self.rows[rows] = numbers

    def read(self, rows: slice | NDArray[Any] = slice(None)) -> NDArray[np.float32]:
        """Return a copy of rows: float32 (n, width), for an array of row numbers (..., width)."""
        values = self.rows[rows]
        if self.precision == "float32":
            return np.array(values)
        return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)


def large_array(count: int, dtype: Any) -> NDArray[Any]:
    """Return zeros in pages of 2 MiB where the machine has them: random rows then miss the page tables less often."""
    size = max(count * np.dtype(dtype).itemsize, 1)
    page = _HUGE_PAGE if size >= _HUGE_PAGE else mmap.PAGESIZE
    memory = mmap.mmap(-1, -(-size // page) * page, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if page == _HUGE_PAGE:
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, dtype, count)
