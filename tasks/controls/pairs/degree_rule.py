"""How well pairs are told from negatives by a rule that knows only how often their ends are joined in training.

It says what the negatives are worth: where it is right about most of them, so is a model that knows no more.
"""

from __future__ import annotations

import numpy as np

from tasks.arrays import Array, blocks, sample_rows
from tasks.evaluators.metrics import rocauc_of_pairs
from tasks.storage.graph_store import GraphStore

_CHUNK_ROWS = 1 << 20
_MOST_PAIRS = 1 << 21
_CLASSES = 65
_HIGH = 0.7


class DegreeRule:
    """Degrees by a graph's training edges, in classes: 0, 1, 2 to 3, 4 to 7, ..."""

    def __init__(self, store: GraphStore) -> None:
        """Count them; 2 bytes a node, and 16 meanwhile."""
        edges, num_nodes = store["train_edges"], store.manifest.num_nodes
        counts = np.zeros((2, num_nodes), np.int64)
        for rows in blocks(len(edges), _CHUNK_ROWS):
            for end in (0, 1):
                counts[end] += np.bincount(edges[rows, end], minlength=num_nodes)
        self.directed = not store.manifest.symmetric
        counts = counts if self.directed else counts.sum(0, keepdims=True)
        self.classes = [np.frexp(own.astype(np.float64))[1].astype(np.uint8) for own in counts]
        """uint8 (N,) of sources and of targets; of both in one where edges have no direction."""

    def rocauc(self, true: Array, false: Array) -> float:
        """Return the ROC-AUC of the rule on edges (n, 2) and negatives (..., 2); NaN: there are too few.

        A pair's score is how much more often its two classes come among edges than among negatives. That is counted on
        one half of the pairs and applied to the other, both ways: what is chance on one is none on the other.
        """
        cells = [self._cells(pairs.reshape(-1, 2)) for pairs in (true, false)]
        areas = []
        for half in (0, 1):
            counts = [np.bincount(own[1 - half :: 2], minlength=_CLASSES**2) for own in cells]
            # A class that few pairs have says little: one more of each is added.
            expected = counts[1] * (counts[0].sum() / max(1, counts[1].sum()))
            ratio = (counts[0] + 1) / (expected + 1)
            areas.append(rocauc_of_pairs(*(ratio[own[half::2]] for own in cells)))
        return float(np.mean(areas))

    def note(self, split: str, value: float) -> str:
        """Say what a split's ROC-AUC by the rule is, and what it means where it is high."""
        text = (
            f"{split}: a rule that knows only how often a pair's ends are joined in training tells edges from "
            f"negatives with ROC-AUC {value:.4f}"
        )
        return (
            text
            if value < _HIGH
            else (f"{text}: a score that is not above it tells who is joined often, not who is joined to whom")
        )

    def _cells(self, pairs: Array) -> Array:
        """Return the two classes of pairs as one number, int64 (n,)."""
        pairs = np.asarray(pairs[sample_rows(np.arange(len(pairs)), _MOST_PAIRS)])
        of_ends = np.stack([self.classes[0][pairs[:, 0]], self.classes[-1][pairs[:, 1]]]).astype(np.int64)
        first, second = of_ends if self.directed else np.sort(of_ends, axis=0)
        return np.asarray(first * _CLASSES + second)
