"""Tables to nodes and edges: a row is a node and each of its foreign keys an edge, or a row is an edge itself.

An edge's time is the latest of its row's and of both its ends' times, so that an edge that is there has ends that are.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace

import numpy as np

from tasks.arrays import Array
from tasks.ingest.database.features import TableFeatures
from tasks.ingest.database.rows import EMPTY, TableRows, look_up
from tasks.ingest.edges import EdgeCheck
from tasks.ingest.ids.node_set import UNKNOWN
from tasks.ingest.tables.batches import TableBatch
from tasks.ingest.tables.columns import rows_of
from tasks.ingest.tables.intake import Intake
from tasks.ingest.writer import DatasetWriter, TableWriter
from tasks.storage.file_names import file_name, joined_name
from tasks.storage.graph_store import ALWAYS, id_dtype
from tasks.storage.manifests import EdgeType, FeatureColumn, NodeType

Ends = tuple[TableRows, TableRows]


class RelationWriter:
    """Edges of one type, as they are written."""

    def __init__(self, name: str, ends: Ends, writer: DatasetWriter, stack: ExitStack, *, timed: bool) -> None:
        """`timed`: whether the edges have times."""
        source, target = ends
        self.ends = ends
        self.triplet = (source.name, file_name(name), target.name)
        self.check = EdgeCheck(source.num_rows, target.num_rows, same_type=source is target)
        self.num_younger = 0
        """Edges whose target is younger than the row that names it."""
        self.features: tuple[FeatureColumn, ...] = ()
        self.is_key = False
        """Whether its edges lead from a row to what a foreign key of its own names."""
        self._kind = id_dtype(max(source.num_rows, target.num_rows))
        self._table: TableWriter = stack.enter_context(writer.table(f"edges/{joined_name(self.triplet)}"))
        self._timed = timed

    def write(self, src: Array, dst: Array, own_time: Array | None, features: Mapping[str, Array]) -> None:
        """Append edges, (n,) dense ids each, with their row's time."""
        columns = {"src": src.astype(self._kind), "dst": dst.astype(self._kind)}
        self.check.add(columns["src"], columns["dst"])
        if self._timed:
            time, younger = edge_times(src, dst, own_time, self.ends)
            self.num_younger += younger
            columns["time"] = time
        self._table.write({**columns, **features})

    def describe(self) -> EdgeType:
        """Return the manifest's entry."""
        source, relation, target = self.triplet
        count = self.check.num_edges
        return EdgeType(source=source, relation=relation, target=target, num_edges=count, features=self.features)


def edge_times(src: Array, dst: Array, own_time: Array | None, ends: Ends) -> tuple[Array, int]:
    """Return the times of edges, int64 (n,), and of how many the target is younger than their row."""
    source, target = ends
    time = np.full(len(src), ALWAYS, np.int64) if own_time is None else own_time.copy()
    if source.time is not None:
        np.maximum(time, source.time[src], out=time)
    if target.time is None:
        return time, 0
    target_time = target.time[dst]
    younger = int(np.count_nonzero(target_time > time)) if own_time is not None or source.time is not None else 0
    return np.maximum(time, target_time), younger


def check_keys(
    table: TableRows, tables: Mapping[str, TableRows], batch: TableBatch, counted: dict[str, int]
) -> dict[str, Array]:
    """Gather foreign keys that name no row, or count them by column, as the table's policy says.

    Returns what each column names, as `look_up` does.
    """
    option = f"dataset.tables.{table.name}.on_unknown_id"
    way_out = f"; {option}: count lets such rows stay without that edge, drop leaves them out"
    named: dict[str, Array] = {}
    for column, target in table.config.foreign.items():
        codes = named[column] = look_up(batch, column, tables[target].nodes)
        unknown = int(np.count_nonzero(codes == UNKNOWN))
        if not unknown:
            continue
        if table.config.on_unknown_id == "error":
            tables[target].nodes.refuse_unknown(batch, column, codes, way_out=way_out)
        else:
            counted[column] = counted.get(column, 0) + unknown
    return named


def row_times(
    table: TableRows, tables: Mapping[str, TableRows], own_time: Array | None, named: Mapping[str, Array]
) -> Array | None:
    """Return from when on rows are seen, int64 (n,): of rows that are edges from when both ends are; None: always.

    `own_time`: the rows' own times, int64 (n,); `named`: foreign key to what it names, as `look_up` returns it.
    """
    ends = [(tables[target], named[column]) for column, target in table.config.foreign.items()]
    if not table.config.is_link or all(end.time is None for end, _ in ends):
        return own_time
    time = np.full(len(ends[0][1]), ALWAYS, np.int64) if own_time is None else own_time.copy()
    for end, rows in ends:
        if end.time is not None:
            names_row = rows >= 0
            time[names_row] = np.maximum(time[names_row], end.time[rows[names_row]])
    return time


def write_rows_as_nodes(
    table: TableRows,
    tables: Mapping[str, TableRows],
    features: TableFeatures,
    writer: DatasetWriter,
    label: Array | None = None,
) -> tuple[NodeType, list[RelationWriter]]:
    """Write a table's nodes, ids and edges. What is wrong with its keys was said before.

    `label`: the column `label` of rows that are predicted themselves.
    """
    silent = Intake()
    with ExitStack() as stack:
        relations = {
            column: RelationWriter(column, ends, writer, stack, timed=any(end.time is not None for end in ends))
            for column, target in table.config.foreign.items()
            for ends in [(table, tables[target])]
        }
        for relation in relations.values():
            relation.is_key = True
        out = stack.enter_context(writer.table(f"nodes/{table.name}"))
        for chunk in features.chunks(tables, list(relations)):
            ids = np.arange(chunk.first, chunk.first + chunk.batch.num_rows, dtype=np.int64)
            columns: dict[str, Array] = {"node_id": ids} | features.read(chunk)
            if chunk.time is not None:
                columns["time"] = chunk.time
            if label is not None:
                columns["label"] = label[ids]
            if table.intake.problems:
                continue
            out.write(columns)
            quiet = replace(chunk.batch, problems=silent.problems)  # its mistakes were gathered before
            for column, relation in relations.items():
                dst = look_up(quiet, column, relation.ends[1].nodes)
                names_row = dst >= 0
                relation.write(ids[names_row], dst[names_row], None, {})
        table.intake.problems.raise_any()
    table.nodes.write_ids(writer)
    return NodeType(name=table.name, num_nodes=table.num_rows, features=features.describe()), list(relations.values())


def write_rows_as_edges(
    table: TableRows, tables: Mapping[str, TableRows], features: TableFeatures, writer: DatasetWriter
) -> RelationWriter:
    """Write a table whose rows join what its two foreign keys name. Rows that lack an end are counted, not written."""
    (source, target), keys = table.config.foreign.values(), list(table.config.foreign)
    ends, silent, without = (tables[source], tables[target]), Intake(), 0
    categories = features.columns.categories
    if categories:
        texts = (*categories, *table.texts_of_keys(tables, keys))
        for chunk in table.chunks((*keys, *categories), texts, intake=silent):
            src, dst = (look_up(chunk.batch, key, end.nodes) for key, end in zip(keys, ends, strict=True))
            joins = (src >= 0) & (dst >= 0)
            row_time = None if chunk.time is None else chunk.time[joins]
            times, _ = edge_times(src[joins], dst[joins], row_time, ends)
            features.learn_categories(chunk.batch.keep(joins), times)
        features.settle_categories(writer)
    with ExitStack() as stack:
        timed = any(one.time is not None for one in (table, *ends))
        relation = RelationWriter(table.name, ends, writer, stack, timed=timed)
        for chunk in features.chunks(tables, keys):
            columns = features.read(chunk)
            quiet = replace(chunk.batch, problems=silent.problems)
            src, dst = (look_up(quiet, key, end.nodes) for key, end in zip(keys, ends, strict=True))
            joins = (src >= 0) & (dst >= 0)
            without += int(np.count_nonzero((src == EMPTY) | (dst == EMPTY)))
            if not table.intake.problems:
                row_time = None if chunk.time is None else chunk.time[joins]
                some = {name: rows_of(values, joins) for name, values in columns.items()}
                relation.write(src[joins], dst[joins], row_time, some)
        table.intake.problems.raise_any()
    relation.features = features.describe()
    table.intake.adjust(table.config, "rows with an empty foreign key left out", without)
    if without:
        table.intake.hints.append(
            f"{table.config.names}: {without:,} of {table.num_rows:,} rows join nothing and are left out: a key "
            "of theirs is empty"
        )
    return relation
