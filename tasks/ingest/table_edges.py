"""Edges of users' tables: original ids looked up, relations told apart, link splits dealt out on the way.

Memory: one batch, plus 8 bytes an edge only where a link task is split by time (the cut has to be found first).
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
from numpy.typing import NDArray

from configs.errors import DataError, RecipeError
from tasks.graph_store import id_dtype
from tasks.ingest.edges import EdgeCheck
from tasks.ingest.table_columns import FeatureReader, numbers, times
from tasks.ingest.table_files import Batch
from tasks.ingest.table_nodes import NodeSet, stored_name, table_files
from tasks.ingest.tables import EdgesConfig, Tables
from tasks.ingest.writer import DatasetWriter, TableWriter
from tasks.manifests import EdgeType
from tasks.stage import StageContext

Array = NDArray[Any]
Triplet = tuple[str, str, str]

_MAX_RELATIONS = 256


def discover_nodes(edges: EdgesConfig, missing: dict[str, NodeSet], text_ids: bool) -> None:
    """Add the ids that an edge table holds to node types without a table of their own."""
    columns = [
        (column, missing[kind])
        for column, kind in ((edges.source, edges.source_type), (edges.target, edges.target_type))
        if kind in missing
    ]
    names = [column for column, _ in columns]
    for batch in table_files(edges).batches(names, names if text_ids else ()):
        for column, nodes in columns:
            nodes.add(batch, column, unique=False)


class _Sink:
    """The table of one (source type, relation, target type)."""

    def __init__(self, triplet: Triplet, table: TableWriter, check: EdgeCheck) -> None:
        self.triplet, self.table, self.check = triplet, table, check


class EdgeReader:
    """Reads one edge table into one table for each relation."""

    def __init__(self, edges: EdgesConfig, config: Tables.Config, nodes: dict[str, NodeSet]) -> None:
        self.edges, self.config = edges, config
        self.source, self.target = nodes[edges.source_type], nodes[edges.target_type]
        self.features = FeatureReader(edges.features, edges.categorical)
        self.sinks: dict[str, _Sink] = {}
        self.kind = id_dtype(max(self.source.num_nodes, self.target.num_nodes))

    def read(self, writer: DatasetWriter, context: StageContext, taken: set[Triplet], splits: Any = None) -> None:
        """Write all edges; `splits` (a link splitter) takes those that do not train. Raises DataError."""
        edges = self.edges
        plain = [name for name in (edges.weight, edges.time, edges.relation_column) if name]
        columns = [edges.source, edges.target, *plain, *edges.features, *edges.categorical]
        texts = [*edges.categorical, *((edges.relation_column,) if edges.relation_column else ())]
        texts += self.source.texts(self.config.text_ids, edges.source)
        texts += self.target.texts(self.config.text_ids, edges.target)
        if splits is not None and splits.column:
            columns.append(splits.column)
            texts.append(splits.column)
        values = [*((edges.weight,) if edges.weight else ()), *edges.features]
        self.features.number_categories(table_files(edges))
        count = 0
        with ExitStack() as stack:
            for batch in table_files(edges).batches(columns, texts, values):
                parts = self._columns(batch)
                if splits is not None:
                    parts = splits.deal(batch, parts, count)
                count += batch.data.num_rows
                self._deliver(batch, parts, writer, stack, taken)
                context.progress(count, count, "edges")
            if not self.sinks:
                raise DataError("has no edges", path=", ".join(edges.files))

    def _columns(self, batch: Batch) -> dict[str, Array]:
        edges = self.edges
        src, dst = self.source.find(batch, edges.source), self.target.find(batch, edges.target)
        self.source.check_range(batch, edges.source, src)
        self.target.check_range(batch, edges.target, dst)
        parts: dict[str, Array] = {"src": src.astype(self.kind), "dst": dst.astype(self.kind)}
        if edges.weight:
            weight = numbers(batch, edges.weight)
            if weight.ndim != 1:
                raise batch.error("is a column of lists; a weight is a number", 0, edges.weight)
            parts["weight"] = weight.astype(np.float32)
        if edges.time:
            parts["time"] = times(batch, edges.time)
        return parts | {stored_name(name): values for name, values in self.features.read(batch).items()}

    def _deliver(
        self, batch: Batch, parts: dict[str, Array], writer: DatasetWriter, stack: ExitStack, taken: set[Triplet]
    ) -> None:
        if self.edges.relation_column is None:
            self._write(self._sink(self.edges.relation, writer, stack, taken), parts)
            return
        names = batch.column(self.edges.relation_column)
        if names.null_count:
            row = int(np.flatnonzero(np.asarray(compute.is_null(names)))[0])
            raise batch.error("the relation is missing", row, self.edges.relation_column)
        encoded = compute.dictionary_encode(names.cast(pa.string()))
        codes = np.asarray(encoded.indices)
        for code, name in enumerate(encoded.dictionary.to_pylist()):
            chosen = codes == code
            self._write(
                self._sink(name, writer, stack, taken), {column: values[chosen] for column, values in parts.items()}
            )

    def _sink(self, relation: str, writer: DatasetWriter, stack: ExitStack, taken: set[Triplet]) -> _Sink:
        if relation not in self.sinks:
            safe = re.sub(r"[^A-Za-z0-9_.-]", "_", relation)[:80] or "_"
            triplet = (self.edges.source_type, safe, self.edges.target_type)
            if triplet in taken:
                raise RecipeError(
                    f"dataset.edges: {' '.join(triplet)} stands twice; put the files into one table or name another "
                    "relation"
                )
            if len(self.sinks) == _MAX_RELATIONS:
                column = self.edges.relation_column
                raise RecipeError(f"dataset.edges.relation_column: {column} has more than {_MAX_RELATIONS} relations")
            taken.add(triplet)
            check = EdgeCheck(self.source.num_nodes, self.target.num_nodes, same_type=self.source is self.target)
            table = stack.enter_context(writer.table(f"edges/{'__'.join(triplet)}"))
            self.sinks[relation] = _Sink(triplet, table, check)
        return self.sinks[relation]

    @staticmethod
    def _write(sink: _Sink, parts: dict[str, Array]) -> None:
        sink.check.add(parts["src"], parts["dst"])
        sink.table.write(parts)

    def describe(self) -> list[EdgeType]:
        """Return the manifest's entries."""
        features = tuple(f.model_copy(update={"column": stored_name(f.column)}) for f in self.features.describe())
        return [
            EdgeType(
                source=sink.triplet[0],
                relation=sink.triplet[1],
                target=sink.triplet[2],
                num_edges=sink.check.num_edges,
                features=features,
            )
            for sink in self.sinks.values()
        ]
