"""What a model knows of a graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class GraphFacts:
    """All that a model needs to know of a graph and a task to size its parameters."""

    task: Literal["node", "link", "graph", "triple"]
    out_dim: int
    """Scores a node or graph: classes of a multiclass label, else label columns; 1 on link tasks."""
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

    @property
    def has_edge_features(self) -> bool:
        """Whether edges carry features."""
        return self.edge_feature_dim > 0 or bool(self.edge_categories)
