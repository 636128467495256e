"""Drawing so many in-edges of each relation, where a graph has several.

Drawn from all together the edge that tells most is hardly ever there: a movie with a hundred likes has one genre.
"""

from __future__ import annotations

import numpy as np

from tasks.arrays import Array, offsets
from tasks.counter_random import bits
from tasks.sampling.neighborhoods.in_edges import InEdges, Sample


class RelationInEdges(InEdges):
    """The in-edges of all nodes, of which `draw` takes up to the fan-out in each relation.

    Memory: 12 bytes an edge for ids up to int32, and 8 a node for each relation.
    """

    def __init__(self, indptr: Array, indices: Array, edge_type: Array, *, inverse_chances: bool = False) -> None:
        """`edge_type`: int16 (E,), by CSC position; the others are those of `InEdges`."""
        super().__init__(indptr, indices, inverse_chances=inverse_chances)
        self._relations: list[tuple[InEdges, Array]] = []
        """Edges of each relation, and their positions among all."""
        for relation in range(int(edge_type.max(initial=-1)) + 1):
            positions = np.flatnonzero(np.asarray(edge_type) == relation)
            starts = np.searchsorted(positions, self.indptr)
            edges = InEdges(starts, self.indices[positions], inverse_chances=inverse_chances)
            self._relations.append((edges, positions))

    def draw(self, nodes: Array, fanout: int, key: int) -> Sample:
        """Draw one layer's edges into nodes (n,); those of a destination lie relation by relation."""
        keys = [int(bits(key, number, 0)) >> 1 for number in range(len(self._relations))]
        drawn = [edges.draw(nodes, fanout, own) for own, (edges, _) in zip(keys, self._relations, strict=True)]
        counts = np.stack([np.diff(sample.indptr) for sample in drawn])
        indptr = offsets(counts.sum(0))
        before = indptr[:-1] + np.cumsum(counts, axis=0) - counts
        total = int(indptr[-1])
        ids, positions = np.empty(total, self.indices.dtype), np.empty(total, np.int64)
        weight = np.empty(total, np.float32) if self.inverse_chances else None
        for sample, first, (_, places) in zip(drawn, before, self._relations, strict=True):
            assert sample.positions is not None
            to = np.arange(len(sample.indices)) + np.repeat(first - sample.indptr[:-1], np.diff(sample.indptr))
            ids[to], positions[to] = sample.indices, places[sample.positions]
            if weight is not None:
                weight[to] = sample.weight
        return Sample(indptr, ids, positions, self.degrees(nodes), weight)
