"""What the columns of features are called, and what stands for one that is left out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tasks.arrays import Array
from tasks.preprocess.id_space import union_of_features
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import GraphStore

_ROWS = 10_000
"""Nodes or edges, evenly spread over the graph, that say what is usual."""


@dataclass(frozen=True)
class Features:
    """Columns of users' tables, and their numbers among the columns of `feat`, then of `feat_cat`."""

    names: list[str]
    column_of: Array
    """int64 (D,): whose number it is; those of a text or a list belong together."""
    usual: Array
    """float64 (D,): the mean of a number, the commonest code of a category."""

    @classmethod
    def of(cls, store: GraphStore, dataset: DatasetStore, prefix: str = "") -> Features:
        """Read those of nodes, or of edges (`prefix` edge_; scored_: that have labels), and of the data behind them."""
        tables = [store.get(f"{prefix}{name}") for name in ("feat", "feat_cat")]
        usual = [np.empty(0)]
        for table, typical in zip(tables, (_means, _commonest), strict=True):
            if table is not None and len(table):
                usual.append(typical(np.asarray(table[:: max(1, len(table) // _ROWS)])))
        counts = [0 if table is None else table.shape[1] for table in tables]
        widths = (_edge_widths if prefix else _node_widths)(store, dataset, counts[0])
        for number, (word, count) in enumerate(zip(("feature", "category"), counts, strict=True)):
            if sum(widths[number].values()) != count:  # not known
                widths[number] = {f"{'edge ' if prefix else ''}{word} {place}": 1 for place in range(count)}
        names = [name for table in widths for name in table]
        each = [width for table in widths for width in table.values()]
        return cls(names, np.repeat(np.arange(len(each)), each), np.concatenate(usual))


NO_FEATURES = Features([], np.empty(0, np.int64), np.empty(0))


def _means(rows: Array) -> Array:
    return rows.mean(0, dtype=np.float64)


def _commonest(rows: Array) -> Array:
    return np.array([np.bincount(column).argmax() for column in rows.T], np.float64)


def _node_widths(store: GraphStore, dataset: DatasetStore, _: int) -> list[dict[str, int]]:
    """Return columns of numbers, and of categories, and how many numbers each has."""
    report, widths = store.manifest.report, dict[str, int]()
    texts = report.get("texts", {})
    numeric = set(texts)
    for one in union_of_features(dataset.manifest.node_types):
        first, last = texts.get(one.column, (0, one.dim))
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
    return [{name: width for name, width in widths.items() if (name in numeric) == wanted} for wanted in (True, False)]


def _edge_widths(_: GraphStore, dataset: DatasetStore, count: int) -> list[dict[str, int]]:
    """Do the same of edges, whose texts are all as wide as what `count` numbers leave them."""
    columns = union_of_features(dataset.manifest.edge_types)
    texts = [one.column for one in columns if one.kind == "text"]
    rest = count - sum(one.dim for one in columns if one.kind == "numeric")
    widths = {one.column: rest // len(texts) if one.kind == "text" else one.dim for one in columns}
    coded = {one.column for one in columns if one.kind == "categorical"}
    return [{name: width for name, width in widths.items() if (name in coded) == wanted} for wanted in (False, True)]
