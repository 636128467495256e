"""Tables cut into blocks of rows: node v is row v // n of block v % n.

So every block has the same number of nodes, give or take one, with all kinds of degrees among them, whatever order the
nodes stand in; and no table says where a node is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from models.kernels.row_layout import Precision, Rule
from models.kernels.row_tables import RowTable
from models.vector_configs import Pairing
from models.vectors import SampledModel
from tasks.arrays import Array, blocks
from tasks.sampling.alias import alias_table

_READ_ROWS = 1 << 16


def block_rows(num_nodes: int, num_blocks: int, block: int) -> int:
    """Return how many nodes a block holds."""
    return (num_nodes - block + num_blocks - 1) // num_blocks


class BlockTable:
    """A table of one row a node, in blocks, in memory."""

    def __init__(self, num_nodes: int, width: int, num_blocks: int, precision: Precision, rule: Rule) -> None:
        """Make rows of zeros."""
        self.num_nodes, self.width, self.num_blocks = num_nodes, width, num_blocks
        self.blocks = [
            RowTable.zeros(block_rows(num_nodes, num_blocks, block), width, precision, rule)
            for block in range(num_blocks)
        ]

    def set_uniform(self, seed: int) -> None:
        """Draw the first rows."""
        for block, table in enumerate(self.blocks):
            table.set_uniform(seed + block)

    def read(self, first: int, count: int) -> Array:
        """Return the rows of nodes first to first + count - 1: float32 (count, width)."""
        found = np.empty((count, self.width), np.float32)
        for block, table in enumerate(self.blocks):
            start = (block - first) % self.num_blocks  # of the nodes asked for, the first in this block
            rows = len(range(start, count, self.num_blocks))
            begin = (first + start) // self.num_blocks
            found[start :: self.num_blocks] = table.read(slice(begin, begin + rows))
        return found

    def tensors(self) -> dict[str, Tensor]:
        """Return views of all that a checkpoint must hold."""
        found = {}
        for block, table in enumerate(self.blocks):
            for name, array in table.arrays().items():
                found[f"{block}.{name}"] = torch.from_numpy(array.view(np.int16) if array.dtype == np.uint16 else array)
        return found

    @property
    def numbers(self) -> int:
        """Numbers that are learnt."""
        return self.num_nodes * self.width

    def restore(self, saved: dict[str, Tensor]) -> None:
        """Take over what `tensors` gave."""
        for name, own in self.tensors().items():
            own.copy_(saved[name])


class Grid:
    """The tables of a training."""

    def __init__(
        self, pairings: list[Pairing], num_nodes: int, num_blocks: int, precision: Precision, rule: Rule, seed: int
    ) -> None:
        """Make the tables: rows of centres are drawn as word2vec's, rows of contexts begin at 0."""
        self.pairings, self.num_nodes, self.num_blocks = pairings, num_nodes, num_blocks
        self.centres: dict[str, BlockTable] = {}
        self.contexts: dict[str, BlockTable] = {}
        for number, pairing in enumerate(pairings):
            table = BlockTable(num_nodes, pairing.width, num_blocks, precision, rule)
            table.set_uniform(seed + number * num_blocks)
            self.centres[pairing.name] = self.contexts[pairing.name] = table
            if not pairing.shared:
                self.contexts[pairing.name] = BlockTable(num_nodes, pairing.width, num_blocks, precision, rule)

    def meeting(self, row: int, column: int) -> dict[str, tuple[RowTable, RowTable]]:
        """Return what pairs of a centre in block `row` and a context in block `column` meet in, by pairing."""
        return {
            pairing.name: (self.centres[pairing.name].blocks[row], self.contexts[pairing.name].blocks[column])
            for pairing in self.pairings
        }

    def tables(self) -> dict[str, BlockTable]:
        """Return each table once, by name."""
        found = {}
        for pairing in self.pairings:
            found[f"{pairing.name}.centres"] = self.centres[pairing.name]
            if not pairing.shared:
                found[f"{pairing.name}.contexts"] = self.contexts[pairing.name]
        return found

    def vectors(self, model: type[SampledModel], config: Any) -> Array:
        """Return what the model makes of each node's rows: float32 (N, dim)."""
        found = np.empty((self.num_nodes, config.dim), np.float32)
        for part in blocks(self.num_nodes, _READ_ROWS):
            first, count = part.start, part.stop - part.start
            rows = {
                name: (self.centres[name].read(first, count), self.contexts[name].read(first, count))
                for name in self.centres
            }
            found[part] = model.vectors(config, rows)
        return found


class Negatives:
    """Tables to draw the rows of negatives from, a block of contexts each, by degree^power."""

    def __init__(self, degree: Array, num_blocks: int, power: float) -> None:
        """`degree`: integer or float (N,). Blocks whose nodes have no edge draw all of their rows alike."""
        self.tables = []
        for block in range(num_blocks):
            weights = np.asarray(degree[block::num_blocks], np.float64) ** power
            weights[np.asarray(degree[block::num_blocks]) <= 0] = 0  # 0^0 is 1
            self.tables.append(alias_table(weights if weights.any() else np.ones_like(weights)))
