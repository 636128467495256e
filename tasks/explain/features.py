"""What the columns of features are called, and what stands for one that is left out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tasks.arrays import Array
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
    def of(cls, store: GraphStore, prefix: str = "") -> Features:
        """Read those of nodes, or of edges (`prefix` edge_; scored_: that have labels)."""
        known, names, each, usual = store.manifest.report.get("columns", {}), list[str](), list[int](), [np.empty(0)]
        for name, word, typical in (("feat", "feature", _means), ("feat_cat", "category", _commonest)):
            table, of_edges = store.get(f"{prefix}{name}"), "edge " * bool(prefix)
            if table is None:
                continue
            widths = known.get(f"{'edge_' * bool(prefix)}{name}", {})
            if sum(widths.values()) != table.shape[1]:  # not known
                widths = {f"{of_edges}{word} {place}": 1 for place in range(table.shape[1])}
            names += widths
            each += widths.values()
            if len(table):
                usual.append(typical(np.asarray(table[:: max(1, len(table) // _ROWS)])))
        return cls(names, np.repeat(np.arange(len(each)), each), np.concatenate(usual))


NO_FEATURES = Features([], np.empty(0, np.int64), np.empty(0))


def _means(rows: Array) -> Array:
    return rows.mean(0, dtype=np.float64)


def _commonest(rows: Array) -> Array:
    return np.array([np.bincount(column).argmax() for column in rows.T], np.float64)
