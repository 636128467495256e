"""Nodes of users' tables: ids, labels, split column, features.

A node table is read twice: first ids, labels and times, which decide classes and splits, then features, which are
written as they come. Memory: the id index, and 8 to 16 bytes a node for labels, times and the split.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
from numpy.typing import NDArray

from configs.errors import DataError
from tasks.ingest.id_index import IdIndex, is_text
from tasks.ingest.id_maps import whole_numbers
from tasks.ingest.labels import LabelKind, to_labels
from tasks.ingest.raw_rows import NpyRows, Taker
from tasks.ingest.table_columns import FeatureReader, ids, numbers, times
from tasks.ingest.table_files import Batch, TableFiles
from tasks.ingest.tables import FilesConfig, NodesConfig, Tables
from tasks.ingest.writer import DatasetWriter
from tasks.manifests import FeatureColumn

Array = NDArray[Any]

SPLIT_CODES = {"train": 0, "valid": 1, "val": 1, "validation": 1, "dev": 1, "test": 2}
RESERVED = frozenset({"node_id", "src", "dst", "label", "time", "weight", "feat"})
_ROWS = 1 << 18


def table_files(config: FilesConfig) -> TableFiles:
    """Return the files that a section names."""
    return TableFiles(config.files, config.format, config.header, config.delimiter)


def stored_name(column: str) -> str:
    """Return the name under which a feature column is stored: names that mean something else get a `_`."""
    return f"{column}_" if column in RESERVED else column


class NodeSet:
    """Nodes of one type: how original ids become dense ones."""

    def __init__(self, kind: str, config: NodesConfig | None) -> None:
        self.kind = kind
        self.config = config
        self.index: IdIndex | None = IdIndex()
        """None once ids turn out to be 0..n-1 already."""
        self.num_nodes = 0
        self.time: Array | None = None
        self._source: object = "the edges"

    @property
    def has_files(self) -> bool:
        """Whether the nodes have a table of their own."""
        return self.config is not None and bool(self.config.files)

    def settle(self) -> None:
        """All ids are known: drop the index where it would say nothing."""
        assert self.index is not None
        self.num_nodes = self.index.count
        if self.num_nodes and not self.index.is_text:
            keys = np.asarray(self.index.keys())
            if np.array_equal(keys, np.arange(len(keys))):
                self.index = None

    def settle_dense(self, count: int) -> None:
        """Ids are the numbers 0..count-1."""
        self.num_nodes, self.index = count, None

    def texts(self, force: bool, *columns: str) -> tuple[str, ...]:
        """Return those columns of a CSV that must be read as texts to be looked up here."""
        return columns if force or (self.index is not None and self.index.is_text) else ()

    def add(self, batch: Batch, column: str, *, unique: bool) -> Array:
        """Return dense ids, new ones for new nodes. Raises DataError for a repetition if they must be unique."""
        assert self.index is not None
        first = self.index.count
        values = ids(batch, column)
        codes = self._guarded(batch, column, lambda index: index.add(values))
        if unique:
            twice = np.flatnonzero(codes != np.arange(first, first + len(codes)))
            if len(twice):
                row = int(twice[0])
                raise batch.error(f"the id {values[row].as_py()!r} stands in the table twice", row, column)
        self._source = batch.path
        return codes

    def find(self, batch: Batch, column: str) -> Array:
        """Return dense ids, int64; out of range ones where ids are dense already. Raises DataError for unknown ids."""
        values = ids(batch, column)
        if self.index is None:
            if is_text(values.type):
                raise batch.error(
                    f"the id {values[0].as_py()!r} is a text; those of {self.kind} nodes are numbers", 0, column
                )
            return np.asarray(values)
        codes = self._guarded(batch, column, lambda index: index.find(values))
        unknown = np.flatnonzero(codes < 0)
        if len(unknown):
            row = int(unknown[0])
            raise batch.error(
                f"unknown {self.kind} id {values[row].as_py()!r}: it is not in {self._source}", row, column
            )
        return codes

    def _guarded(self, batch: Batch, column: str, look_up: Any) -> Array:
        try:
            found: Array = look_up(self.index)
        except TypeError as error:
            raise batch.error(
                f"{error} (in {self._source}); dataset.text_ids=true reads both as texts", 0, column
            ) from None
        return found

    def check_range(self, batch: Batch, column: str, codes: Array) -> None:
        """Raise DataError where a dense id is not below the number of nodes."""
        wrong = np.flatnonzero(codes >= self.num_nodes)
        if len(wrong):
            row = int(wrong[0])
            raise batch.error(f"node id {int(codes[row])} is not in 0..{self.num_nodes - 1}", row, column)

    def write_ids(self, writer: DatasetWriter) -> None:
        """Write the id map, where ids changed."""
        if self.index is None or self.num_nodes == 0:
            return
        keys = self.index.keys()
        with writer.table(f"ids/{self.kind}") as table:
            for first in range(0, self.num_nodes, _ROWS):
                part = keys.slice(first, _ROWS)
                table.write({"node_id": np.arange(first, first + len(part), dtype=np.int64), "original_id": part})


class LabelStore:
    """Labels as they are read, classes numbered at the end."""

    def __init__(self, config: Tables.Config) -> None:
        width = len(config.labels.label) if config.labels else 1
        self._kind = LabelKind(config.task_type, config.num_classes or 2, width)
        self._named = config.task_type == "multiclass" and config.num_classes is None
        self._classes = IdIndex()
        self._parts: list[tuple[Array, Array]] = []
        self._path: Path | None = None

    def csv_kinds(self, columns: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
        """Return how the label columns of a CSV are read."""
        return {"texts": columns} if self._named else {"numbers": columns}

    def put(self, batch: Batch, columns: tuple[str, ...], rows: Array) -> None:
        """Remember the labels of nodes `rows`. Raises DataError."""
        self._path = batch.path
        if self._named:
            self._parts.append((rows, self._class_codes(batch, columns[0])))
            return
        values = np.column_stack([numbers(batch, column, missing=True) for column in columns])
        if self._kind.task_type == "multiclass":
            values[values == -1] = np.nan
        kind = LabelKind(self._kind.task_type, self._kind.num_classes, values.shape[1])
        self._parts.append((rows, to_labels(values, kind, batch.path, batch.first_row, ", ".join(columns))))

    def _class_codes(self, batch: Batch, column: str) -> Array:
        values = batch.column(column)
        if pa.types.is_floating(values.type):
            whole = numbers(batch, column, missing=True)
            wrong = np.flatnonzero(~np.isnan(whole) & (whole != np.floor(whole)))
            if len(wrong):
                raise batch.error(f"the class {whole[wrong[0]]} is not a whole number or a text", int(wrong[0]), column)
            values = pa.array(np.nan_to_num(whole, nan=-1).astype(np.int64))
        if is_text(values.type):
            texts = compute.fill_null(values.cast(pa.string()), "")
            none = np.asarray(compute.or_(compute.equal(texts, ""), compute.equal(texts, "-1")))
            known = texts.filter(pa.array(~none))
        elif pa.types.is_integer(values.type):
            filled = compute.fill_null(values.cast(pa.int64()), -1)
            none = np.asarray(filled) == -1
            known = filled.filter(pa.array(~none)).cast(pa.string())
        else:
            raise batch.error(f"classes are texts or whole numbers, not {values.type}", 0, column)
        codes = np.full(len(values), -1, np.int64)
        codes[~none] = self._classes.add(known)
        return codes

    def finish(self, num_nodes: int) -> tuple[Array, pa.Array | None]:
        """Return the `label` column and, where classes were found, their names in the order of their codes."""
        rows = np.concatenate([part[0] for part in self._parts])
        values = np.concatenate([part[1] for part in self._parts])
        if self._named:
            labels = np.full(num_nodes, -1, np.int64)
            names, rank = self._ordered_classes()
            labels[rows] = np.where(values >= 0, rank[values], -1)
            return labels, names
        shape = (num_nodes, *values.shape[1:])
        labels = np.full(shape, -1, np.int64) if values.ndim == 1 else np.full(shape, np.nan, np.float32)
        labels[rows] = values
        return labels, None

    def _ordered_classes(self) -> tuple[pa.Array, Array]:
        """Classes in ascending order, as numbers where all are numbers."""
        if self._classes.count < 2:
            raise DataError(f"has {self._classes.count} class; at least two are needed", path=self._path)
        keys = whole_numbers(self._classes.keys())
        order = np.asarray(compute.sort_indices(keys))
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        return keys.take(pa.array(order)).cast(pa.string()), rank


class SplitColumn:
    """A column whose cells say train, valid or test."""

    def __init__(self, column: str) -> None:
        self.column = column

    def codes(self, batch: Batch) -> Array:
        """Return 0, 1, 2 or -1 (none), int8 (n,). Raises DataError for other words."""
        values = batch.column(self.column)
        if not is_text(values.type) and not pa.types.is_null(values.type):
            raise batch.error(f"is {values.type}; train, valid and test are needed", 0, self.column)
        texts = compute.fill_null(values.cast(pa.string()), "")
        words = compute.utf8_lower(compute.utf8_trim_whitespace(texts))
        out = np.full(len(values), -2, np.int8)
        for word, code in (*SPLIT_CODES.items(), ("", -1)):
            out[np.asarray(compute.equal(words, word))] = code
        wrong = np.flatnonzero(out == -2)
        if len(wrong):
            row = int(wrong[0])
            raise batch.error(
                f"unknown split {texts[row].as_py()!r}; train, valid and test are known", row, self.column
            )
        return out


def scan_nodes(
    nodes: NodeSet, config: Tables.Config, labels: LabelStore | None, split: SplitColumn | None
) -> Array | None:
    """Read ids, labels, times and the split column of a node table; return the split of each node, int8, or None."""
    table = nodes.config
    assert table is not None
    if not table.files:
        assert table.count is not None or nodes.index is not None
        if table.count is not None:
            nodes.settle_dense(table.count)
        return None
    wanted = [*((table.id,) if table.id else ()), *((table.time,) if table.time else ())]
    wanted += [*(table.label if labels else ()), *((split.column,) if split else ())]
    kinds = {"texts": (), "numbers": ()} | (labels.csv_kinds(table.label) if labels else {})
    texts = [
        *kinds["texts"],
        *((table.id,) if config.text_ids and table.id else ()),
        *((split.column,) if split else ()),
    ]
    owners, clock, count = [], [], 0
    # A table without anything to look at still says how many nodes there are.
    columns = wanted or [*table.features, *table.categorical][:1]
    for batch in table_files(table).batches(columns, texts, kinds["numbers"]):
        n = batch.data.num_rows
        rows = nodes.add(batch, table.id, unique=True) if table.id else np.arange(count, count + n)
        count += n
        if labels:
            labels.put(batch, table.label, rows)
        if split:
            owners.append(split.codes(batch))
        if table.time:
            clock.append(times(batch, table.time))
    if count == 0:
        raise DataError("has no rows", path=", ".join(table.files))
    if table.id:
        nodes.settle()
    else:
        nodes.settle_dense(count)
    nodes.time = np.concatenate(clock) if clock else None
    return np.concatenate(owners) if owners else None


def write_nodes(nodes: NodeSet, writer: DatasetWriter, labels: Array | None) -> tuple[FeatureColumn, ...]:
    """Write `nodes/TYPE`; return its features. Raises DataError."""
    table = nodes.config
    reader = FeatureReader(table.features, table.categorical) if table else FeatureReader((), ())
    matrix, taker = None, None
    if table and table.feature_file:
        path = Path(table.feature_file).expanduser()
        if not path.is_file():
            raise DataError("there is no such file", path=path)
        matrix = NpyRows(path)
        shape, _ = matrix.shape()
        if shape[0] != nodes.num_nodes:
            raise DataError(f"has {shape[0]:,} rows, there are {nodes.num_nodes:,} {nodes.kind} nodes", path=path)
        taker = Taker(matrix.path, matrix.chunks(np.float32), nodes.num_nodes, "the node table")
    with writer.table(f"nodes/{nodes.kind}") as out:
        first = 0
        for columns, n in _feature_parts(nodes, reader):
            written: dict[str, Array] = {"node_id": np.arange(first, first + n, dtype=np.int64)}
            if taker is not None:
                written["feat"] = taker.take(n)
            written |= columns
            if labels is not None:
                written["label"] = labels[first : first + n]
            if nodes.time is not None:
                written["time"] = nodes.time[first : first + n]
            out.write(written)
            first += n
    _write_categories(reader, writer, nodes.kind)
    features = tuple(f.model_copy(update={"column": stored_name(f.column)}) for f in reader.describe())
    if matrix is not None:
        shape, _ = matrix.shape()
        width = shape[1] if len(shape) == 2 else 1
        features = (FeatureColumn(column="feat", kind="numeric", dim=width), *features)
    return features


def _feature_parts(nodes: NodeSet, reader: FeatureReader) -> Iterator[tuple[dict[str, Array], int]]:
    """Yield feature columns and the number of rows, in the order of the nodes."""
    table = nodes.config
    if table is not None and table.files and (reader.features or reader.categorical):
        columns = [*reader.features, *reader.categorical]
        reader.number_categories(table_files(table))
        for batch in table_files(table).batches(columns, reader.categorical, reader.features):
            yield {stored_name(name): values for name, values in reader.read(batch).items()}, batch.data.num_rows
        return
    for first in range(0, max(1, nodes.num_nodes), _ROWS):
        yield {}, min(_ROWS, nodes.num_nodes - first)


def _write_categories(reader: FeatureReader, writer: DatasetWriter, kind: str) -> None:
    """Keep what the codes of categorical columns mean."""
    for column, index in reader.codes.items():
        if index.count:
            codes = np.arange(index.count, dtype=np.int64)
            writer.write(f"categories/{kind}/{stored_name(column)}", {"code": codes, "name": index.keys()})
