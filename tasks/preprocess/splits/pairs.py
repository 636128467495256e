"""Splits of pairs of nodes that links or triples join, relations beside them.

Ids of links are within the types of their ends, those of triples over all types end to end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from configs.errors import DataError, RecipeError
from configs.schema import SnapshotConfig
from tasks.arrays import Array
from tasks.negatives import replace_gone
from tasks.preprocess.id_space import IdSpace
from tasks.preprocess.splits.by_time import PairGroup, WrittenSplits, span, write_by_time
from tasks.preprocess.splits.rows import check_range
from tasks.preprocess.splits.snapshot import Snapshot, edge_births
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import ArrayWriter
from tasks.storage.manifests import LEFT_OUT, SPLITS


def write(
    store: DatasetStore, ids: IdSpace, writer: ArrayWriter, snapshot: Snapshot | None, options: SnapshotConfig
) -> WrittenSplits:
    """Write `train_edges`, ..., edges of no split, weights, relations and given negatives. Of a snapshot: what exists.

    Given candidates of triples are of all times, and those of a snapshot have none.

    Raises:
        DataError: ids or relations out of range, candidates that do not fit.
        RecipeError: no negative exists yet.
    """
    kinds, of_links = store.manifest.edge_types, store.manifest.task == "link"
    ends = (kinds[0].source, kinds[0].target) if of_links else ()
    if of_links and len(ids.node_types) > 1 and len(kinds) > 1 and not store.manifest.has_context:
        raise DataError(
            "held-out edges name nodes within a type, and this data set has several node types and relations "
            f"({', '.join(kind.name for kind in kinds)}) and does not say which is predicted; take dataset.name=tables "
            "with target_relation, keep one relation, or use one node type"
        )
    left_out = f"split/{LEFT_OUT}"
    if left_out in store:
        if snapshot is None:
            pairs = _read_pairs(store, ids, left_out, ends)
        else:
            groups = _existing(snapshot, [left_out])
            pairs = np.concatenate([snapshot.new_id[np.stack([some.src, some.dst], 1)] for some in groups])
        writer.write(f"{LEFT_OUT}_edges", pairs.astype(ids.id_type))
    if snapshot is not None and options.split == "time":
        tables = [f"edges/{kinds[0].name}"] if of_links else [f"split/{split}" for split in SPLITS]
        return write_by_time(partial(_existing, snapshot, tables), snapshot, writer, options, tables[0])
    sizes, times = {}, {}
    for split in SPLITS:
        table = f"split/{split}"
        columns, source = store.table(table).columns, ids if snapshot is None else snapshot.source
        pairs, negative = _read_pairs(store, source, table, ends), None
        there: Any = np.s_[:]
        if split != "train" and f"{table}_negative" in store and (of_links or snapshot is None):
            negative = _read_pairs(store, source, f"{table}_negative", ends)
            _check_candidates(negative, len(pairs), split, "edge" if of_links else "triple")
        if snapshot is not None:
            src, dst = np.ascontiguousarray(pairs.T, np.int64)
            edge_times = store.column(table, "time") if "time" in columns else np.empty(0, np.int64)
            births = edge_births(src, dst, edge_times, snapshot.births)
            there = births <= snapshot.until
            if negative is not None:
                negative = _existing_negatives(snapshot, negative, there, split)
            pairs, times[split] = snapshot.new_id[pairs[there]], span(births[there])
        writer.write(f"{split}_edges", pairs.astype(ids.id_type))
        if negative is not None:
            writer.write(f"{split}_negative", negative.astype(ids.id_type))
        if split == "train" and "weight" in columns:
            writer.write("train_edge_weight", store.column(table, "weight")[there].astype(np.float32))
        for name in (split, f"{split}_negative") if store.manifest.num_relations else ():
            if f"split/{name}" in store and "relation" in store.table(f"split/{name}").columns:
                relation = store.column(f"split/{name}", "relation").astype(np.int32)
                check_range(relation, store.manifest.num_relations, f"split/{name}", "relation")
                writer.write(f"{name}_relation", relation[there] if name == split else relation)
        sizes[split] = len(pairs)
    return WrittenSplits(sizes, times)


def _existing_negatives(snapshot: Snapshot, negative: Array, there: Array, split: str) -> Array:
    """Return the negatives that exist; `there`, bool (n,), loses positives that have no candidate (n, K, 2) left."""
    negative = snapshot.new_id[negative]
    if negative.ndim == 3:
        has_candidates, negative = replace_gone(negative[there])
        there[there] = has_candidates
    else:
        negative = negative[(negative >= 0).all(1)]
    if not len(negative):
        raise RecipeError(
            f"snapshot.split=keep: none of the data set's negatives of {split} exists yet; take a later moment, or "
            "snapshot.split=time"
        )
    return negative


def _check_candidates(candidates: Array, count: int, split: str, what: str) -> None:
    """Raise DataError where lists of candidates (m, K, 2) are not those of `count` edges or triples."""
    if candidates.ndim == 3 and len(candidates) != count:
        raise DataError(
            f"there are candidates for {len(candidates):,} {what}s, but {split} has {count:,}; give a row of "
            f"candidates for each {what}",
            path=f"split/{split}_negative",
        )


def _read_pairs(store: DatasetStore, ids: IdSpace, table: str, node_types: Sequence[str]) -> Array:
    """Return ids (n, 2), or (n, K, 2) where `dst` or `src`, or both, are lists of K candidates.

    `node_types` are those of the ends; none: ids are over all types. Raises DataError for an id that its type has not.
    """
    ends: list[Array] = []
    for place, column in enumerate(("src", "dst")):
        first, limit = 0, ids.num_nodes
        if node_types:
            index = ids.type_index(node_types[place])
            first, limit = ids.type_offsets[index], ids.manifest.node_types[index].num_nodes
        values = store.column(table, column).astype(np.int64)
        check_range(values, limit, table, column)
        ends.append(values + first)
    if ends[0].ndim != ends[1].ndim:
        ends = [end[:, None] if end.ndim == 1 else end for end in ends]
    return np.stack(np.broadcast_arrays(*ends), -1).astype(ids.id_type)


def _existing(snapshot: Snapshot, tables: Sequence[str]) -> Iterator[PairGroup]:
    """Yield a row group's pairs that exist."""
    source, store, kind = snapshot.source, snapshot.store, snapshot.store.manifest.edge_types[0]
    starts = {"src": 0, "dst": 0}
    if store.manifest.task == "link":
        starts = {"src": source.offset(kind.source), "dst": source.offset(kind.target)}
    for table in tables:
        names = [one for one in store.table(table).columns if one in ("src", "dst", "time", "weight", "relation")]
        for _, group in store.row_groups(table, names):
            columns = {name: group.column(name).to_numpy() for name in names}
            src, dst = (columns.pop(name).astype(np.int64) + start for name, start in starts.items())
            births = edge_births(src, dst, columns.pop("time", np.empty(0, np.int64)), snapshot.births)
            there = np.flatnonzero(births <= snapshot.until)
            yield PairGroup(src[there], dst[there], births[there], {name: x[there] for name, x in columns.items()})
