"""Which options of users' tables go with whole graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tasks.ingest.tables.configs import EdgesConfig, NodesConfig, TablesConfig


def check_graph_tables(config: TablesConfig) -> None:
    """Refuse what many graphs have not, and columns of graphs where there is one. Raises ValueError."""
    tables: tuple[NodesConfig | EdgesConfig, ...] = (*config.nodes, *config.edges)
    named = [table for table in tables if table.graph is not None]
    if config.task != "graph":
        if named:
            raise ValueError(f"{named[0].names}: graph: {named[0].graph} is for graph tasks; set task: graph")
        return
    if len(config.nodes) != 1 or len(config.edges) != 1 or config.edges[0].relation_column is not None:
        raise ValueError("a graph task has one table of nodes and one of edges, of one relation")
    [nodes], [edges] = config.nodes, config.edges
    if not nodes.files or nodes.graph is None:
        raise ValueError("a graph task needs to know which graph a node is in: nodes: {files: ..., graph: COLUMN}")
    if {edges.source_type, edges.target_type} != {nodes.type}:
        raise ValueError(f"edges join {edges.source_type} and {edges.target_type}, and nodes are {nodes.type}")
    if config.labels is None or config.labels.form != "nodes" or config.labels.on_unknown_id != "error":
        raise ValueError(
            "labels of graphs stand in a table of graphs, a row each with its id: labels: {files: ..., id: COLUMN, "
            "label: [...]}"
        )
    if edges.graph is not None and nodes.id is None:
        raise ValueError("edges.graph: ids that begin anew in each graph need a column of them: nodes.id")
    if edges.on_unknown_id == "add":
        raise ValueError("edges: on_unknown_id: add: of a node that only edges name nobody knows the graph; use drop")
    if config.split.by == "time":
        raise ValueError("split.by: graphs have no times; take ratio, stratified, column or files")
