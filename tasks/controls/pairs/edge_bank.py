"""EdgeBank: what was an edge in training will be one (Poursafaei and others, 2022, arXiv:2207.10128).

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

    def scores(self, pairs: Array) -> Array:
        """Score pairs of the graph's nodes, int (n, 2): 1 where they were an edge in training, else 0, float32 (n,)."""
        dense = self._graph.ids.dense(np.asarray(pairs).reshape(-1)).reshape(-1, 2)
        return np.isin(self._of(dense[:, 0], dense[:, 1]), self._numbers).astype(np.float32)

    def _of(self, src: Array, dst: Array) -> Array:
        return pair_numbers(src, dst, self._num_nodes, directed=self._directed)
