"""Deal nodes out to train, valid and test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from configs.errors import DataError, RecipeError
from tasks.arrays import Array
from tasks.ingest.graph_tables.configs import SplitConfig, TablesConfig
from tasks.ingest.ids.node_set import NodeSet, occurred_earlier
from tasks.ingest.labels import check_labelled, has_label
from tasks.ingest.tables.batches import TableBatch
from tasks.ingest.tables.intake import Intake, table_files
from tasks.ingest.tables.table_configs import EdgeTableConfig, FilesConfig, NodeTableConfig
from tasks.ingest.tables.times import cut_by_time
from tasks.storage.manifests import SPLITS


def node_splits(
    config: TablesConfig, nodes: NodeSet, labels: Array, owner: Array | None, intake: Intake, what: str = "node"
) -> dict[str, Array]:
    """Return ascending dense ids (int64) of each split; `owner` holds the split column's codes, where one is used.

    `what` is split, node or graph, for messages.

    Raises DataError: an empty split, an id twice or in two splits, a node of a split without a label.
    """
    split = config.split
    if split.by == "files":
        owner = _from_files(config, nodes, intake)
        intake.problems.raise_any()
    elif split.by not in ("column", "none"):
        if split.by == "time" and nodes.time is None:
            raise RecipeError(f"dataset.split.by: time needs a time column in the {nodes.kind} nodes (nodes.time)")
        owner = deal_labelled(split, labels, nodes.time, nodes.config)
    # Nodes that only edges name are in no split.
    owner = np.empty(0, np.int8) if owner is None else owner
    owner = np.append(owner, np.full(nodes.num_nodes - len(owner), -1, np.int8))
    return rows_of_splits(split, owner, has_label(labels), what, nodes.original)


def rows_of_splits(
    split: SplitConfig, owner: Array, labelled: Array, what: str, name_of: Callable[[int], Any]
) -> dict[str, Array]:
    """Return the rows of each split, int64, ascending, by `owner`, int8 (n,).

    `labelled`: which rows have a label, bool (n,); `name_of`: what users call a row. Raises DataError as `node_splits`.
    """
    splits = {}
    for code, name in enumerate(SPLITS):
        rows = np.flatnonzero(owner == code).astype(np.int64)
        where = split.column or split.files.get(name) or f"split by {split.by}"
        if len(rows) == 0 and split.by != "none":
            raise DataError(f"the {name} split is empty ({int(labelled.sum()):,} {what}s are labelled)", path=where)
        check_labelled(labelled, rows, name, what, where, name_of)
        splits[name] = rows
    return splits


def deal_labelled(
    split: SplitConfig, labels: Array, times: Array | None, table: NodeTableConfig | EdgeTableConfig
) -> Array:
    """Deal out the rows that have a label by chance, by class or by time; return codes, int8 (n,), -1 for the others.

    `labels` (n,) or (n, T); `times` (n,), where it is by time, a column of `table`.
    """
    owner, candidates = np.full(len(labels), -1, np.int8), np.flatnonzero(has_label(labels))
    count = len(candidates)
    shuffled = candidates[np.random.default_rng(split.seed).permutation(count)]
    if split.by == "time":
        assert times is not None
        owner[candidates] = cut_by_time(times[candidates], split.train, split.valid, table.names, str(table.time))
    elif split.by == "ratio":
        owner[shuffled] = _cut(np.arange(count), count, split)
    else:
        classes = labels[shuffled] if labels.ndim == 1 else labels[shuffled, 0]
        order = np.argsort(classes, kind="stable")
        _, starts, sizes = np.unique(classes[order], return_index=True, return_counts=True)
        rank = np.arange(count) - np.repeat(starts, sizes)
        owner[shuffled[order]] = _cut(rank, np.repeat(sizes, sizes), split)
    return owner


def _cut(rank: Array, size: Array | int, split: SplitConfig) -> Array:
    """Return the split of rank r of n: train below train * n, valid below (train + valid) * n, then test."""
    share = (rank + 0.5) / size
    return (share >= split.train).astype(np.int8) + (share >= split.train + split.valid).astype(np.int8)


def _from_files(config: TablesConfig, nodes: NodeSet, intake: Intake) -> Array:
    owner = np.full(nodes.num_nodes, -1, np.int8)
    for code, name in enumerate(SPLITS):
        for batch, (column,) in id_batches(config.split.files[name], config, (nodes,), intake):
            codes = nodes.look_up(batch, column)
            nodes.refuse_unknown(batch, column, codes)
            _claim(owner, batch.keep(codes >= 0), column, codes[codes >= 0], code, nodes.kind)
    return owner


def _claim(owner: Array, batch: TableBatch, column: str, codes: Array, code: int, what: str) -> None:
    """Mark nodes, or `what` they are, as belonging to a split; those that belong to one already are gathered."""
    again = occurred_earlier(codes, 0)
    before = owner[codes]
    ids = batch.column(column)

    def message(row: int) -> str:
        other = SPLITS[before[row]] if before[row] >= 0 else SPLITS[code]
        rest = "stands in the split twice" if other == SPLITS[code] else f"is in the {other} split too; splits overlap"
        return f"{what} {ids[row].as_py()!r} {rest}"

    batch.wrong(again | (before >= 0), column, "splits overlap", message)
    owner[codes] = code


def id_batches(path: str, config: TablesConfig, nodes: tuple[NodeSet, ...], intake: Intake) -> Any:
    """Yield batches of a file of ids and the names of its first columns, which are ids of `nodes`."""
    width = len(nodes)
    table = FilesConfig(files=(path,), header=config.split.header)
    # Ids alone, a line each, may have blanks.
    names = table_files(table).column_names()[:width]
    if len(names) < width:
        raise DataError(f"has {len(names)} column, {width} are needed", path=path)
    texts = [text for column, side in zip(names, nodes, strict=True) for text in side.texts(column)]
    for batch in intake.batches(table, names, texts, whole_lines=width == 1):
        yield batch, names
