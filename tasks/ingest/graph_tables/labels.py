"""Labels of users' tables: read with the nodes or from a table of their own, classes numbered at the end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from configs.errors import DataError
from configs.layout_options import LAYOUT
from tasks.arrays import Array
from tasks.ingest.graph_tables.configs import TablesConfig
from tasks.ingest.ids.id_index import IdIndex
from tasks.ingest.ids.node_set import UNKNOWN, NodeSet, occurred_earlier
from tasks.ingest.labels import (
    NO_LABEL,
    LabelKind,
    count_no_label,
    label_codes,
    usual_metric,
    wrong_label,
    wrong_labels,
)
from tasks.ingest.tables.batches import TableBatch
from tasks.ingest.tables.columns import EXACT, numbers
from tasks.ingest.tables.intake import OFTEN_MISSING, Intake, table_files
from tasks.ingest.tables.table_configs import EdgeTableConfig, LabelFilesConfig, NodeTableConfig
from tasks.readers.columns import is_text, whole_numbers

_OFTEN_NO_LABEL = OFTEN_MISSING - {"-", "unknown"} | {"nan", "nat"}
"""Texts, in small letters, that programs write where there is no label; `-` and `unknown` are names of classes too."""


class LabelStore:
    """Labels as they are read."""

    names_table: ClassVar[str] = "classes"
    """Table of the classes' names."""

    def __init__(self, config: TablesConfig) -> None:
        width = len(config.labels.label) if config.labels else 1
        self._kind = LabelKind(config.task_type, config.num_classes or 2, width)
        self._named = config.task_type == "multiclass" and config.num_classes is None
        self._fewest = 0 if config.split.by == "none" else 2
        self._classes = IdIndex()
        self._parts: list[tuple[Array, Array]] = []
        self._path: object = None
        self._table = config.label_table
        self._column = self._table.label[0]
        self._kind_before: tuple[str, Path] | None = None
        """Of what kind the first file's labels are."""
        self._none: set[int] = set()
        self._num_none = 0

    def csv_kinds(self, columns: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return which label columns of a CSV are read as texts, and which as numbers."""
        return (columns, ()) if self._named else ((), columns)

    def put(self, batch: TableBatch, columns: tuple[str, ...], rows: Array) -> None:
        """Remember the labels of nodes `rows`; of a node that has several the last."""
        self._path = batch.path
        if self._named:
            self._parts.append((rows, self._class_codes(batch, columns[0])))
            return
        read = [self._numbers(batch, column) for column in columns]
        values = np.column_stack(read)
        kind = LabelKind(self._kind.task_type, self._kind.num_classes, values.shape[1])
        for column, cells in zip(columns, values.T, strict=True):
            wrong = wrong_labels(cells, kind)
            message = lambda row, cells=cells: wrong_label(cells[row], kind)  # noqa: E731
            if batch.wrong(wrong, column, "wrong label", message) is not None:
                cells[wrong] = np.nan
        self._parts.append((rows, label_codes(values, kind)))

    def _numbers(self, batch: TableBatch, column: str) -> Array:
        values = numbers(batch, column, missing=True)
        if values.ndim != 1:
            batch.wrong_column(column, "is a column of lists; a label is a value, several of them are several columns")
            return np.full(len(values), np.nan)
        if self._kind.task_type == "multiclass":
            none = np.isin(values, NO_LABEL)
            self._none |= set(values[none].astype(int).tolist())
            self._num_none += int(np.count_nonzero(none))
            values[none] = np.nan
        return values

    def _class_codes(self, batch: TableBatch, column: str) -> Array:
        values = batch.column(column)
        if pa.types.is_floating(values.type):
            whole = numbers(batch, column, missing=True)
            there = np.nan_to_num(whole)
            odd = (there != np.floor(there)) | (np.abs(there) > EXACT)
            batch.wrong(odd, column, "no class", lambda row: f"the class {whole[row]} is not a whole number or a text")
            values = pa.array(np.where(odd, 0, there).astype(np.int64), mask=odd | np.isnan(whole))
        if pa.types.is_null(values.type):
            return np.full(len(values), -1, np.int64)
        if not is_text(values.type) and not pa.types.is_integer(values.type) and not pa.types.is_boolean(values.type):
            batch.wrong_column(column, f"is {values.type}; classes are texts or whole numbers")
            return np.full(len(values), -1, np.int64)
        self._check_kind(batch, column, values.type)
        texts = compute.fill_null(values.cast(pa.string()), "")
        none = np.asarray(compute.equal(texts, ""))
        codes = np.full(len(values), -1, np.int64)
        codes[~none] = self._classes.add(texts.filter(pa.array(~none)))
        return codes

    def _check_kind(self, batch: TableBatch, column: str, kind: pa.DataType) -> None:
        """Gather a file of other labels than one before: 1 and "1" may be two classes. A CSV's texts may be any."""
        words = "texts" if is_text(kind) else "true and false" if pa.types.is_boolean(kind) else "numbers"
        if is_text(kind) and batch.path.suffix not in (".parquet", ".pq") and self._table.format != "parquet":
            return
        before, path = self._kind_before = self._kind_before or (words, batch.path)
        if words != before:
            message = f"holds {words} here and {before} in {path}; write the labels of all files alike"
            batch.wrong_column(column, message)

    def renumber(self, new_id: Array) -> None:
        """Give the nodes other ids: int64, by the old one."""
        self._parts = [(new_id[rows], values) for rows, values in self._parts]

    def finish(self, num_nodes: int, intake: Intake) -> tuple[Array, pa.Array | None]:
        """Return the `label` column and, where classes were found, their names in the order of their codes.

        Raises DataError: there are not two classes.
        """
        if not self._parts:  # nothing trains, and the table has no such column
            width = len(self._table.label)
            none = label_codes(np.empty((0, width)), LabelKind(self._kind.task_type, self._kind.num_classes, width))
            self._parts = [(np.empty(0, np.int64), np.empty(0, np.int64) if self._named else none)]
        rows = np.concatenate([part[0] for part in self._parts])
        values = np.concatenate([part[1] for part in self._parts])
        if self._named:
            labels = np.full(num_nodes, -1, np.int64)
            labels[rows] = values  # of a node that stands in several rows the last
            labelled = labels >= 0
            names, rank = self._ordered_classes(np.unique(labels[labelled]))
            labels[labelled] = rank[labels[labelled]]
            self._num_none = int(np.count_nonzero(labels[labelled] == -1))
            self._hint(intake)
            intake.hint_at_similar_texts(self._table, self._column, "classes", names)
            self._hint_at_missing(names, intake)
            return labels, names
        self._hint(intake)
        shape = (num_nodes, *values.shape[1:])
        labels = np.full(shape, -1, np.int64) if values.ndim == 1 else np.full(shape, np.nan, np.float32)
        labels[rows] = values
        return labels, None

    def _hint(self, intake: Intake) -> None:
        """Say that -1 or -100 was taken for no label: to somebody it is a class."""
        if self._num_none:
            values, verb = " and ".join(map(str, sorted(self._none))), "stand" if len(self._none) > 1 else "stands"
            said = f"{values} {verb} for no label in {self._num_none:,} rows"
            intake.hints.append(
                f"{self._table.names} (column {self._column}): {said}; if it is a class, write classes as texts or "
                "numbers from 0"
            )

    def _hint_at_missing(self, names: pa.Array, intake: Intake) -> None:
        """Say that a text which often stands for an empty cell is taken for a class."""
        classes = names.to_pylist()
        numbers = {f"{value}.0" for value in NO_LABEL} if "0.0" in classes else set()
        words = [name for name in classes if name.strip().lower() in _OFTEN_NO_LABEL | numbers]
        if words:
            shown = f"{', '.join(map(repr, words))} {'is a class' if len(words) == 1 else 'are classes'}"
            intake.hints.append(
                f"{self._table.names} (column {self._column}): {shown}; if it stands for no label, leave the cell "
                f"empty, or say so: missing_values: {json.dumps(['', *words])}"
            )

    def _ordered_classes(self, met: Array) -> tuple[pa.Array, Array]:
        """Return the classes that nodes have, ascending, and the number of each class that was met, -1 for none.

        They are compared as numbers where all are numbers. Then a -1 or -100 below all others is no class, as in many
        public data sets. `met` are the codes that nodes have: a class of rows that were dropped is none.
        """
        keys = whole_numbers(self._classes.keys().take(pa.array(met)))
        order = np.asarray(compute.sort_indices(keys))
        note = ""
        if not is_text(keys.type):
            first = keys.take(pa.array(order[: len(NO_LABEL) + 1])).to_pylist()
            none = count_no_label(first)
            self._none = set(first[:none])
            if none:
                values = " and ".join(map(str, first[:none]))
                note = f" beside {values}, which stands for no label; to make it a class, number them from 0"
            order = order[none:]
        if len(order) < self._fewest:
            said = f"has 1 class ({keys[order[0]]}){note}" if len(order) else f"has no labelled row{note}"
            raise DataError(f"{said}; at least two classes are needed", path=self._path, column=self._column)
        rank = np.full(self._classes.count, -1, np.int64)
        rank[met[order]] = np.arange(len(order))
        return keys.take(pa.array(order)).cast(pa.string()), rank


def label_columns(config: TablesConfig, table: NodeTableConfig | EdgeTableConfig) -> tuple[str, ...]:
    """Return a table's columns of labels that are read: none where nothing trains and its files have no such column."""
    may_lack = config.split.by == "none" and table.files
    return () if may_lack and not set(table.label) <= set(table_files(table).column_names()) else table.label


def label_fields(config: TablesConfig, labels: Array | None, names: pa.Array | None) -> dict[str, Any]:
    """Return the manifest's fields that labels decide: kind, classes and metric.

    `labels`: the column `label`; None: there is none. `names`: of classes that were found in the labels.
    """
    if labels is None:
        of_each = config.task == "link" and (config.ranks_targets or config.candidates)
        return {"task_type": config.task, "metric": config.metric or ("mrr" if of_each else None)}
    task_type, several = config.task_type, config.task_type == "regression" and labels.shape[1] > 1
    # Of several amounts R2, for in an error of them all the largest unit hides the others.
    metric = config.metric or ("r2" if several else usual_metric(task_type))
    if task_type != "multiclass":
        return {"task_type": task_type, "metric": metric}
    num_classes = len(names) if names is not None else 0 if config.task == LAYOUT else config.num_classes
    return {"task_type": task_type, "metric": metric, "num_classes": num_classes}


def note_unknown(table: LabelFilesConfig, count: int, intake: Intake) -> None:
    """Say how many ids of a table of labels are left out, for no node has them."""
    if table.on_unknown_id == "drop" and count:
        intake.adjust(table, "unknown ids dropped", count)
        intake.hints.append(
            f"{table.names}: {count:,} ids are left out, for no node has them (labels.on_unknown_id: drop)"
        )


def read_labels(table: LabelFilesConfig, nodes: NodeSet, intake: Intake, labels: LabelStore) -> None:
    """Read labels that stand in a table of their own, a row a node. Raises DataError."""
    texts, numbers = labels.csv_kinds(table.label)
    seen = np.zeros(nodes.num_nodes, np.bool_)
    rows, num_unknown = 0, 0
    for batch in intake.batches(table, [table.id, *table.label], (*texts, *nodes.texts(table.id)), numbers):
        node_ids = nodes.look_up(batch, table.id)
        if table.on_unknown_id == "error":
            nodes.refuse_unknown(batch, table.id, node_ids)
        num_unknown += int(np.count_nonzero(node_ids == UNKNOWN))
        rows += len(node_ids)
        batch, codes = batch.keep(node_ids >= 0), node_ids[node_ids >= 0]
        again = seen[codes] | occurred_earlier(codes, 0)
        ids = batch.column(table.id)
        message = lambda row, ids=ids: f"node {ids[row].as_py()!r} has two labels"  # noqa: E731
        batch.wrong(again, table.id, "a node has two labels", message)
        seen[codes] = True
        labels.put(batch, table.label, codes)
    if rows == 0:
        raise DataError("has no rows", path=table.names)
    note_unknown(table, num_unknown, intake)
