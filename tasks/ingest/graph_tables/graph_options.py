"""Which options of users' tables go with whole graphs."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.ingest.tables.table_configs import EdgesConfig, LabelsConfig, NodesConfig


def check_graph_tables(
    task: str, nodes: Sequence[NodesConfig], edges: Sequence[EdgesConfig], labels: LabelsConfig | None, split_by: str
) -> None:
    """Refuse what many graphs have not, and columns of graphs where there is one. Raises ValueError."""
    tables: tuple[NodesConfig | EdgesConfig, ...] = (*nodes, *edges)
    named = [table for table in tables if table.graph is not None]
    if task != "graph":
        if named:
            raise ValueError(f"{named[0].names}: graph: {named[0].graph} is for graph tasks; set task: graph")
        return
    if len(nodes) != 1 or len(edges) != 1 or edges[0].relation_column is not None:
        raise ValueError("a graph task has one table of nodes and one of edges, of one relation")
    [of_nodes], [of_edges] = nodes, edges
    if not of_nodes.files or of_nodes.graph is None:
        raise ValueError("a graph task needs to know which graph a node is in: nodes: {files: ..., graph: COLUMN}")
    if {of_edges.source_type, of_edges.target_type} != {of_nodes.type}:
        raise ValueError(f"edges join {of_edges.source_type} and {of_edges.target_type}, and nodes are {of_nodes.type}")
    if labels is None or labels.form != "nodes" or labels.on_unknown_id != "error":
        raise ValueError(
            "labels of graphs stand in a table of graphs, a row each with its id: labels: {files: ..., id: COLUMN, "
            "label: [...]}"
        )
    if of_edges.graph is not None and of_nodes.id is None:
        raise ValueError("edges.graph: ids that begin anew in each graph need a column of them: nodes.id")
    if of_edges.on_unknown_id == "add":
        raise ValueError("edges: on_unknown_id: add: of a node that only edges name nobody knows the graph; use drop")
    if split_by == "time":
        raise ValueError("split.by: graphs have no times; take ratio, stratified, column or files")
