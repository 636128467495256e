"""How good a layout is, by what the graph knows of its nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tasks.arrays import Array
from tasks.layout.edge_list import EdgeList
from tasks.layout.quality.measure import measure_layout
from tasks.storage.graph_store import GraphStore
from tasks.storage.manifests import NEIGHBORS


@dataclass(frozen=True)
class Measured:
    """Metrics of a layout."""

    metric: str
    """The one that it is judged by."""
    values: dict[str, float]
    notes: list[str]
    """What was measured on a part of the points."""


def measured(points: Array, store: GraphStore, seed: int, threads: int) -> Measured:
    """Measure points, float32 (N, dim): against vectors where their neighbours became edges, else against the edges."""
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
    return Measured(
        metric=metric,
        values={name: values[name] for name in sorted(values, key=lambda name: name != metric)},
        notes=[_sampled(name, looked_at) for name in values if f"{name}_error" in looked_at],
    )


def _sampled(name: str, looked_at: dict[str, float]) -> str:
    count, error = looked_at[name], looked_at[f"{name}_error"]
    return f"{name} is of a sample of {count:,.0f}: a standard error of {error:.1g}"
