"""Options of explainers, apart from their code: recipes are checked without torch."""

from __future__ import annotations

from pydantic import Field

from configs.base import ComponentConfig
from configs.registry import EXPLAINERS


class ExplainerConfig(ComponentConfig):
    """What every explainer has."""

    most_edges: int = Field(default=20_000, ge=1)
    """Edges of a neighbourhood that are looked at; of larger ones a sample is taken, hop by hop, and that is said."""


@EXPLAINERS.options("removal", "removal")
class RemovalConfig(ExplainerConfig):
    """The exact change of the score when an edge, a neighbour or a feature is left out. Any GNN."""

    most: int = Field(default=300, ge=1)
    """Edges that are left out one by one: those that count most by the score's gradient, else the nearest. As many
    neighbours, and as many features of what is explained."""


@EXPLAINERS.options("integrated", "integrated")
class IntegratedConfig(ExplainerConfig):
    """Integrated gradients (Sundararajan et al., ICML 2017) over what edges carry and numeric features.

    From a graph whose edges carry nothing and whose features are the means of all nodes to the graph as it is;
    effects add up to the difference of the two scores.
    """

    steps: int = Field(default=50, ge=2, le=10_000)
    """Steps of the way; more of them make the sum of effects come nearer to the difference."""


@EXPLAINERS.options("mask", "mask")
class MaskConfig(ExplainerConfig):
    """GNNExplainer (Ying et al., NeurIPS 2019): the fewest edges and features that keep the score as it is.

    Effects are weights between 0 and 1, learnt for each score by gradient descent.
    """

    steps: int = Field(default=100, ge=1, le=10_000)
    """Steps of gradient descent."""
    learning_rate: float = Field(default=0.01, gt=0, le=10)
    """Of Adam."""
    size: float = Field(default=0.005, ge=0)
    """How much each edge that is kept costs; weights that are neither 0 nor 1 cost their entropy."""
