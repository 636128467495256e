"""A generated graph with communities, power-law degrees and features of known difficulty."""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import Field, model_validator

from configs.base import ComponentConfig
from configs.registry import DATASETS
from tasks.source_digests import SourceDigests
from tasks.stage import StageContext


@DATASETS.register("synthetic")
class Synthetic:
    """Generated graph: planted communities, power-law degrees, features of known difficulty; up to 10^9 edges.

    A degree-corrected planted partition (Karrer, Newman: Stochastic blockmodels and community structure in networks,
    Phys. Rev. E 83, 2011). Every node belongs to a community, every community to a class. An edge picks its first end
    by weight; its second end lies in the same community with probability `within_community`, else in the same class
    with probability `within_class`, else anywhere. Weights fall as rank^(-1/(exponent - 1)) inside a community, so
    degrees follow a power law. A share of nodes sits in small tree-shaped components of one class each.

    What accuracy is possible (node task):

    - **Ceiling.** A share `label_noise` of labels, in all splits, is replaced by another class, so no model can expect
      more than 1 - label_noise.
    - **Features alone.** Class k's features are N(delta * q_k, I) with orthonormal q_k, so the best classifier without
      the graph is right with probability integral of phi(x - delta) * Phi(x)^(K-1) dx on the clean labels; delta is
      solved so that this is `feature_accuracy`. Against the noisy labels it gets
      feature_accuracy * (1 - label_noise) + (1 - feature_accuracy) * label_noise / (K - 1).
    - **Graph and features.** In between: a node's neighbours mostly share its class, and averaging d neighbours divides
      the features' noise by sqrt(d). With the defaults GraphSAGE comes within a few points of the ceiling.

    Link task: edges are held out at random (a pair that was drawn twice goes to one split as a whole) and negatives are
    uniform pairs that are no edges, so a model is good if it finds communities and degrees.

    Everything comes from counters, not from a running state: chunks are independent, memory does not grow with the
    graph, and the same options give the same bytes on every machine.
    """

    class Config(ComponentConfig):
        """Options of the generated graph."""

        num_nodes: int = Field(default=20_000, ge=10, le=2 * 10**9)
        """Nodes."""
        num_edges: int = Field(default=150_000, ge=1, le=10**10)
        """Undirected edges, each stored once; a few are drawn twice (`preprocess.deduplicate` merges them)."""
        num_classes: int = Field(default=8, ge=2, le=10_000)
        """Classes, of about equal size."""
        community_size: int = Field(default=500, ge=4)
        """Nodes of a community, about; a class has one community or many."""
        within_community: float = Field(default=0.5, ge=0, le=1)
        """Share of edges that stay inside a community."""
        within_class: float = Field(default=0.4, ge=0, le=1)
        """Of the other edges, the share that stays inside the class."""
        exponent: float = Field(default=2.5, gt=2, le=10)
        """Exponent of the degree distribution; closer to 2 gives larger hubs."""
        small_components: float = Field(default=0.02, ge=0, lt=1)
        """Share of nodes that sit outside of the main graph, in trees of 8 nodes, each of one class."""
        feature_dim: int = Field(default=32, ge=0, le=65_536)
        """Feature columns; 0: none. At least num_classes, so that the difficulty is exact."""
        feature_accuracy: float = Field(default=0.5, gt=0, lt=1)
        """Accuracy on clean labels of the best classifier that sees a node's own features only."""
        label_noise: float = Field(default=0.05, ge=0, lt=1)
        """Share of labels that are replaced by another class: 1 - label_noise is the ceiling of accuracy."""
        task: Literal["node", "link"] = "node"
        """What is predicted: a node's class, or held-out edges."""
        valid_share: float = Field(default=0.2, gt=0, lt=1)
        """Share of nodes (or edges) in the validation split."""
        test_share: float = Field(default=0.2, gt=0, lt=1)
        """Share of nodes (or edges) in the test split; the rest trains."""
        num_negatives: int = Field(default=100_000, ge=1)
        """Negative pairs of the validation and of the test split (link task)."""
        seed: int = Field(default=1, ge=0)
        """Seed of everything above."""

        @model_validator(mode="after")
        def _fits(self) -> Synthetic.Config:
            if 0 < self.feature_dim < self.num_classes:
                raise ValueError(
                    f"feature_dim {self.feature_dim} is below num_classes {self.num_classes}; take 0 (no features) or "
                    f"at least {self.num_classes}"
                )
            if self.feature_accuracy <= 1 / self.num_classes:
                raise ValueError(
                    f"feature_accuracy {self.feature_accuracy} is not above chance, 1/{self.num_classes}; "
                    "for features without information take feature_dim: 0"
                )
            if self.valid_share + self.test_share >= 1:
                raise ValueError("valid_share + test_share must leave something to train on (be below 1)")
            if self.label_noise >= 1 - 1 / self.num_classes:
                raise ValueError(f"label_noise {self.label_noise} leaves no more than chance, {1 / self.num_classes:g}")
            if self.num_nodes < 4 * self.num_classes:
                raise ValueError(f"num_nodes {self.num_nodes} is below four a class, {4 * self.num_classes}")
            return self

    def __init__(self, config: Config) -> None:
        self.config = config

    def fingerprint(self, digests: SourceDigests) -> dict[str, Any]:
        """The options say it all; raise `generator` when the same options give other data."""
        return {"generator": 1}

    def time_unit(self) -> None:
        """None: the graph has no times."""
        return None

    def ingest(self, context: StageContext) -> dict[str, Any]:
        """Write the tables in chunks; peak memory is a few row groups, whatever the size."""
        from tasks.ingest.generator import generate

        config = self.config
        if config.task == "node" and config.feature_dim:
            ceiling, alone = 1 - config.label_noise, features_alone(config)
            context.message(f"test accuracy possible: {ceiling:.3f} at most, {alone:.3f} by features alone")
        return generate(config, context)


def features_alone(config: Synthetic.Config) -> float:
    """Return the best possible test accuracy without the graph, against the noisy labels."""
    right = config.feature_accuracy
    return right * (1 - config.label_noise) + (1 - right) * config.label_noise / (config.num_classes - 1)


def bayes_accuracy(delta: float, num_classes: int) -> float:
    """Return P(class k's score is largest) for scores N(delta, 1) of class k and N(0, 1) of the others.

    Trapezoids over 12 standard deviations: exact to ten digits or so, since the integrand is smooth.
    """
    steps, low, high = 4000, -12.0, 12.0
    width = (high - low) / steps
    total = 0.0
    for i in range(steps + 1):
        x = low + i * width
        inside = 0.5 * math.erfc(-(x + delta) / math.sqrt(2)) if num_classes > 1 else 1.0
        total += math.exp(-x * x / 2) * inside ** (num_classes - 1)
    return total * width / math.sqrt(2 * math.pi)


def solve_delta(accuracy: float, num_classes: int) -> float:
    """Return the delta at which features alone reach `accuracy` (between 1/K and 1), by bisection."""
    low, high = 0.0, 12.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if bayes_accuracy(middle, num_classes) < accuracy else (low, middle)
    return (low + high) / 2
