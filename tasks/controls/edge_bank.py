"""EdgeBank: what was an edge will be one (Poursafaei and others, NeurIPS 2022, arXiv:2207.10128, section 5).

| control | score of a pair (u, v) |
|---|---|
| `edge_bank` | 1 if it was an edge in training, else 0 |
| `edge_bank_recent` | 1 if it was one within the last part of training that is as long as the split, else 0 |

What it remembers ends where training does, as what models learn from does; in the paper the events of a split are added
while it passes by.
"""

from __future__ import annotations

import numpy as np

from tasks.arrays import Array
from tasks.controls.features import ControlledGraph
from tasks.pair_set import pair_numbers


class EdgeBank:
    """The training events, sorted: 16 bytes each."""

    def __init__(self, graph: ControlledGraph) -> None:
        self._graph, self._directed = graph, graph.dataset.manifest.directed
        table = graph.dataset
        self._num_nodes = table.manifest.num_nodes
        self._numbers = self._of(table.column("split/train", "src"), table.column("split/train", "dst"))
        self._time = table.column("split/train", "time")

    def scores(self, pairs: Array, split: str) -> dict[str, Array]:
        """Score pairs of the graph's nodes, int (n, 2), of a split: float32 (n,) by control."""
        dense = self._graph.ids.dense(np.asarray(pairs).reshape(-1)).reshape(-1, 2)
        asked = self._of(dense[:, 0], dense[:, 1])
        time = self._graph.dataset.column(f"split/{split}", "time")
        recent = self._time > self._time.max() - (time.max() - time.min() + 1)
        banks = {"edge_bank": self._numbers, "edge_bank_recent": self._numbers[recent]}
        return {name: np.isin(asked, bank).astype(np.float32) for name, bank in banks.items()}

    def _of(self, src: Array, dst: Array) -> Array:
        return pair_numbers(src, dst, self._num_nodes, directed=self._directed)
