"""Several tasks of one data set: which columns of labels and of scores each of them has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from tasks.storage.manifests import TaskHead, TaskManifest

if TYPE_CHECKING:
    from tasks.arrays import Array

M = TypeVar("M", bound=TaskManifest)


@dataclass(frozen=True)
class HeadView:
    """One of several tasks."""

    head: TaskHead
    labels: slice
    """Its columns of the label."""
    scores: slice
    """Its columns of the scores."""

    @property
    def num_scores(self) -> int:
        """Columns of its scores."""
        return int(self.scores.stop - self.scores.start)

    def label_of(self, label: Array) -> Array:
        """Return its labels of all tasks' (n, K): int64 (n,) of classes, -1 for none, else float32 (n, T)."""
        import numpy as np  # not by those who only ask what is there

        columns = label[:, self.labels]
        if self.head.label_type.one_of_many:
            return np.where(np.isnan(columns[:, 0]), -1, columns[:, 0]).astype(np.int64)
        return columns


def head_views(manifest: TaskManifest) -> tuple[HeadView, ...]:
    """Return the tasks, where there are several that share a model; else none."""
    views, label, score = [], 0, 0
    for head in manifest.heads:
        end = score + head.label_type.num_scores(head.num_classes, head.num_tasks)
        views.append(HeadView(head, slice(label, label + head.num_tasks), slice(score, end)))
        label, score = label + head.num_tasks, end
    return tuple(views)


def head_manifest(manifest: M, head: TaskHead) -> M:
    """Return the manifest of a data set that has one of the tasks only."""
    fields = {name: getattr(head, name) for name in ("task_type", "num_classes", "num_tasks", "metric")}
    return manifest.model_copy(update={**fields, "heads": ()})
