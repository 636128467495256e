"""Many graphs in users' tables: nodes say which graph they are in, and a table of graphs has their labels.

Graphs have the order of their table, and nodes of a graph stand together: where those of the users' table do not, it is
sorted, for which it is in memory once. The rest is read as for one graph (`ingest.py`).
"""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from configs.errors import DataError
from tasks.arrays import Array
from tasks.ingest.dataset_fields import dataset_fields
from tasks.ingest.graph_tables.configs import TablesConfig
from tasks.ingest.graph_tables.edges import EdgeReader, GraphEnds
from tasks.ingest.graph_tables.labels import LabelStore, label_fields
from tasks.ingest.graph_tables.nodes import GraphColumn, SplitColumn, scan_nodes, write_nodes
from tasks.ingest.graph_tables.splits import node_splits
from tasks.ingest.ids.node_set import NodeSet
from tasks.ingest.labels import has_label, say_unlabelled
from tasks.ingest.tables.intake import Intake
from tasks.ingest.tables.table_configs import NodeTableConfig
from tasks.ingest.writer import DatasetWriter
from tasks.stage import StageContext
from tasks.storage.manifests import FeatureColumn, NodeType


def ingest_graphs(config: TablesConfig, context: StageContext, intake: Intake) -> dict[str, Any]:
    """Write all tables of many graphs; return the fields of DatasetManifest. Raises as `ingest_tables`."""
    [table], [edges] = config.nodes, config.edges
    assert config.labels is not None
    assert table.graph is not None
    labels = LabelStore(config)
    graphs, owner = _scan_graphs(config, labels, intake)
    intake.problems.raise_any()
    local = edges.graph is not None
    nodes = NodeSet(table.type, table, text_ids=config.text_ids or local)
    if not local:
        nodes.way_out_of_repeats += (
            "; if ids begin anew in each graph, name the graph's column of the edges: edges.graph"
        )
    with intake.problems.gathering():
        column = GraphColumn(table.graph, graphs, (table.id,) if local and table.id else ())
        graph_of = scan_nodes(nodes, intake, None, column)
    intake.problems.raise_any()
    assert graph_of is not None
    if nodes.index is not None:
        nodes.settle()
    sizes = _sizes(graphs, graph_of, config.labels.names)
    order = None if (np.diff(graph_of) >= 0).all() else np.argsort(graph_of, kind="stable")
    place = None if order is None else np.argsort(order)
    with DatasetWriter(context.work) as writer:
        features = _write_nodes(nodes, intake, writer, order, context)
        ends_of = GraphColumn(edges.graph, graphs, (edges.source, edges.target)) if edges.graph else None
        ends = GraphEnds(edges, ends_of, graph_of, place)
        reader = EdgeReader(edges, {table.type: nodes}, intake, writer, set(), ends)
        with intake.problems.gathering():
            reader.read(context)
        intake.problems.raise_any()
        label, names = labels.finish(graphs.num_nodes, intake)
        say_unlabelled(has_label(label), "graph", context)
        split = node_splits(config, graphs, label, owner, intake, "graph")
        graph_id = np.arange(graphs.num_nodes, dtype=np.int64)
        num_edges = np.zeros(graphs.num_nodes, np.int64)
        num_edges[: len(ends.num_edges)] = ends.num_edges
        writer.write("graphs", {"graph_id": graph_id, "num_nodes": sizes, "num_edges": num_edges, "label": label})
        if graphs.index is not None:
            writer.write("ids/graphs", {"graph_id": graph_id, "original_id": graphs.index.keys()})
        for name, ids in split.items():
            writer.write(f"split/{name}", {"graph_id": ids})
        if names is not None:
            writer.write(labels.names_table, {"label": np.arange(len(names), dtype=np.int64), "name": names})
    intake.report(context)
    return dataset_fields(
        writer,
        config.title,
        **label_fields(config, label, names),
        directed=config.directed,
        node_types=[NodeType(name=table.type, num_nodes=nodes.num_nodes, features=features)],
        edge_types=reader.describe(),
        checks=[sink.check for sink in reader.sinks.values()],
        adjusted=intake.adjusted,
    )


def _scan_graphs(config: TablesConfig, labels: LabelStore, intake: Intake) -> tuple[NodeSet, Array | None]:
    """Read the table of graphs: ids, labels and the split of each, int8, where a column says it."""
    table = config.labels
    assert table is not None
    given = {name: getattr(table, name) for name in type(table).model_fields if name in NodeTableConfig.model_fields}
    graphs = NodeSet("graph", NodeTableConfig.model_construct(**given), text_ids=config.text_ids)
    graphs.way_out_of_repeats = "a graph has one row, with all of its labels"
    owner = None
    with intake.problems.gathering():
        column = SplitColumn(config.split.column) if config.split.column else None
        owner = scan_nodes(graphs, intake, labels, column)
        graphs.settle()
    return graphs, owner


def _sizes(graphs: NodeSet, graph_of: Array, path: str) -> Array:
    """Return how many nodes each graph has. Raises DataError where one has none."""
    sizes = np.bincount(graph_of, minlength=graphs.num_nodes)
    empty = np.flatnonzero(sizes == 0)
    if len(empty):
        raise DataError(
            f"graph {graphs.original(int(empty[0]))!r} has no nodes ({len(empty):,} such graphs of "
            f"{graphs.num_nodes:,}); are these the ids in nodes.graph? If so, leave it out here",
            path=path,
            row=int(empty[0]),
        )
    return sizes


def _write_nodes(
    nodes: NodeSet, intake: Intake, writer: DatasetWriter, order: Array | None, context: StageContext
) -> tuple[FeatureColumn, ...]:
    """Write the node table, graph by graph: row i is row order[i] of the users' one; None: as it is."""
    if order is None:
        with intake.problems.gathering():
            return write_nodes(nodes, intake, writer, None)
        intake.problems.raise_any()
    context.message("nodes of a graph do not stand together in their table: it is sorted by graph, in memory")
    scratch = context.work / "unsorted"
    try:
        with DatasetWriter(scratch) as unsorted:
            with intake.problems.gathering():
                features = write_nodes(nodes, intake, unsorted, None)
            intake.problems.raise_any()
        for name, table in unsorted.tables.items():
            rows = pa.concat_tables([pq.read_table(scratch / shard) for shard in table.shards])
            if name.startswith("nodes/"):
                node_id = rows["node_id"]
                at = rows.schema.get_field_index("node_id")
                rows = rows.take(pa.array(order)).set_column(at, "node_id", node_id)
            writer.write(name, {column: rows[column].combine_chunks() for column in rows.column_names})
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return features
