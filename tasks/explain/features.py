"""What the columns of features are called, and what stands for one that is left out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tasks.arrays import Array
from tasks.preprocess.id_space import union_of_features
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import GraphStore

_ROWS = 10_000
"""Nodes, evenly spread over the graph, that say what is usual."""


@dataclass(frozen=True)
class Features:
    """Columns of users' tables, and their numbers among the columns of `feat`, then of `feat_cat`."""

    names: list[str]
    column_of: Array
    """int64 (D,): whose number it is; those of a text or a list belong together."""
    usual: Array
    """float64 (D,): the mean of a number, the commonest code of a category."""

    @classmethod
    def of(cls, store: GraphStore, dataset: DatasetStore) -> Features:
        """Read them of a graph and the data that it was made of."""
        feat, codes = store.get("feat"), store.get("feat_cat")
        usual = [np.empty(0)]
        step = max(1, store.manifest.num_nodes // _ROWS)
        if feat is not None:
            usual.append(np.asarray(feat[::step], np.float64).mean(0))
        if codes is not None:
            usual.append(np.array([np.bincount(column).argmax() for column in np.asarray(codes[::step]).T], np.float64))
        widths = column_widths(store, dataset)
        names = [name for table in widths.values() for name in table]
        counts = [width for table in widths.values() for width in table.values()]
        return cls(names, np.repeat(np.arange(len(counts)), counts), np.concatenate(usual))


def column_widths(store: GraphStore, dataset: DatasetStore) -> dict[str, dict[str, int]]:
    """Return columns of `feat` and `feat_cat` and how many numbers each has; `feature 3` where that is not known."""
    made: dict[str, dict[str, int]] = {"feat": {}, "feat_cat": {}}
    report, widths = store.manifest.report, dict[str, int]()
    numeric = set(report.get("texts", {}))
    for one in union_of_features(dataset.manifest.node_types):
        first, last = report.get("texts", {}).get(one.column, (0, one.dim))
        widths[one.column] = last - first
        numeric |= {one.column} if one.kind == "numeric" else set()
    for transform in report.get("transforms", ()):
        for name in transform["columns"]:
            counts = transform.get("fitted", {}).get(name, {}).get("categories")
            if name not in widths:  # made of the graph: degree, vectors, hops
                widths[name] = transform.get("widths", {}).get(name, transform.get("width", 1))
                numeric.add(name)
            elif transform["transform"] == "one_hot" and isinstance(counts, list):
                widths[name] = sum(counts) + len(counts)
                numeric.add(name)
    for name, width in widths.items():
        made["feat" if name in numeric else "feat_cat"][name] = width
    for table, word in (("feat", "feature"), ("feat_cat", "category")):
        array = store.get(table)
        count = 0 if array is None else array.shape[1]
        if sum(made[table].values()) != count:
            made[table] = {f"{word} {number}": 1 for number in range(count)}
    return made
