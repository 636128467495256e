"""One more node a graph, joined to all of its nodes: what every node knows reaches every other in two steps."""

from __future__ import annotations

from torch import Tensor, nn

from configs.errors import RecipeError
from models.facts import GraphFacts
from models.layers.layer import FusedSequential, hidden_layers


class VirtualNode(nn.Module):
    """s' = MLP(s + sum of the graph's rows): how virtual nodes go from one layer to the next.

    Each map of the MLP has norm and ReLU behind it, the last one dropout as well; all but the last are twice as wide.
    """

    def __init__(self, dim: int, dropout: float, *, norm: str = "batch", maps: int = 2) -> None:
        """`maps`: linear maps of the MLP, at least one."""
        super().__init__()
        wide = hidden_layers(dim, 2 * dim, maps - 1, "relu", norm=norm)
        self.mlp = FusedSequential(*wide, *hidden_layers(2 * dim if wide else dim, dim, 1, "relu", dropout, norm))

    def forward(self, state: Tensor, pooled: Tensor) -> Tensor:
        """Update: state and the sums of the graphs' rows, both (G, dim) -> (G, dim)."""
        return self.mlp(state + pooled)


def refuse_without_graphs(facts: GraphFacts) -> None:
    """Raise RecipeError where `model.virtual_node` has no graphs to join the nodes of."""
    if not facts.many_graphs:
        raise RecipeError(f"model.virtual_node is for graph tasks and this is a {facts.task} task; remove it")
