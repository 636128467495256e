"""The rows of a training's entities, block by block of its grid: what validation ranks and the model is made of.

Entities are numbered as they lie there, block after block: `numbers` says which number a node has.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from models.kernels.tables.row_tables import RowTable
from tasks.arrays import Array, blocks, offsets
from tasks.train.knowledge.shared import Projection
from tasks.train.tables.grid import Grid, Saved, block_rows

_ROWS = 1 << 16


def numbers(nodes: Array, num_nodes: int, num_blocks: int) -> NDArray[np.int64]:
    """Return the numbers that nodes, of any shape, have in the order of the blocks."""
    starts = offsets([block_rows(num_nodes, num_blocks, block) for block in range(num_blocks)])
    own = np.asarray(nodes, np.int64)
    places: NDArray[np.int64] = starts[own % num_blocks] + own // num_blocks
    return places


class GridEntities:
    """Blocks of a grid, one after the other: see `tasks.ranking.entities.EntityBlocks`."""

    def __init__(self, grid: Grid, files: Saved | None = None, projection: Projection | None = None) -> None:
        """`files`: of a checkpoint, of all ranks; None: the blocks of this rank's memory as they are."""
        self._grid, self._files, self._projection = grid, files, projection
        self.num_entities = grid.tables.num_nodes
        (self._name,) = grid.tables.widths()
        self.width = grid.tables.widths()[self._name]

    def __iter__(self) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Yield the number of a block's first entity, and rows: float32 (m, width)."""
        first = 0
        for block in range(self._grid.tables.num_blocks):
            table = self._block(block)
            for part in blocks(table.num_rows, _ROWS):
                yield first + part.start, self._rows(table, block, part)
            first += table.num_rows

    def copy_to(self, out: Array) -> None:
        """Write the rows of all nodes into float32 (N, width), by their own numbers."""
        count = self._grid.tables.num_blocks
        for block in range(count):
            table = self._block(block)
            own = out[block::count]
            for part in blocks(table.num_rows, _ROWS):
                own[part] = self._rows(table, block, part)

    def _rows(self, table: RowTable, block: int, part: slice) -> NDArray[np.float32]:
        rows = np.ascontiguousarray(table.read(part))
        if self._projection is not None:
            nodes = block + self._grid.tables.num_blocks * np.arange(part.start, part.stop)
            self._projection.complete(torch.from_numpy(rows), nodes)
        return rows

    def _block(self, block: int) -> RowTable:
        key = self._name, block
        if self._files is None:
            self._grid.load([key])
            return self._grid.block(key)
        return self._grid.saved_block(key, self._files)
