"""Splits of triples: heads and tails as edges, their relations beside them; ids are those of all types end to end."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from configs.schema import SnapshotConfig
from tasks.arrays import Array
from tasks.preprocess.id_space import IdSpace
from tasks.preprocess.splits.by_time import PairGroup, WrittenSplits, span, write_by_time
from tasks.preprocess.splits.pairs import check_candidates
from tasks.preprocess.splits.rows import check_range
from tasks.preprocess.splits.snapshot import Snapshot
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import ArrayWriter
from tasks.storage.manifests import SPLITS


def write(
    store: DatasetStore, ids: IdSpace, writer: ArrayWriter, snapshot: Snapshot | None, options: SnapshotConfig
) -> WrittenSplits:
    """Write `train_edges`, `train_relation`, ... and given candidates. Raises DataError for ids out of range."""
    if snapshot is not None and options.split == "time":
        return write_by_time(partial(_existing, snapshot), snapshot, writer, options, "split/train")
    source = ids if snapshot is None else snapshot.source
    sizes, times = {}, {}
    for split in SPLITS:
        table = f"split/{split}"
        ends, relation = _read_ends(store, source, table), store.column(table, "relation").astype(np.int32)
        check_range(relation, store.manifest.num_relations, table, "relation")
        weighted = split == "train" and "weight" in store.table(table).columns
        weight = store.column(table, "weight").astype(np.float32) if weighted else None
        if snapshot is None and split != "train" and f"{table}_negative" in store:
            candidates = _read_ends(store, source, f"{table}_negative")
            check_candidates(candidates, len(ends), split, "triple")
            writer.write(f"{split}_negative", candidates)
        if snapshot is not None:
            births = store.column(table, "time").astype(np.int64)
            there = births <= snapshot.until
            ends, relation = snapshot.new_id[ends[there]].astype(ids.id_type), relation[there]
            weight, times[split] = weight if weight is None else weight[there], span(births[there])
        writer.write(f"{split}_edges", ends)
        writer.write(f"{split}_relation", relation)
        if weight is not None:
            writer.write("train_edge_weight", weight)
        sizes[split] = len(ends)
    return WrittenSplits(sizes, times)


def _read_ends(store: DatasetStore, ids: IdSpace, table: str) -> Array:
    """Return ids (n, 2), or (n, K, 2) of lists. Raises DataError for an id that no node has."""
    ends = [store.column(table, column).astype(np.int64) for column in ("src", "dst")]
    for end, column in zip(ends, ("src", "dst"), strict=True):
        check_range(end, ids.num_nodes, table, column)
    return np.stack(ends, -1).astype(ids.id_type)


def _existing(snapshot: Snapshot) -> Iterator[PairGroup]:
    """Yield a row group's triples of all splits that exist."""
    for split in SPLITS:
        names = list(snapshot.store.table(f"split/{split}").columns)
        for _, group in snapshot.store.row_groups(f"split/{split}", names):
            columns = {name: group.column(name).to_numpy() for name in names}
            src, dst, times = (columns.pop(name).astype(np.int64) for name in ("src", "dst", "time"))
            there = np.flatnonzero(times <= snapshot.until)
            yield PairGroup(src[there], dst[there], times[there], {name: x[there] for name, x in columns.items()})
