"""What a split's rows are: nodes, graphs or pairs of nodes, and in which arrays they and their labels lie."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SplitRows:
    """Rows of the splits of a data set, or of a graph made of it."""

    are_nodes: bool = False
    are_graphs: bool = False
    are_edges: bool = False
    """Of the table that has the labels, in its order; `edge_ends` are their ends."""
    are_pairs: bool = False
    """Of nodes, with their relations beside them where they have some."""
    are_triples: bool = False
    """Whether these pairs are the ends of triples; else negatives are drawn beside them."""
    labels: str = "label"
    """The array with the labels of all nodes, or graphs, if there are any."""

    @property
    def are_links(self) -> bool:
        """Whether they are pairs that stand among the edges that carry messages, and beside drawn ones."""
        return self.are_pairs and not self.are_triples

    def array(self, split: str) -> str:
        """Return the name of a split's array."""
        return f"{split}_edges" if self.are_pairs else f"{split}_idx"


OF_TASK = {
    "node": SplitRows(are_nodes=True),
    "graph": SplitRows(are_graphs=True, labels="graph_label"),
    "edge": SplitRows(are_edges=True, labels="edge_label"),
    "link": SplitRows(are_pairs=True),
    "triple": SplitRows(are_pairs=True, are_triples=True),
    "layout": SplitRows(),
}
"""By the task that a manifest names; of any other one they are nodes."""
