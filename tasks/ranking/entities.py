"""Vectors of entities, in blocks of bounded size, wherever they lie."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tasks.arrays import Array, blocks

Rows = NDArray[np.float32]
_BLOCK_BYTES = 1 << 26


class EntityBlocks(Protocol):
    """What is ranked: it can be passed over again and again, and each pass gives all entities in their order."""

    @property
    def num_entities(self) -> int:
        """How many there are."""

    @property
    def width(self) -> int:
        """Columns of a row."""

    def __iter__(self) -> Iterator[tuple[int, Rows]]:
        """Yield the number of a block's first entity, and the block's rows: float32 (m, w), contiguous."""


class TableBlocks:
    """Entities of a table (m, w): in memory, or memory-mapped and then read as it is passed over."""

    def __init__(self, table: Tensor | Array, block_bytes: int = _BLOCK_BYTES) -> None:
        """Take a tensor on the CPU or an array; blocks have at most so many bytes as float32, one row at least."""
        self._table = table
        self.num_entities, self.width = int(table.shape[0]), int(table.shape[1])
        self._rows = max(1, block_bytes // (4 * max(self.width, 1)))

    def __iter__(self) -> Iterator[tuple[int, Rows]]:
        """Yield the blocks in order."""
        for rows in blocks(self.num_entities, self._rows):
            yield rows.start, float_rows(self._table[rows])


def float_rows(rows: Tensor | Array) -> Rows:
    """Return rows as a contiguous float32 array, where they are one already without a copy."""
    if isinstance(rows, Tensor):
        rows = rows.detach().to(torch.float32).numpy()
    return np.ascontiguousarray(rows, dtype=np.float32)
