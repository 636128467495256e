"""Deal nodes, graphs and labelled edges out to train, valid and test; labels of edges, read while edges stream by."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np

from configs.errors import DataError, RecipeError
from tasks.arrays import Array
from tasks.ingest.graph_tables.configs import SplitConfig, TablesConfig
from tasks.ingest.graph_tables.edges import EdgeReader
from tasks.ingest.graph_tables.labels import LabelStore, label_columns, label_fields
from tasks.ingest.graph_tables.nodes import SplitColumn
from tasks.ingest.ids.id_index import IdIndex
from tasks.ingest.ids.node_set import NodeSet, occurred_earlier
from tasks.ingest.labels import check_labelled, has_label, say_unlabelled
from tasks.ingest.splits import write_edge_labels
from tasks.ingest.tables.batches import TableBatch
from tasks.ingest.tables.columns import checked_ids
from tasks.ingest.tables.intake import Intake, table_files
from tasks.ingest.tables.table_configs import EdgeTableConfig, FilesConfig, NodeTableConfig
from tasks.ingest.tables.times import cut_by_time
from tasks.stage import StageContext
from tasks.storage.file_names import file_name, joined_name
from tasks.storage.manifests import EDGE_IDS, SPLITS


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
    """Yield batches of a file of ids and the names of its columns of ids of `nodes`: `split.id`, or the first ones."""
    width = len(nodes)
    table = FilesConfig(files=(path,), header=config.split.header)
    # Ids alone, a line each, may have blanks.
    names = [config.split.id] if config.split.id else table_files(table).column_names()[:width]
    if len(names) < width:
        raise DataError(f"has {len(names)} column, {width} are needed", path=path)
    texts = [text for column, side in zip(names, nodes, strict=True) for text in side.texts(column)]
    for batch in intake.batches(table, names, texts, whole_lines=width == 1):
        yield batch, names


class LabelledEdges:
    """All edges of one table pass by and stay; what is said of them is written at the end.

    Memory: 16 bytes an edge for its label and its row, 8 more for a time and 1 for a split column; of an id its
    bytes and 16 to 32 more.
    """

    def __init__(self, config: TablesConfig, reader: EdgeReader) -> None:
        """`reader`: of the edge table that has the labels. Raises RecipeError: there are no times to split by."""
        self.config, self.edges, self.writer, self._reader = config, reader.edges, reader.writer, reader
        self.intake, self.labels = reader.intake, LabelStore(config)
        self._split = SplitColumn(config.split.column) if config.split.column else None
        if config.split.by == "time" and not self.edges.time:
            raise RecipeError("dataset.split.by: time needs a time column in the edges (edges.time)")
        label = label_columns(config, self.edges)
        label_texts, self.numbers = self.labels.csv_kinds(label)
        others = [column for column in (config.split.column, self.edges.id) if column is not None]
        self.columns, self.texts = (*label, *others), (*label_texts, *others)
        """What is read of the edge table, and which of that a CSV's must be texts."""
        self._count = 0
        self._rows, self._codes, self._times = ([np.empty(0, kind)] for kind in (np.int64, np.int8, np.int64))
        self._stack = ExitStack()
        triplet = self.edges.source_type, file_name(self.edges.relation), self.edges.target_type
        table = f"{EDGE_IDS}/{joined_name(triplet)}"
        self._known_ids = IdIndex()
        self._ids = self._stack.enter_context(self.writer.table(table)) if self.edges.id else None

    def deal(self, batch: TableBatch, parts: dict[str, Array], first: int) -> dict[str, Array]:
        """Remember what is said of some edges, whose rows begin with `first`, and return all of them."""
        rows = np.arange(self._count, self._count + batch.num_rows)
        self._count += batch.num_rows
        place = np.arange(batch.num_read) if batch.kept is None else np.flatnonzero(batch.kept)
        self._rows.append(first + place)
        if set(self.edges.label) <= set(self.columns):
            self.labels.put(batch, self.edges.label, rows)
        if self._split is not None:
            self._codes.append(self._split.codes(batch))
        if self.config.split.by == "time":
            self._times.append(parts["time"])
        if self._ids is not None:
            ids, wrong = checked_ids(batch, str(self.edges.id), texts=True)
            if wrong is None:
                num_earlier = self._known_ids.count
                repeated = occurred_earlier(self._known_ids.add(ids), num_earlier)
                words = "stands in the table twice; without edges.id predictions name edges by their rows"
                kind = "the edge's id stands in the table twice"
                batch.wrong(repeated, self.edges.id, kind, lambda row: f"the id {ids[row].as_py()!r} {words}")
                self._ids.write({"original_id": ids})
        return parts

    def finish(self, context: StageContext) -> dict[str, Any]:
        """Write labels, rows and splits; return the manifest's fields that they decide.

        Raises DataError: an empty split, or an edge of one without a label.
        """
        self._stack.close()
        column, names = self.labels.finish(self._count, self.intake)
        if names is not None:
            codes = np.arange(len(names), dtype=np.int64)
            self.writer.write(self.labels.names_table, {"label": codes, "name": names})
        rows = np.concatenate(self._rows)
        [kind] = self._reader.describe()
        ordered = self.config.directed or self.edges.source_type != self.edges.target_type
        keep = self.config.scored_edges == "keep"
        fields = write_edge_labels(self.writer, kind.name, column, rows, keep=keep, ordered=ordered)
        labelled, split = has_label(column), self.config.split
        say_unlabelled(labelled, "edge", context)
        owner = np.full(self._count, -1, np.int8)
        if self._split is not None:
            owner = np.concatenate(self._codes)
        elif split.by != "none":
            times = np.concatenate(self._times) if split.by == "time" else None
            owner = deal_labelled(split, column, times, self.edges)
        for name, edges in rows_of_splits(split, owner, labelled, "edge", lambda edge: f"row {rows[edge]}").items():
            self.writer.write(f"split/{name}", {"edge_id": edges})
        return fields | label_fields(self.config, column, names)
