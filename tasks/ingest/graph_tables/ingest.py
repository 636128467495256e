"""Users' tables to ours: nodes, then edges, then splits."""

from __future__ import annotations

from typing import Any

import numpy as np

from configs.errors import DataError, RecipeError
from configs.layout_options import LAYOUT
from configs.matching import did_you_mean, listed
from tasks.arrays import Array
from tasks.ingest.dataset_fields import dataset_fields
from tasks.ingest.graph_tables.configs import TablesConfig
from tasks.ingest.graph_tables.edges import EdgeReader, Triplet, discover_nodes
from tasks.ingest.graph_tables.graphs import ingest_graphs
from tasks.ingest.graph_tables.labels import LabelStore, label_columns, label_fields, read_labels
from tasks.ingest.graph_tables.link_splits import LinkSplitter
from tasks.ingest.graph_tables.memberships import Memberships
from tasks.ingest.graph_tables.nodes import SplitColumn, scan_nodes, write_nodes
from tasks.ingest.graph_tables.splits import LabelledEdges, node_splits
from tasks.ingest.ids.node_set import NodeSet
from tasks.ingest.labels import has_label, say_unlabelled
from tasks.ingest.tables.intake import Intake, table_files, with_header_found
from tasks.ingest.tables.table_configs import EdgeTableConfig, FilesConfig, NodeTableConfig
from tasks.ingest.writer import DatasetWriter
from tasks.stage import StageContext
from tasks.storage.manifests import NodeType


def with_headers_found(config: TablesConfig, intake: Intake) -> TablesConfig:
    """Return the options with each `header: auto` settled by the first lines, and say so; hint at names in data."""
    settled: dict[str, Any] = {
        "nodes": tuple(with_header_found(table, "dataset.nodes", intake) for table in config.nodes),
        "edges": tuple(with_header_found(table, "dataset.edges", intake) for table in config.edges),
        "labels": config.labels and with_header_found(config.labels, "dataset.labels", intake),
    }
    return config.model_copy(update=settled)


def _with_names(edges: EdgeTableConfig) -> EdgeTableConfig:
    """Return edges whose columns are given by name, where they are given by their places. Raises DataError."""
    roles = ("source", "target", "weight", "time", "relation_column")
    given = {role: column for role in roles if (column := getattr(edges, role)) is not None}
    if not any(column.isdigit() for column in given.values()):
        return edges
    names, named = table_files(edges).column_names(), dict(given)
    for role, column in given.items():
        if column not in names and column.isdigit() and int(column) < len(names):
            named[role] = names[int(column)]
    return edges.model_copy(update=named)


def ingest_tables(config: TablesConfig, context: StageContext, intake: Intake) -> dict[str, Any]:
    """Write all tables; return the fields of DatasetManifest.

    Mistakes are gathered over all tables, and end it when all were read: what is written by then nobody sees.

    Raises DataError: naming all mistakes. Raises RecipeError: options that do not go together.
    """
    config = with_headers_found(config, intake)
    config = config.model_copy(update={"edges": tuple(_with_names(edges) for edges in config.edges)})
    columns: list[tuple[FilesConfig, list[str]]] = [(table, [table.id]) for table in config.nodes if table.id]
    columns += [(table, [table.source, table.target]) for table in config.edges]
    columns += [(config.labels, [config.labels.id])] if config.labels and config.labels.form != "groups" else []
    for table, ids in columns if not config.text_ids else ():
        intake.hint_at_leading_zero(table, ids)
    for note in intake.notes:
        context.message(note)
    ingest = ingest_graphs if config.task == "graph" else _ingest_graph
    fields = ingest(config, context, intake)
    intake.find_unread([*config.nodes, *config.edges])
    for names, unread in intake.unread.items():
        is_edges = names in [edges.names for edges in config.edges]
        roles = [*(["weight"] if is_edges else []), "time", "features", "categorical", "texts"]
        ways = ", ".join(f"dataset.{'edges' if is_edges else 'nodes'}.{role}" for role in roles)
        context.message(f"{names}: not read: {listed(unread)}; to use one, name it by {ways}")
    return fields


def _ingest_graph(config: TablesConfig, context: StageContext, intake: Intake) -> dict[str, Any]:
    if config.task == "link":  # what is predicted comes first among the relations
        first = config.predicted_edges
        config = config.model_copy(update={"edges": (first, *(one for one in config.edges if one is not first))})
    nodes = _node_sets(config)
    target = _target_type(config, nodes)
    labels: LabelStore | Memberships | None = None
    if config.labels is not None and config.labels.form != "nodes":
        labels = Memberships(config.labels)
    elif config.labels is not None or any(table.label for table in config.nodes):
        labels = LabelStore(config)
    owner = _scan(config, nodes, target, labels if isinstance(labels, LabelStore) else None, context, intake)
    with DatasetWriter(context.work) as writer:
        column, names = None, None
        if labels is not None:
            with intake.problems.gathering():
                if isinstance(labels, Memberships):
                    labels.read(nodes[target], intake)
                elif config.labels is not None:
                    read_labels(config.labels, nodes[target], intake, labels)
                if not intake.problems:
                    column, names = labels.finish(nodes[target].num_nodes, intake)
        node_types = []
        for kind, node_set in nodes.items():
            with intake.problems.gathering():
                features = write_nodes(node_set, intake, writer, column if kind == target else None, config.nodes)
                node_types.append(NodeType(name=kind, num_nodes=node_set.num_nodes, features=features))
                node_set.write_ids(writer)
        readers, of_edges = _write_edges(config, nodes, writer, context, intake)
        if column is not None:
            say_unlabelled(has_label(column), "node", context)
            with intake.problems.gathering():
                splits = {} if config.task == LAYOUT else node_splits(config, nodes[target], column, owner, intake)
                for split, ids in splits.items():
                    writer.write(f"split/{split}", {"node_id": ids})
        intake.report(context)
        if labels is not None and names is not None:
            writer.write(labels.names_table, {"label": np.arange(len(names), dtype=np.int64), "name": names})
    of_links: dict[str, Any] = {
        "num_relations": len(readers[0].relations.names),
        "keep_known_pairs": config.split.known_pairs == "keep",
        "negative_kinds": config.split.negatives,
        "num_candidates": config.candidates or 0,
        "ranks_targets": config.ranks_targets,
        "has_context": len(config.edges) > 1,
    }
    return dataset_fields(
        writer,
        config.title,
        **({"task": config.task} | label_fields(config, column, names) | of_edges),
        directed=config.directed,
        node_types=node_types,
        edge_types=[edge_type for reader in readers for edge_type in reader.describe()],
        target_type=target,
        checks=[sink.check for reader in readers for sink in reader.sinks.values()],
        adjusted=intake.adjusted,
        **(of_links if config.task == "link" else {}),
    )


def _node_sets(config: TablesConfig) -> dict[str, NodeSet]:
    """All node types: those with a table first, then those that only edges name."""
    tables: dict[str, NodeTableConfig | None] = {table.type: table for table in config.nodes}
    used = {kind for edges in config.edges for kind in (edges.source_type, edges.target_type)}
    for kind in sorted(used - set(tables)):
        if hint := did_you_mean(kind, [table.type for table in config.nodes]):
            raise RecipeError(f"dataset.edges: unknown node type {kind!r}{hint}")
        tables[kind] = None
    return {kind: NodeSet(kind, table, text_ids=config.text_ids) for kind, table in tables.items()}


def _target_type(config: TablesConfig, nodes: dict[str, NodeSet]) -> str:
    labelled = [table.type for table in config.nodes if table.label] or (list(nodes) if len(nodes) == 1 else [])
    target = config.target_type or (labelled[0] if labelled else None)
    if config.task in ("link", "edge"):
        target = next(edges for edges in config.edges if edges.label or config.task == "link").source_type
    if config.task == LAYOUT and not labelled and target is None:
        target = next(iter(nodes))
    if target not in nodes:
        raise RecipeError(f"dataset.target_type: which nodes carry the labels? One of {', '.join(nodes)}, not {target}")
    return target


def _scan(
    config: TablesConfig,
    nodes: dict[str, NodeSet],
    target: str,
    labels: LabelStore | None,
    context: StageContext,
    intake: Intake,
) -> Array | None:
    """First pass: get to know all ids; return the split column's codes of the target nodes, where there is one."""
    owner = None
    split = SplitColumn(config.split.column) if config.split.column and config.task == "node" else None
    for kind, node_set in nodes.items():
        inside = labels if kind == target and label_columns(config, node_set.config) else None
        with intake.problems.gathering() as ended:
            codes = scan_nodes(node_set, intake, inside, split if kind == target else None)
            owner = codes if kind == target else owner
        node_set.broken |= bool(ended)
    if split is not None and owner is None and not nodes[target].broken:
        raise RecipeError(f"dataset.split.column: the {target} nodes have no table that could hold {split.column!r}")
    _discover(config, nodes, intake)
    for kind, node_set in nodes.items():
        table, repeated, added = node_set.config, node_set.num_repeated, node_set.num_added
        intake.adjust(table, "rows of a repeated id dropped", repeated)
        intake.adjust(table, "nodes that only edges name added", added)
        if repeated:
            why = f"another row has their id (on_duplicate_id: {table.on_duplicate_id})"
            context.warn(f"{table.names}: {repeated:,} rows are left out, because {why}")
        if added:
            what = "ids stand in edges only, and are nodes without label and features (on_unknown_id: add)"
            context.warn(f"{table.names or f'nodes of type {kind}'}: {added:,} {kind} {what}")
    return owner


def _discover(config: TablesConfig, nodes: dict[str, NodeSet], intake: Intake) -> None:
    """Get to know the nodes that only edges name, then drop the indexes that say nothing."""
    only_in_edges = {kind for kind, node_set in nodes.items() if not node_set.has_files and node_set.num_nodes == 0}
    before = {kind: node_set.index.count for kind, node_set in nodes.items() if node_set.index is not None}
    for edges in config.edges:
        ends = {edges.source_type, edges.target_type}
        growing = ends & (set(before) if edges.on_unknown_id == "add" else only_in_edges)
        if growing:
            with intake.problems.gathering() as ended:
                discover_nodes(edges, {kind: nodes[kind] for kind in growing}, intake)
            for kind in growing:
                nodes[kind].broken |= bool(ended)
    for kind, node_set in nodes.items():
        if node_set.index is None or node_set.broken:
            continue
        if kind not in only_in_edges:
            node_set.num_added = node_set.index.count - before[kind]
        elif node_set.index.count:
            node_set.index.sort()
        elif not intake.problems:
            raise DataError(
                f"there are no edges, and {'' if kind == 'node' else kind + ' '}nodes come from them; give some, or a "
                "table of nodes",
                path=config.edges[0].files[0],
            )
        table: FilesConfig = node_set.config
        columns = node_set.config.id or ""
        if kind in only_in_edges:
            table = edges = next(one for one in config.edges if kind in (one.source_type, one.target_type))
            columns = f"{edges.source} and {edges.target}"
        intake.hint_at_similar_texts(table, columns, "ids", node_set.index.keys(), letters=False)
        node_set.settle()


def _write_edges(
    config: TablesConfig, nodes: dict[str, NodeSet], writer: DatasetWriter, context: StageContext, intake: Intake
) -> tuple[list[EdgeReader], dict[str, Any]]:
    taken: set[Triplet] = set()
    readers, fields = [], dict[str, Any]()
    for edges in config.edges:
        splitter: LinkSplitter | LabelledEdges | None = None
        with intake.problems.gathering():
            reader = EdgeReader(edges, nodes, intake, writer, taken)
            if config.task == "link" and edges is config.edges[0]:
                splitter = LinkSplitter(config, reader)
            elif edges.label:
                splitter = LabelledEdges(config, reader)
            reader.read(context, splitter, [one for one in config.edges if one is not edges])
            readers.append(reader)
        with intake.problems.gathering():  # all was read by now
            if isinstance(splitter, LabelledEdges) and not intake.problems:
                fields = splitter.finish(context)
            elif isinstance(splitter, LinkSplitter) and not intake.problems:
                splitter.finish()
    return readers, fields
