"""Edges of users' tables: original ids looked up, relations told apart, link splits dealt out on the way.

Memory: one batch, plus 8 bytes an edge only where a link task is split by time (the cut has to be found first).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from configs.errors import DataError, RecipeError
from tasks.arrays import Array
from tasks.ingest.edges import ALL_ZERO, EdgeCheck
from tasks.ingest.graph_tables.features import FeatureReader
from tasks.ingest.graph_tables.nodes import GraphColumn
from tasks.ingest.ids.node_set import TWO_KINDS, UNKNOWN, NodeSet
from tasks.ingest.tables.batches import TableBatch
from tasks.ingest.tables.columns import rows_of, weights
from tasks.ingest.tables.intake import Intake
from tasks.ingest.tables.table_configs import EdgeTableConfig
from tasks.ingest.tables.times import TimeReader
from tasks.ingest.writer import DatasetWriter, TableWriter
from tasks.stage import StageContext
from tasks.storage.file_names import file_name, joined_name
from tasks.storage.graph_store import id_dtype
from tasks.storage.manifests import EDGE_CATEGORIES, EdgeType

Triplet = tuple[str, str, str]

_MAX_RELATIONS = 256


def discover_nodes(edges: EdgeTableConfig, nodes: dict[str, NodeSet], intake: Intake) -> None:
    """Add the ids that an edge table holds to those of `nodes`, by type."""
    ends = ((edges.source, edges.source_type), (edges.target, edges.target_type))
    columns = [(column, nodes[kind]) for column, kind in ends if kind in nodes]
    texts = [column for column, node_set in columns if node_set.texts(column)]
    first_pass = Intake()  # the edges are read once more, and their mistakes would count twice
    for batch in first_pass.batches(edges, [column for column, _ in columns], texts):
        for column, node_set in columns:
            node_set.discover(batch, column)
    intake.problems.take(first_pass.problems, TWO_KINDS)  # those are not met again: no node has an id then


class _Sink(NamedTuple):
    triplet: Triplet
    table: TableWriter
    check: EdgeCheck


class RelationNames:
    """Numbers the relations that a column names, in the order in which they come up."""

    def __init__(self, column: str | None) -> None:
        self.column = column
        self.names: list[str] = []

    def codes(self, batch: TableBatch, column: str | None = None, *, known_only: bool = False) -> Array:
        """Return the number of each row's relation, int32 (n,).

        `column`: another one than the edge table's; `known_only`: whether relations that did not come up are wrong.
        """
        column = column or self.column
        assert column is not None
        values = batch.column(column)
        batch.wrong(compute.is_null(values), column, "the relation is missing")
        if pa.types.is_nested(values.type):
            batch.wrong_column(column, f"holds {values.type}; relations are texts or whole numbers")
            return np.zeros(len(values), np.int32)
        encoded = compute.dictionary_encode(compute.fill_null(values.cast(pa.string()), "-"))
        numbers = {name: code for code, name in enumerate(self.names)}
        for name in encoded.dictionary.to_pylist():
            if not known_only:
                numbers.setdefault(name, len(numbers))
        self.names = list(numbers)
        by_name = np.array([numbers.get(name, -1) for name in encoded.dictionary.to_pylist()], np.int32)
        codes: Array = by_name[np.asarray(encoded.indices)]

        def message(row: int) -> str:
            return f"no edge of relation {values[row].as_py()!r} trains; known: {', '.join(self.names[:10])}"

        batch.wrong((codes < 0) & ~np.asarray(compute.is_null(values)), column, "unknown relation", message)
        return np.maximum(codes, 0)


class GraphEnds:
    """What becomes of the ends of edges where there are many graphs: new numbers, and edges counted by graph."""

    def __init__(
        self, edges: EdgeTableConfig, column: GraphColumn | None, graph_of: Array, place: Array | None
    ) -> None:
        """`graph_of`: int64 (num_nodes,), by rows of the node table; `place`: the new number of each; None: its row."""
        self.edges, self.column, self.graph_of, self.place = edges, column, graph_of, place
        self.num_edges = np.zeros(int(graph_of.max(initial=-1)) + 1, np.int64)

    def placed(self, batch: TableBatch, parts: dict[str, Array]) -> dict[str, Array]:
        """Return the ends by their new numbers; edges between graphs are gathered."""
        src, dst = parts["src"], parts["dst"]
        graphs = self.graph_of[src], self.graph_of[dst]
        sources, targets = batch.column(self.edges.source), batch.column(self.edges.target)

        def message(row: int) -> str:
            return (
                f"the edge joins {sources[row].as_py()!r} and {targets[row].as_py()!r}, nodes of two graphs; if ids "
                "begin anew in each graph, name the column of the graph: edges.graph"
            )

        if not batch.problems:  # unknown ends have no graph
            batch.wrong(graphs[0] != graphs[1], self.edges.target, "an edge joins two graphs", message)
        self.num_edges += np.bincount(graphs[0], minlength=len(self.num_edges))
        return parts if self.place is None else {name: self.place[ids].astype(ids.dtype) for name, ids in parts.items()}


class EdgeReader:
    """Reads one edge table into one table for each relation."""

    def __init__(
        self,
        edges: EdgeTableConfig,
        nodes: dict[str, NodeSet],
        intake: Intake,
        writer: DatasetWriter,
        taken: set[Triplet],
        graphs: GraphEnds | None = None,
    ) -> None:
        """`taken` gets the triplets of types and relation that are written."""
        self.edges, self.intake, self.writer, self.graphs = edges, intake, writer, graphs
        self.source, self.target = nodes[edges.source_type], nodes[edges.target_type]
        self.features = FeatureReader(edges.features, edges.categorical, edges.missing_by_column, edges.texts)
        self.times = TimeReader(edges.time, edges.time_format) if edges.time else None
        self.relations = RelationNames(edges.relation_column)
        self.sinks: dict[str, _Sink] = {}
        self.num_dropped = 0
        self.kind = id_dtype(max(self.source.num_nodes, self.target.num_nodes))
        self._taken, self._heaviest = taken, 0.0

    def read(self, context: StageContext, splits: Any = None, others: Sequence[EdgeTableConfig] = ()) -> None:
        """Write all edges; `splits` (a splitter) takes those that do not train; `others`: other tables of edges.

        Raises DataError: a file that cannot be read to its end, or holds no edges.
        """
        edges, graphs = self.edges, None if self.graphs is None else self.graphs.column
        plain = [name for name in (edges.weight, edges.time, edges.relation_column) if name]
        columns = [edges.source, edges.target, *plain, *edges.features, *edges.categorical, *edges.texts]
        texts = [*edges.categorical, *edges.texts, *((edges.relation_column,) if edges.relation_column else ())]
        texts += [*self.source.texts(edges.source), *self.target.texts(edges.target)]
        texts += self.times.texts if self.times else ()
        if graphs is not None:
            columns, texts = [*columns, graphs.column], [*texts, *graphs.texts]
        values = [*((edges.weight,) if edges.weight else ()), *edges.features]
        if splits is not None:
            columns, texts, values = [*columns, *splits.columns], [*texts, *splits.texts], [*values, *splits.numbers]
        self.features.look_ahead(edges, self.intake, others)
        count = 0
        with ExitStack() as stack:
            inferred = self.times.inferred if self.times else ()
            for whole in self.intake.batches(edges, columns, texts, values, inferred):
                batch, parts = self._ends(whole if graphs is None else graphs.with_own_ids(whole))
                parts = parts if self.graphs is None else self.graphs.placed(batch, parts)
                parts |= self._columns(batch)
                if splits is not None:
                    parts = splits.deal(batch, parts, count)
                count += whole.num_rows
                if not self.intake.problems:
                    self._write(parts, stack)
                context.progress(count, 0, "edges")
            if count == 0:
                raise DataError("has no edges", path=edges.names)
            self.intake.problems.raise_any()
        self.features.write_names(self.writer, EDGE_CATEGORIES)
        self.features.hint_at_long_texts(edges, self.intake)
        if self.num_dropped == count:
            why = f"has {count:,} edges, none of which joins two nodes that are known; are these their ids?"
            raise DataError(why, path=edges.names)
        if edges.weight and not self._heaviest:
            raise DataError(ALL_ZERO, path=edges.names, column=edges.weight)
        self.intake.adjust(edges, "edges with an unknown end dropped", self.num_dropped)
        for column, count in self.features.num_empty.items():
            self.intake.adjust(edges, f"empty cells of {column} filled", count)
        if self.num_dropped:
            context.warn(
                f"{edges.names}: {self.num_dropped:,} edges are left out, because one of their ends is in no table of "
                "nodes (on_unknown_id: drop)"
            )

    def _ends(self, batch: TableBatch) -> tuple[TableBatch, dict[str, Array]]:
        edges = self.edges
        src, dst = self.source.look_up(batch, edges.source), self.target.look_up(batch, edges.target)
        if edges.on_unknown_id == "drop" and not (self.source.broken or self.target.broken):
            joined = (src != UNKNOWN) & (dst != UNKNOWN)
            batch, src, dst = batch.keep(joined), src[joined], dst[joined]
            self.num_dropped += int(np.count_nonzero(~joined))
        way_out = "; on_unknown_id: drop leaves edges with unknown ends out"
        if self.graphs is None:  # of a node that only edges name nobody knows the graph
            way_out += ", add makes nodes of them"
        self.source.refuse_unknown(batch, edges.source, src, way_out=way_out)
        self.target.refuse_unknown(batch, edges.target, dst, way_out=way_out)
        return batch, {"src": np.maximum(src, 0).astype(self.kind), "dst": np.maximum(dst, 0).astype(self.kind)}

    def _columns(self, batch: TableBatch) -> dict[str, Array]:
        edges = self.edges
        parts: dict[str, Array] = {}
        if edges.relation_column:
            parts["relation"] = self.relations.codes(batch)
        if edges.weight:
            parts["weight"] = weights(batch, edges.weight, "an edge")
            self._heaviest = max(self._heaviest, float(parts["weight"].max(initial=0)))
        if self.times:
            parts["time"] = self.times.read(batch)
        return parts | self.features.read(batch)

    def _write(self, parts: dict[str, Array], stack: ExitStack) -> None:
        # A feature's column may be called relation too.
        codes = parts.pop("relation") if self.edges.relation_column else None
        for code in (-1,) if codes is None else np.unique(codes):
            chosen = (
                parts if codes is None else {column: rows_of(values, codes == code) for column, values in parts.items()}
            )
            relation = self.edges.relation if codes is None else self.relations.names[code]
            if relation not in self.sinks:
                self.sinks[relation] = self._new_sink(relation, stack)
            self.sinks[relation].check.add(chosen["src"], chosen["dst"])
            self.sinks[relation].table.write(chosen)

    def _new_sink(self, relation: str, stack: ExitStack) -> _Sink:
        triplet = (self.edges.source_type, file_name(relation), self.edges.target_type)
        if triplet in self._taken:
            raise RecipeError(
                f"dataset.edges: {' '.join(triplet)} stands twice; put the files into one table or name another "
                "relation"
            )
        if len(self.sinks) == _MAX_RELATIONS:
            column = self.edges.relation_column
            raise RecipeError(f"dataset.edges.relation_column: {column} has more than {_MAX_RELATIONS} relations")
        self._taken.add(triplet)
        check = EdgeCheck(self.source.num_nodes, self.target.num_nodes, same_type=self.source is self.target)
        table = stack.enter_context(self.writer.table(f"edges/{joined_name(triplet)}"))
        return _Sink(triplet, table, check)

    def describe(self) -> list[EdgeType]:
        """Return the manifest's entries: relations in the order of their codes."""
        features, entries = self.features.describe(), []
        for name in [name for name in self.relations.names if name in self.sinks] or list(self.sinks):
            (source, relation, target), _, check = self.sinks[name]
            ends = {"source": source, "relation": relation, "target": target}
            entries.append(EdgeType(**ends, num_edges=check.num_edges, features=features))
        return entries
