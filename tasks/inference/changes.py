"""What differs between a graph and an earlier one, node by node, as far as models read it.

Nodes are matched by their users' ids. A wrong match does no harm: a node counts as unchanged only where all that a
model reads of it is equal to the bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from models.base import GraphModel
from tasks.arrays import row_blocks
from tasks.inference.row_stable import RowStable, features_of
from tasks.sampling.rows.features import FeatureSource
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import Array, GraphStore, slices
from tasks.storage.ids import IdMap

_ROWS = 1 << 16


@dataclass(frozen=True)
class Changes:
    """A graph's nodes beside those of an earlier graph."""

    former: Array
    """int64 (N,): the node's number in the earlier graph; -1: it was not there."""
    inputs: Array
    """bool (N,): whether what its encoder reads is equal."""
    edges: Array
    """bool (N,): whether its in-edges come from the same nodes, in the same order, and carry the same."""
    degrees: Array
    """bool (N,): whether it has as many in-edges."""


def find_changes(
    model: GraphModel, here: RowStable, dataset: DatasetStore, former: RowStable, former_dataset: DatasetStore,
    stores: tuple[GraphStore, GraphStore],
) -> Changes:  # fmt: skip
    """Compare the graph `here` with a former one; `stores` are theirs, in that order."""
    matched = match_nodes(stores[0], dataset, stores[1], former_dataset)
    own, other = (features_of(store, model) for store in stores)
    inputs, degrees = matched >= 0, matched >= 0
    for name in ("feat", "feat_cat", "label", "node_type"):
        _compare_rows(getattr(own, name), getattr(other, name), matched, inputs)
    known = np.flatnonzero(degrees)
    degrees[known] = np.diff(here.indptr)[known] == np.diff(former.indptr)[matched[known]]
    edges = degrees.copy()
    for start, end in row_blocks(here.indptr, here.chunk_edges):
        nodes = start + np.flatnonzero(edges[start:end])
        edges[nodes] = _edges_equal(here, former, (own, other), nodes, matched)
    return Changes(matched, inputs, edges, degrees)


def _edges_equal(
    here: RowStable, former: RowStable, features: tuple[FeatureSource, FeatureSource], nodes: Array, matched: Array
) -> Array:
    """Return which nodes, int64 (n,), that have as many in-edges in both graphs have the same: bool (n,)."""
    offsets, sources, positions = here.in_edges(nodes)
    _, other_sources, other_positions = former.in_edges(matched[nodes])
    equal = matched[sources] == other_sources
    for name in ("edge_feat", "edge_feat_cat", "edge_weight", "edge_type"):
        table, other = (getattr(one, name) for one in features)
        if table is not None:
            equal &= rows_equal(table[positions], other[other_positions])
    wrong = np.concatenate([[0], np.cumsum(~equal)])
    return np.asarray(wrong[offsets[1:]] == wrong[offsets[:-1]])


def _compare_rows(table: Array | None, other: Array | None, matched: Array, equal: Array) -> None:
    """Clear `equal` where a node's row differs."""
    if table is None:
        return
    assert other is not None, "graphs that one model reads have the same arrays"
    for part in slices(len(table), _ROWS):
        nodes = part.start + np.flatnonzero(equal[part])
        equal[nodes] = rows_equal(table[nodes], other[matched[nodes]])


def rows_equal(rows: Array, others: Array) -> Array:
    """Compare rows (n, ...) bit by bit: bool (n,). A number that is none equals itself."""
    if rows.dtype != others.dtype or rows.shape != others.shape:
        return np.zeros(len(rows), np.bool_)
    if not rows.size:
        return np.ones(len(rows), np.bool_)
    left, right = (np.ascontiguousarray(one).reshape(len(one), -1).view(np.uint8) for one in (rows, others))
    return np.asarray((left == right).all(1))


def match_nodes(graph: GraphStore, dataset: DatasetStore, former: GraphStore, former_dataset: DatasetStore) -> Array:
    """Return the number in the former graph of each node, int64 (N,); -1 for those that were not there.

    Nodes are the same by their type and their users' id, or where two graphs are of one data set by their row in it.
    An id that names several nodes names none here.
    """
    matched = np.full(graph.manifest.num_nodes, -1, np.int64)
    ids, former_ids = IdMap(graph, dataset), IdMap(former, former_dataset)
    same_rows = dataset.manifest.digest == former_dataset.manifest.digest
    for kind in graph.manifest.node_types:
        if kind not in former.manifest.node_types:
            continue
        nodes, others = (one.nodes_of_type(kind, left_out=-1) for one in (ids, former_ids))
        if same_rows or f"ids/{kind}" not in dataset or f"ids/{kind}" not in former_dataset:
            row = np.arange(len(nodes))
        else:
            here, then = (one.read(f"ids/{kind}", ["original_id"]).column(0) for one in (dataset, former_dataset))
            if here.type != then.type:
                here, then = here.cast(pa.string()), then.cast(pa.string())
            # -1 for those that are new or repeat.
            row = np.asarray(compute.fill_null(compute.index_in(here, value_set=then), -1), np.int64)[: len(nodes)]
        found = np.where((row >= 0) & (row < len(others)), others[np.clip(row, 0, max(len(others) - 1, 0))], -1)
        matched[nodes[nodes >= 0]] = found[nodes >= 0]
    return matched
