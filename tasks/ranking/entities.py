"""Vectors of entities, in blocks of bounded size, wherever they lie."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    """Entities of tables that lie end to end: in memory, or memory-mapped and then read as they are passed over."""

    def __init__(self, *tables: Tensor | Array, block_bytes: int = _BLOCK_BYTES) -> None:
        """Take tables (m, w), float32 or what becomes float32. Raises ValueError for tables that do not fit together.

        Args:
            tables: tensors on the CPU, or arrays, such as `np.load(path, mmap_mode="r")`.
            block_bytes: a block's rows have at most so many, as float32; one row at least.
        """
        shapes = [tuple(table.shape) for table in tables]
        if not shapes or any(len(shape) != 2 or shape[1] != shapes[0][1] for shape in shapes):
            raise ValueError(f"tables of entities have rows of one width, not the shapes {shapes}")
        self._tables: Sequence[Tensor | Array] = tables
        self.width: int = shapes[0][1]
        self.num_entities: int = sum(shape[0] for shape in shapes)
        self._rows = max(1, block_bytes // (4 * max(self.width, 1)))

    def __iter__(self) -> Iterator[tuple[int, Rows]]:
        """Yield blocks of one table after the other."""
        first = 0
        for table in self._tables:
            for rows in blocks(len(table), self._rows):
                yield first + rows.start, float_rows(table[rows])
            first += len(table)


def float_rows(rows: Tensor | Array) -> Rows:
    """Return rows as a contiguous float32 array, where they are one already without a copy."""
    if isinstance(rows, Tensor):
        rows = rows.detach().to(torch.float32).numpy()
    return np.ascontiguousarray(rows, dtype=np.float32)
