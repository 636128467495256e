"""What lists of a link task's targets are compared with: what is popular, and what the same sources are joined to."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tasks.arrays import Array
from tasks.controls.ranked.recommendation import RecommendationControls
from tasks.controls.suite import Controls
from tasks.evaluators.prediction import Prediction
from tasks.inference.ranked import ScoreTasks
from tasks.inference.ranked_targets import TargetLinks
from tasks.storage.controls import JOINED_ALIKE_CONTROL, POPULAR_TARGETS_CONTROL
from tasks.storage.graph_store import GraphStore


class TargetControls(RecommendationControls):
    """Lists by the training links alone."""

    def __init__(self, store: GraphStore) -> None:
        Controls.__init__(self)
        self._store, self._together = store, None

    def predictions(self, split: str, prediction: Prediction) -> Iterator[tuple[str, Prediction]]:
        """Yield each rule's lists for the sources of a split."""
        self.links = TargetLinks(self._store, split)
        yield from super().predictions(split, prediction)

    def tasks(self, split: str) -> Array:
        """Return the sources of a split's edges."""
        return np.unique(np.asarray(self._store[f"{split}_edges"][:, 0], np.int64))

    @property
    def rules(self) -> dict[str, ScoreTasks]:
        """What scores targets, by the names of controls."""
        return {POPULAR_TARGETS_CONTROL: self._popular, JOINED_ALIKE_CONTROL: self._had_together}
