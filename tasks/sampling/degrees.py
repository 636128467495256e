"""Degrees of nodes, whatever the direction of their edges."""

from __future__ import annotations

import numpy as np

from tasks.arrays import Array
from tasks.storage.graph_store import GraphStore


def degrees(store: GraphStore) -> Array:
    """Return how many edges begin or end at each node, a loop twice: int64 (N,)."""
    into = np.diff(np.asarray(store["csc_indptr"]))
    return into if store.manifest.symmetric else into + np.diff(np.asarray(store["csr_indptr"]))


def warn_of_isolated(store: GraphStore, become: str) -> None:
    """Print how many nodes have no edge, if some have none, and what becomes of them."""
    count = int((degrees(store) == 0).sum())
    if count:
        print(
            f"warning: {count:,} of {store.manifest.num_nodes:,} nodes have no edge to learn from: {become} "
            "(components.keep=min_size=2 leaves them out)"
        )
