"""What the columns of features are called, and what stands for a column that is left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tasks.arrays import Array
from tasks.preprocess.id_space import union_of_features
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import GraphStore

_ROWS = 10_000
"""Nodes, evenly spread over the graph, that say what is usual."""


@dataclass(frozen=True)
class FeatureNames:
    """Columns of `feat`, then of `feat_cat`."""

    names: list[str]
    usual: Array
    """float64 (columns,): the mean of a numeric column, the commonest code of a categorical one."""

    @classmethod
    def of(cls, store: GraphStore, dataset: DatasetStore) -> FeatureNames:
        """Read them of a graph and the data that it was made of."""
        feat, codes = store.get("feat"), store.get("feat_cat")
        usual = [np.empty(0)]
        step = max(1, store.manifest.num_nodes // _ROWS)
        if feat is not None:
            usual.append(np.asarray(feat[::step], np.float64).mean(0))
        if codes is not None:
            usual.append(np.array([np.bincount(column).argmax() for column in np.asarray(codes[::step]).T], np.float64))
        numeric, categorical = (0 if table is None else table.shape[1] for table in (feat, codes))
        return cls(column_names(store, dataset, numeric, categorical), np.concatenate(usual))


def column_names(store: GraphStore, dataset: DatasetStore, numeric: int, categorical: int) -> list[str]:
    """Return the names of numeric columns, then of categorical ones; `feature 3` where transforms do not tell."""
    features = union_of_features(dataset.manifest.node_types)
    widths = {one.column: one.dim for one in features}
    kinds: dict[str, str] = {one.column: one.kind for one in features}
    for made in store.manifest.report.get("transforms", ()):
        fitted: dict[str, Any] = made.get("fitted", {})
        for name in made["columns"]:
            if name not in widths or name in made.get("widths", {}):  # degree, vectors; hops
                widths[name] = made.get("widths", {}).get(name, made.get("width", 1))
                kinds[name] = "numeric"
            elif made["transform"] == "one_hot" and isinstance(fitted[name]["categories"], list):
                counts = fitted[name]["categories"]
                widths[name], kinds[name] = sum(counts) + len(counts), "numeric"
    return [
        name
        for kind, width in (("numeric", numeric), ("categorical", categorical))
        for name in _of_kind({one: columns for one, columns in widths.items() if kinds[one] == kind}, kind, width)
    ]


def _of_kind(widths: dict[str, int], kind: str, width: int) -> list[str]:
    if sum(widths.values()) != width:
        return [f"{'feature' if kind == 'numeric' else 'category'} {number}" for number in range(width)]
    return [
        f"{name}[{number}]" if columns > 1 else name for name, columns in widths.items() for number in range(columns)
    ]
