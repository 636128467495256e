"""Layouts: the points themselves are what a model has learnt, and there are no splits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tasks.arrays import Array
from tasks.kinds.base import Kind
from tasks.storage.graph_store import GraphStore
from tasks.storage.manifests import NEIGHBORS

if TYPE_CHECKING:
    from tasks.inference.opened import Opened


class LayoutKind(Kind):
    """A point for each node."""

    words = "points"
    explained_by = ""

    def labels(self, store: GraphStore) -> Array | None:
        """Return what colours points, where the data has it."""
        return store.get(store.manifest.split_rows.labels)

    def evaluated_whole(self, opened: Opened, work: Path, seed: int) -> dict[str, Any]:
        """Measure the points, and write them with what is known of them."""
        from models.kernels.threads import num_threads
        from tasks.kinds.points import LAYOUT_FILE, write_points
        from tasks.supervise import report_progress

        points = np.asarray(opened.model.table)
        report_progress(0, 2, "steps", "measuring")
        metric, values, notes = measured(points, opened.store, seed, num_threads())
        report_progress(1, 2, "steps", "points")
        write_points(work / LAYOUT_FILE, points, self.point_columns(opened, np.arange(len(points))))
        return {
            "evaluator": "layout",
            "controls": {},
            "metric": metric,
            "metrics": {"all": values},
            "layout": LAYOUT_FILE,
            "report": {"higher_is_better": True, "telling_rows": {}, "intervals": {}, "notes": notes},
            "rows": len(points),
        }


def measured(points: Array, store: GraphStore, seed: int, threads: int) -> tuple[str, dict[str, float], list[str]]:
    """Measure points, float32 (N, dim): against vectors where their neighbours became edges, else against the edges.

    Returns: the metric that a layout is judged by, all of them, that one first, and what was measured on a part.
    """
    from tasks.layout.edge_list import EdgeList
    from tasks.layout.quality.measure import measure_layout

    neighbors = store.manifest.report.get(NEIGHBORS)
    label = store.get("label")
    codes = None if label is None or label.ndim != 1 else np.asarray(label)
    against: dict[str, Any]
    if neighbors is None:
        edges = EdgeList.of(store)
        against = {"edges": (edges.indptr, edges.indices)}
    else:
        against = {"vectors": store["feat"], "metric": neighbors["metric"]}
    values, looked_at = measure_layout(points, labels=codes, seed=seed, threads=threads, **against)
    metric = "graph_neighbors_kept" if neighbors is None else "trustworthiness"
    notes = [
        f"{name} is of a sample of {looked_at[name]:,.0f}: a standard error of {looked_at[f'{name}_error']:.1g}"
        for name in values
        if f"{name}_error" in looked_at
    ]
    return metric, {name: values[name] for name in sorted(values, key=lambda name: name != metric)}, notes


KIND = LayoutKind()
