"""Nodes of users' tables: ids, labels, split column, features.

A node table is read twice: first ids, labels and times, which decide classes and splits, then features, which are
written as they come. Memory: the id index, 8 to 16 bytes a node for labels, times and the split, and where rows repeat
an id 9 bytes a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from configs.errors import DataError
from configs.source_files import user_path
from tasks.arrays import Array
from tasks.ingest.graph_tables.features import FeatureReader
from tasks.ingest.graph_tables.labels import LabelStore
from tasks.ingest.ids.node_set import NodeSet
from tasks.ingest.raw_rows import NpyRows, Taker
from tasks.ingest.tables.batches import TableBatch
from tasks.ingest.tables.columns import end_to_end, rows_of
from tasks.ingest.tables.intake import Intake, table_files
from tasks.ingest.tables.table_configs import NodeTableConfig
from tasks.ingest.tables.times import TimeReader
from tasks.ingest.writer import DatasetWriter
from tasks.readers.columns import is_text
from tasks.storage.manifests import FeatureColumn

SPLIT_CODES = {"train": 0, "valid": 1, "val": 1, "validation": 1, "dev": 1, "test": 2}
_ROWS = 1 << 18


class SplitColumn:
    """A column whose cells say train, valid or test."""

    def __init__(self, column: str) -> None:
        self.column = column
        self.texts: tuple[str, ...] = (column,)
        """Columns of a CSV that must be read as texts."""

    def codes(self, batch: TableBatch) -> Array:
        """Return 0, 1, 2 or -1 (none), int8 (n,)."""
        values = batch.column(self.column)
        if not is_text(values.type) and not pa.types.is_null(values.type):
            batch.wrong_column(self.column, f"is {values.type}; train, valid and test are needed")
            return np.zeros(len(values), np.int8)
        texts = compute.fill_null(values.cast(pa.string()), "")
        words = compute.utf8_lower(compute.utf8_trim_whitespace(texts))
        out = np.full(len(values), -2, np.int8)
        for word, code in (*SPLIT_CODES.items(), ("", -1)):
            out[np.asarray(compute.equal(words, word))] = code
        message = "unknown split {!r}; train, valid and test are known"
        batch.wrong(out == -2, self.column, "unknown split", lambda row: message.format(texts[row].as_py()))
        return out


class GraphColumn:
    """The column of a node table, or of one of edges, that says in which graph a row is."""

    def __init__(self, column: str, graphs: NodeSet, ids: tuple[str, ...]) -> None:
        """`ids`: columns of ids that begin anew in each graph."""
        self.column, self.graphs, self.ids = column, graphs, ids
        self.texts = graphs.texts(column)
        """Columns of a CSV that must be read as texts."""

    def codes(self, batch: TableBatch) -> Array:
        """Return the number of each row's graph, int64 (n,); unknown ones are gathered."""
        codes = self.graphs.look_up(batch, self.column)
        way_out = "; give each graph a row there, with an empty label where there is none"
        self.graphs.refuse_unknown(batch, self.column, codes, way_out=way_out)
        return np.maximum(codes, 0)

    def with_own_ids(self, batch: TableBatch) -> TableBatch:
        """Return the batch with ids that are one node's each: `7 of m12`; an empty cell stays one."""
        data = batch.data
        graph = batch.column(self.column).cast(pa.string())
        for name in self.ids:
            joined = compute.binary_join_element_wise(batch.column(name).cast(pa.string()), graph, " of ")
            data = data.set_column(data.schema.get_field_index(name), name, joined)
        return replace(batch, data=data) if self.ids else batch


def scan_nodes(
    nodes: NodeSet, intake: Intake, labels: LabelStore | None, coded: SplitColumn | GraphColumn | None
) -> Array | None:
    """Read ids, labels, times and the column `coded` of a node table; return its codes of each node, or None."""
    table = nodes.config
    if not table.files:
        if table.count is not None:
            nodes.settle_dense(table.count)
        return None
    clock = TimeReader(table.time, table.time_format) if table.time else None
    texts, numbers = labels.csv_kinds(table.label) if labels else ((), ())
    texts = (*texts, *(clock.texts if clock else ()), *(coded.texts if coded else ()))
    texts += nodes.texts(table.id) if table.id else ()
    columns = [name for name in (table.id, table.time) if name]
    columns += [*(table.label if labels else ()), *((coded.column,) if coded else ())]
    # A table without anything to look at still says how many nodes there are.
    columns = columns or [*table.features, *table.categorical, *table.texts, *table_files(table).column_names()][:1]
    owners, times, count = [], [], 0
    for whole in intake.batches(table, columns, texts, numbers, clock.inferred if clock else ()):
        whole = coded.with_own_ids(whole) if isinstance(coded, GraphColumn) else whole
        batch, rows = nodes.add_rows(whole) if table.id else (whole, np.arange(count, count + whole.num_rows))
        count += batch.num_rows
        if labels:
            labels.put(batch, table.label, rows)
        if coded:
            owners.append(coded.codes(batch))
        if clock:
            times.append(clock.read(batch))
    if count == 0:
        raise DataError("has no rows", path=table.names)
    kept = None
    if table.id:
        kept, order = nodes.drop_repeated()
        if order is not None and labels:
            labels.renumber(order)
    else:
        nodes.settle_dense(count)
    nodes.time = _kept(times, kept)
    return _kept(owners, kept)


def _kept(parts: list[Array], kept: Array | None) -> Array | None:
    if not parts:
        return None
    whole = np.concatenate(parts)
    return whole if kept is None else whole[kept]


def write_nodes(
    nodes: NodeSet,
    intake: Intake,
    writer: DatasetWriter,
    labels: Array | None,
    tables: Sequence[NodeTableConfig] = (),
    order: Array | None = None,
) -> tuple[FeatureColumn, ...]:
    """Write `nodes/TYPE`; return its features. `tables` are those of all types. Raises DataError.

    `order`: which row becomes each node, int64 (num_nodes,), for which the table is in memory once; None: as they come.
    """
    table = nodes.config
    reader = FeatureReader(table.features, table.categorical, table.missing_by_column, table.texts)
    taker, features = None, []
    if table.feature_file:
        path = user_path(table.feature_file)
        matrix = NpyRows(path)
        (rows, *width), _ = matrix.shape()
        if rows != nodes.num_nodes:
            raise DataError(f"has {rows:,} rows, there are {nodes.num_nodes:,} {nodes.kind} nodes", path=path)
        taker = Taker(matrix.path, matrix.chunks(np.float32), nodes.num_nodes, "the node table")
        features.append(FeatureColumn(column="feat", kind="numeric", dim=width[0] if width else 1))
    parts: list[dict[str, Array]] = []
    with writer.table(f"nodes/{nodes.kind}") as out:
        first = 0
        for columns, n in _feature_parts(nodes, intake, reader, tables):
            if intake.problems:  # it goes on for the sake of further mistakes; nobody will see what is written
                continue
            written: dict[str, Array] = {"node_id": np.arange(first, first + n, dtype=np.int64)}
            if taker is not None:
                written["feat"] = taker.take(n)
            written |= columns
            if labels is not None:
                written["label"] = labels[first : first + n]
            if nodes.time is not None:
                written["time"] = nodes.time[first : first + n]
            if order is None:
                out.write(written)
            else:
                parts.append(written)
            first += n
        intake.problems.raise_any()
        if order is not None:
            whole = {name: end_to_end([part[name] for part in parts]) for name in parts[0]}
            in_order = {name: rows_of(values, order) for name, values in whole.items()}
            out.write(in_order | {"node_id": whole["node_id"]})
    reader.write_names(writer, f"categories/{nodes.kind}")
    reader.hint_at_long_texts(table, intake)
    for column, count in reader.num_empty.items():
        intake.adjust(table, f"empty cells of {column} filled", count)
    return (*features, *reader.describe())


def _feature_parts(
    nodes: NodeSet, intake: Intake, reader: FeatureReader, tables: Sequence[NodeTableConfig]
) -> Iterator[tuple[dict[str, Array], int]]:
    """Yield feature columns and the number of rows, in the order of the nodes."""
    table, first = nodes.config, 0
    columns = [*reader.features, *reader.categorical, *reader.texts]
    if table.files and columns:
        read = 0
        reader.look_ahead(table, intake, [one for one in tables if one is not table])
        for whole in intake.batches(table, columns, (*reader.categorical, *reader.texts), reader.features):
            batch = whole if nodes.kept is None else whole.keep(nodes.kept[read : read + whole.num_rows])
            read += whole.num_rows
            first += batch.num_rows
            yield reader.read(batch), batch.num_rows
        if nodes.num_added and "error" in reader.missing.values():
            raise DataError(
                f"{nodes.num_added:,} {nodes.kind} nodes that only edges name have no features; set nodes.missing "
                "(mean or zero), or edges.on_unknown_id: drop",
                path=table.names,
            )
    for start in range(first, max(1, nodes.num_nodes), _ROWS):
        n = min(_ROWS, nodes.num_nodes - start)
        yield reader.absent(n), n
