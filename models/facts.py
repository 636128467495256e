"""What a model knows of a graph."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GraphFacts:
    """All that a model needs to know of a graph and a task to size its parameters."""

    task: str
    """What is scored: `node`, `edge`, `link`, `graph`, `triple`, `layout`, or another kind's name."""
    out_dim: int
    """Scores a node or graph: classes of a multiclass label, else label columns; 1 on link
    tasks."""
    num_nodes: int
    feature_dim: int = 0
    categories: tuple[int, ...] = ()
    edge_feature_dim: int = 0
    edge_categories: tuple[int, ...] = ()
    num_edge_types: int = 1
    num_node_types: int = 1
    has_edge_weights: bool = False
    symmetric: bool = True
    """Whether every edge has its reverse."""
    num_relations: int = 0
    """Relations of triples."""
    label_mean: tuple[float, ...] = ()
    """Regression: mean of each label where the model was trained; empty: the model's numbers are not scaled."""
    label_scale: tuple[float, ...] = ()
    """Regression: standard deviation of each label there."""
    relation_ends: tuple[tuple[int, int], ...] = ()
    """For each type of edges: numbers of its source's and its target's type; none where that is not known."""
    relation_names: tuple[str, ...] = ()
    """Names of the types of edges, such as author__writes__paper."""
    node_columns: tuple[tuple[int, ...], ...] = ()
    """For each type of nodes: its columns of numeric features; none: every type has all of them."""
    node_codes: tuple[tuple[int, ...], ...] = ()
    """The same of categorical features."""
    edge_columns: tuple[tuple[int, ...], ...] = ()
    """For each type of edges: its columns of numeric features; none: every type has all of them."""
    edge_codes: tuple[tuple[int, ...], ...] = ()
    """The same of categorical features."""
    label_type: int = 0
    """Type of the nodes that have labels."""
    seed_type: int = 0
    """Type of the nodes that are scored: that of the labelled ones, or where these are tasks (an entity at a moment),
    that of their entities; relations to or from tasks carry no messages."""
    has_times: bool = False
    """Whether nodes have times, and those that are predicted moments: rows are read as of these."""
    age_unit: int = 86_400
    """What models count ages in, in the unit of the times: a day of seconds, or one of something else."""
    fanouts: tuple[tuple[int, ...], ...] = ()
    """For each type of edges, of a model that scores by sampling: edges that a row takes, from the seeds outwards."""
    newest: bool = False
    """Whether it takes the newest of more, else any."""
    head_types: tuple[str, ...] = ()
    """Of several tasks that share the model: their task types; none: there is one task."""
    head_labels: tuple[int, ...] = ()
    """Columns of each one's label."""
    head_scores: tuple[int, ...] = ()
    """Columns of each one's scores."""
    head_weights: tuple[float, ...] = ()
    """Of each one's mean loss in the sum."""
    rank_type: int | None = None
    """Type of the candidates that are ranked for each node that is scored; None: nothing is ranked."""
    node_types: tuple[str, ...] = ()
    """Names of the types of nodes, where there are several."""
    type_sizes: tuple[int, ...] = ()
    """Nodes of each type."""
    ordered_ends: bool = True
    """Whether an edge that is scored and its reverse are two."""

    @property
    def has_edge_features(self) -> bool:
        """Whether edges carry features."""
        return self.edge_feature_dim > 0 or bool(self.edge_categories)

    @property
    def scores_nodes(self) -> bool:
        """Whether nodes are scored one by one."""
        return self.task == "node"

    @property
    def scores_pairs(self) -> bool:
        """Whether pairs of nodes are scored, as edges that there may be."""
        return self.task == "link"

    @property
    def scores_edges(self) -> bool:
        """Whether edges are scored, by their ends and what they carry."""
        return self.task == "edge"

    @property
    def many_graphs(self) -> bool:
        """Whether there are many graphs, of which each is scored."""
        return self.task == "graph"
