"""What the rows of negatives are drawn from."""

from __future__ import annotations

import numpy as np

from tasks.arrays import Array
from tasks.sampling.walks.alias import alias_table, draw_alike, draw_many


class Negatives:
    """Tables to draw the rows of negatives from, a block of contexts each, by degree^power."""

    def __init__(self, degree: Array, num_blocks: int, power: float) -> None:
        """`degree`: integer or float (N,). Blocks whose nodes have no edge draw all of their rows alike."""
        self._tables: list[Array | None] = []
        """None: all rows of the block are drawn alike, which needs no table."""
        self._num_rows: list[int] = []
        for block in range(num_blocks):
            weights = np.asarray(degree[block::num_blocks], np.float64) ** power
            weights[np.asarray(degree[block::num_blocks]) <= 0] = 0  # 0^0 is 1
            is_uniform = len(weights) == 0 or weights.min() == weights.max()
            self._tables.append(None if is_uniform else alias_table(weights))
            self._num_rows.append(len(weights))

    @property
    def num_blocks(self) -> int:
        """Number of blocks."""
        return len(self._tables)

    def draw(self, block: int, state: int, out: Array) -> None:
        """Fill out (m,) with rows of a block."""
        table = self._tables[block]
        if table is None:
            draw_alike(self._num_rows[block], np.uint64(state), out)
        else:
            draw_many(table, np.uint64(state), out)

    def table(self, block: int) -> Array:
        """Return the alias table that `draw` draws as from, uint64 (rows,)."""
        table = self._tables[block]
        return alias_table(np.ones(self._num_rows[block])) if table is None else table
