"""Labels as pairs of a node and a label that it has, or as groups of nodes: how communities are published.

Memory: 16 bytes a pair, 64 while they are sorted, and at the end the matrix of labels, 4 bytes for each node and label
that is kept.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from configs.errors import DataError
from tasks.arrays import Array
from tasks.ingest.graph_tables.labels import note_unknown
from tasks.ingest.ids.id_index import IdIndex
from tasks.ingest.ids.node_set import UNKNOWN, NodeSet
from tasks.ingest.tables.batches import TableBatch
from tasks.ingest.tables.intake import Intake
from tasks.ingest.tables.table_configs import LabelFilesConfig
from tasks.readers.columns import is_text, to_int64, whole_numbers
from tasks.readers.limits import MAX_ROW_BYTES, check_memory

_LABEL_BYTES = 4
_PAIR_BYTES = 48
"""What a pair takes while pairs are sorted."""
_LINE = "0"
"""Column of a file of groups: its lines."""


@dataclass(frozen=True)
class _GroupBatch(TableBatch):
    """Ids of groups end to end, each of which stands in a line (row) at a place (column)."""

    lines: Array = field(default_factory=lambda: np.empty(0, np.int64))
    """Row of the file of each id, int64 (n,)."""
    places: Array = field(default_factory=lambda: np.empty(0, np.int64))
    """Which of its line's ids it is, from 0, int64 (n,)."""

    def error(self, message: str, row: int | None, column: object) -> DataError:
        if row is None:
            return super().error(message, row, column)
        at = row if self.kept is None else int(np.flatnonzero(self.kept)[row])
        return DataError(message, path=self.path, row=int(self.lines[at]), column=int(self.places[at]))


class Memberships:
    """Nodes and the labels that each has, as they are read."""

    names_table: ClassVar[str] = "labels"
    """Table of the labels' names."""

    def __init__(self, table: LabelFilesConfig) -> None:
        """`table` has form: pairs or groups."""
        self.table = table
        self._labels = IdIndex()
        self._parts: list[tuple[Array, Array]] = []
        self._num_unknown = 0

    def read(self, nodes: NodeSet, intake: Intake) -> None:
        """Read all files; what is wrong with their rows is gathered. Raises DataError where they have none."""
        rows, read = 0, self._pairs if self.table.form == "pairs" else self._groups
        for batch, column, labels, usable in read(nodes, intake):
            node_ids = nodes.look_up(batch, column)
            rows += len(node_ids)
            if self.table.on_unknown_id == "error":
                nodes.refuse_unknown(batch, column, node_ids, way_out="; labels.on_unknown_id: drop leaves it out")
            self._num_unknown += int(np.count_nonzero(node_ids == UNKNOWN))
            good = usable & (node_ids >= 0)
            if not intake.problems:
                self._parts.append((node_ids[good], self._labels.add(labels.filter(pa.array(good)))))
        if rows == 0:
            raise DataError("has no rows", path=self.table.names)

    def _pairs(self, nodes: NodeSet, intake: Intake) -> Iterator[tuple[TableBatch, str, pa.Array, Array]]:
        """Yield batches, the column of ids, labels as texts, and which rows have one, bool (n,)."""
        column, label = self.table.id, self.table.label[0]
        for batch in intake.batches(self.table, [column, label], [label, *nodes.texts(column)]):
            names = _names(batch, label)
            missing = np.asarray(compute.equal(names, ""))
            why = "the label is missing; every row of form: pairs needs one: a node without labels has no row"
            batch.wrong(missing, label, "the label is missing", why)
            yield batch, column, names, ~missing

    def _groups(self, nodes: NodeSet, intake: Intake) -> Iterator[tuple[TableBatch, str, pa.Array, Array]]:
        """Yield batches of ids, their column, the number of each one's line over all files, and that all have one."""
        table, first = self.table.model_copy(update={"format": "edgelist"}), 0
        for lines in intake.batches(table, [_LINE], [_LINE], whole_lines=True):
            batch = _split(lines, table.delimiter, texts=bool(nodes.texts(_LINE)))
            numbers = batch.lines - lines.first_row + first
            first += lines.num_rows
            yield batch, _LINE, pa.array(numbers), np.ones(len(numbers), np.bool_)

    def finish(self, num_nodes: int, intake: Intake) -> tuple[Array, pa.Array]:
        """Return the column `label`, float32 (num_nodes, T), and the names of its T labels, ascending.

        Raises DataError: no label is left, or more than a row or the memory can hold.
        """
        count = sum(len(part[0]) for part in self._parts)
        check_memory(_PAIR_BYTES * count, f"a list of {count:,} pairs of a node and a label", self.table.names)
        nodes = np.concatenate([part[0] for part in self._parts])
        codes = np.concatenate([part[1] for part in self._parts])
        note_unknown(self.table, self._num_unknown, intake)
        if not len(nodes):
            why = f"has {self._num_unknown:,} nodes, none of which is in the graph; are these their ids?"
            raise DataError(why, path=self.table.names)
        once = np.unique(nodes * self._labels.count + codes)
        intake.adjust(self.table, "rows that say again what label a node has dropped", len(nodes) - len(once))
        nodes, codes = np.divmod(once, self._labels.count)
        names = whole_numbers(self._labels.keys().cast(pa.string()))
        kept = self._kept(np.bincount(codes, minlength=self._labels.count), names)
        intake.adjust(self.table, "labels of too few nodes left out", self._labels.count - len(kept))
        if len(kept) * _LABEL_BYTES > MAX_ROW_BYTES:
            words = f"has {len(kept):,} labels; a node's may take {MAX_ROW_BYTES:,} bytes, {_LABEL_BYTES} a label"
            raise DataError(f"{words}: min_members or most keeps fewer", path=self.table.names)
        what = f"the matrix of {num_nodes:,} nodes by {len(kept):,} labels (min_members or most keeps fewer)"
        check_memory(num_nodes * len(kept) * _LABEL_BYTES, what, self.table.names)
        place = np.full(self._labels.count, -1, np.int64)
        place[kept] = np.arange(len(kept))
        there = place[codes] >= 0
        column = np.full((num_nodes, len(kept)), np.nan, np.float32)
        column[nodes[there]] = 0
        column[nodes[there], place[codes[there]]] = 1
        kept_names = names.take(pa.array(kept)).cast(pa.string())
        intake.hint_at_similar_texts(self.table, ", ".join(self.table.label), "labels", kept_names)
        return column, kept_names

    def _kept(self, members: Array, names: pa.Array) -> Array:
        """Return the codes of the labels that stay, in the order of their names; `members` are the nodes of each."""
        order = np.asarray(compute.sort_indices(names))
        many = order[members[order] >= self.table.min_members]
        if not len(many):
            largest = order[np.argmax(members[order])]
            raise DataError(
                f"has no label of {self.table.min_members:,} nodes (min_members); the most, {members[largest]:,}, have "
                f"{str(names[largest])!r}",
                path=self.table.names,
            )
        largest_first = np.argsort(-members[many], kind="stable")  # of equal ones the first by name
        return many[np.sort(largest_first[: self.table.most])]


def _names(batch: TableBatch, column: str) -> pa.Array:
    values = batch.column(column)
    plain = is_text(values.type) or pa.types.is_integer(values.type) or pa.types.is_boolean(values.type)
    if not plain and not pa.types.is_null(values.type):
        batch.wrong_column(column, f"is {values.type}; labels are texts or whole numbers")
        return pa.array(["-"] * len(values))
    return compute.fill_null(values.cast(pa.string()), "")


def _split(batch: TableBatch, delimiter: str | None, *, texts: bool) -> _GroupBatch:
    """Return the ids that stand in lines: texts, or int64 where all are whole numbers and not `texts`."""
    lines = batch.column(_LINE)
    if delimiter:
        cells = compute.split_pattern(lines, delimiter)
    else:
        cells = compute.utf8_split_whitespace(compute.utf8_trim_whitespace(lines))
    counts = np.asarray(compute.list_value_length(cells))
    line = np.repeat(np.arange(len(counts)), counts)
    place = np.arange(len(line)) - np.repeat(np.cumsum(counts) - counts, counts)
    ids = compute.utf8_trim_whitespace(cells.flatten())
    if not texts:
        with contextlib.suppress(pa.ArrowInvalid):  # the one that is no number is named when it is looked up
            ids = to_int64(ids)
    data = pa.RecordBatch.from_arrays([ids], names=[_LINE])
    return _GroupBatch(batch.path, batch.first_row, data, batch.problems, lines=line + batch.first_row, places=place)
