"""What the rows of negatives are drawn from."""

from __future__ import annotations

import numpy as np

from tasks.arrays import Array
from tasks.sampling.walks.alias import alias_table


class Negatives:
    """Tables to draw the rows of negatives from, a block of contexts each, by degree^power."""

    def __init__(self, degree: Array, num_blocks: int, power: float) -> None:
        """`degree`: integer or float (N,). Blocks whose nodes have no edge draw all of their rows alike."""
        self.tables = []
        for block in range(num_blocks):
            weights = np.asarray(degree[block::num_blocks], np.float64) ** power
            weights[np.asarray(degree[block::num_blocks]) <= 0] = 0  # 0^0 is 1
            self.tables.append(alias_table(weights if weights.any() else np.ones_like(weights)))
