"""Options of layouts: points in two or three dimensions, for people to look at."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple

from pydantic import Field, model_validator

from configs.registry import MODELS
from models.vectors.configs import Pairing, RowsConfig

_GAMMA, _EPSILON = 7.0, 0.1  # as LargeVis' own program has them
_MESH_REACH, _GRAPH_RATE = 4_000.0, 0.3
_LEAST_PASSES, _MOST_PASSES, _PASSED_EDGES = 50, 1000, 3e8
"""Of a graph's layout over all of its edges, and edges of all passes."""


@dataclass(frozen=True)
class Settled:
    """What a layout of some graph is trained with, where the recipe leaves it to the model."""

    options: LayoutConfig
    rate: float
    """Peak learning rate."""
    samples: float
    """Of all points together."""
    edge_length: float | None = None
    """Root of the mean squared length of edges at the start; None: points have a deviation of `start_size` there."""


class LayoutConfig(RowsConfig):
    """Options of every layout.

    A point for each node; the ends of edges are drawn to each other, and pushed from points that are drawn by chance.
    """

    family: ClassVar[str] = "layout"
    shared_negatives: ClassVar[int] = 1

    # Chosen on 10,000 images of Fashion-MNIST (November 2026); the start counts most: from 1e-4, as in LargeVis' own
    # program, it takes ten times the samples.
    usual_rate: ClassVar[float] = 1.0
    """Peak learning rate where the recipe names none."""
    usual_samples: ClassVar[int] = 1000
    """Samples of a training for each point, where the recipe names none."""
    least_samples: ClassVar[int] = 2_000_000
    """Of small graphs, all points together."""
    start_size: ClassVar[float] = 10.0
    """Standard deviation of the first coordinate at the start."""
    usual_weights: ClassVar[Literal["perplexity", "fuzzy"]] = "perplexity"
    """Of nearest neighbours, where the recipe names none."""
    most: ClassVar[float] = 5.0
    """What each number of a sample's gradient is clipped to."""

    dim: Literal[2, 3] = 2
    """Dimensions of the picture."""
    negatives: int = Field(default=5, ge=1, le=1000)
    """Points that each sample pushes away."""
    negative_power: float = Field(default=0.75, ge=0, le=4)
    """Negatives are drawn in proportion to degree^this."""

    def check_task(self, task: str | None) -> None:
        """Take any task: a layout predicts nothing."""

    def settled(self, num_points: int, num_edges: int, *, is_mesh: bool | None) -> Settled:
        """Return what null stands for.

        Args:
            num_points: nodes.
            num_edges: edges, each in both directions.
            is_mesh: whether nodes of a graph with edges of its own are far from each other; None: edges join nearest
                neighbours of vectors.
        """
        return Settled(self, self.usual_rate, float(max(self.usual_samples * num_points, self.least_samples)))

    def pairings(self) -> list[Pairing]:
        """Return the one table of points."""
        return [Pairing("points", self.dim, shared=True)]


@MODELS.options("largevis", "layout.objectives")
class LargeVisConfig(LayoutConfig):
    """LargeVis (WWW 2016): a layout by the likelihood of edges; clusters apart from each other."""

    negative_power: float | None = Field(default=None, ge=0, le=4)  # type: ignore[assignment]
    """Negatives are drawn in proportion to degree^this; null: 0.75, and 0 for a graph with edges of its own."""
    gamma: float | None = Field(default=None, gt=0, le=1e6)
    """Weight of what is pushed away; null: 7, and for a graph with edges of its own by `reach`."""
    epsilon: float | None = Field(default=None, gt=0, le=1e6)
    """What is added to squared distances that are divided by; null: 0.1, and by `reach`."""
    reach: float | None = Field(default=None, gt=0, le=1e12)
    """Of a graph with edges of its own: how far points still push each other. A small one keeps straight what is long,
    a large one spreads nodes evenly; null: 4,000 for a mesh, whose nodes are far from each other, and for networks what
    makes gamma 7."""

    def settled(self, num_points: int, num_edges: int, *, is_mesh: bool | None) -> Settled:
        """Return LargeVis' own numbers for neighbours of vectors; for a graph, forces that keep its shape."""
        usual = super().settled(num_points, num_edges, is_mesh=is_mesh)
        forces = None
        if is_mesh is not None:
            reach = self.reach or (_MESH_REACH if is_mesh else _GAMMA * self.negatives * num_points)
            forces = forces_of(num_points, self.negatives, reach)
        null = {
            "negative_power": 0.0 if forces else 0.75,
            "gamma": forces.gamma if forces else _GAMMA,
            "epsilon": forces.epsilon if forces else _EPSILON,
        }
        options = self.model_copy(update={name: null[name] for name in null if getattr(self, name) is None})
        if forces is None:
            return replace(usual, options=options)
        passes = min(_MOST_PASSES, max(_LEAST_PASSES, _PASSED_EDGES / max(1, num_edges)))
        return Settled(options, _GRAPH_RATE, passes * num_edges / 2, forces.edge_length)


@MODELS.options("umap", "layout.objectives")
class UmapConfig(LayoutConfig):
    """UMAP's objective (arXiv:1802.03426): a layout whose nearest points keep a distance that you choose."""

    most: ClassVar[float] = 4.0
    usual_samples: ClassVar[int] = 500
    usual_weights: ClassVar[Literal["perplexity", "fuzzy"]] = "fuzzy"

    gamma: float = Field(default=1.0, gt=0, le=1e6)
    """Weight of what is pushed away."""
    negative_power: float = Field(default=0.0, ge=0, le=4)
    """Negatives are drawn in proportion to degree^this; 0: all alike."""
    min_dist: float = Field(default=0.1, ge=0, le=100)
    """How near to each other points may come."""
    spread: float = Field(default=1.0, gt=0, le=100)
    """How far apart near points lie."""
    move_negatives: bool = True
    """Whether what is pushed away moves too; false, as in UMAP's own program, keeps fewer neighbours."""

    @model_validator(mode="after")
    def _near_is_less_than_far(self) -> UmapConfig:
        if self.min_dist > self.spread:
            raise ValueError(f"min_dist={self.min_dist:g} is more than spread={self.spread:g}; lower it")
        return self


@MODELS.options("tsne", "layout.objectives")
class TsneConfig(LayoutConfig):
    """t-SNE's objective by negative sampling (arXiv:2206.01816): a layout that shows small groups."""

    most: ClassVar[float] = 0.5
    usual_rate: ClassVar[float] = 5.0
    start_size: ClassVar[float] = 20.0

    negatives: int = Field(default=50, ge=1, le=1000)
    """Points that each sample pushes away; of few, near points hardly ever meet."""
    negative_power: float = Field(default=0.0, ge=0, le=4)
    """Negatives are drawn in proportion to degree^this; 0: all alike."""
    similarity: float = Field(default=0.002, gt=0, le=1e6)
    """What pairs are compared with, the mean of 1 / (1 + distance^2) over all of them: the larger, the more like UMAP;
    the rate has to fall as it grows."""


_ROUNDS = 60
_MOST_EPSILON = 0.1  # LargeVis' own


class Forces(NamedTuple):
    """LargeVis' objective so that points far away still push each other, as in force-directed layouts."""

    gamma: float
    """Weight of each negative."""
    epsilon: float
    """What is added to squared distances that are divided by."""
    edge_length: float
    """Root of the mean squared length of edges about which the forces are in balance: what to scale the start to."""


def forces_of(num_nodes: int, num_negatives: int, reach: float) -> Forces:
    """Return forces by how far they reach.

    An edge pulls by 2 x / (1 + x^2), a negative pushes by 2 gamma / (x (1 + x^2)): up to a distance of 1 that is a
    spring and a push by 1 / x, as in ForceAtlas2 (Jacomy et al., PLOS ONE 9, 2014). Beyond 1 the push fades, and the
    map keeps its parts together but not its shape. gamma = reach / (K n) balances them so that the map is some units
    wide: 1.5 at reach 4, 3 at 40, 6 at 400, 12 at 4,000. A small reach keeps straight what is long, a large one spreads
    nodes evenly, and tears a mesh where it is narrow from some 100,000 on.
    """
    gamma = reach / (num_negatives * max(num_nodes, 1))
    squared = gamma * num_negatives
    for _ in range(_ROUNDS):  # edges pull as pairs push, which are n / 6 squared lengths apart in a map that is even
        squared = (squared + gamma * num_negatives / (1 + squared * num_nodes / 6)) / 2
    return Forces(gamma, min(1e-3 * squared, _MOST_EPSILON), math.sqrt(squared))
