"""A generated graph of known difficulty, and a knowledge graph whose relations follow rules."""

from __future__ import annotations

from typing import Any

from configs.registry import DATASETS
from tasks.ingest.base import GeneratedDataset
from tasks.ingest.synthetic.configs import SyntheticConfig, SyntheticTriplesConfig
from tasks.stage import StageContext


@DATASETS.register("synthetic")
class Synthetic(GeneratedDataset):
    """Generated graph: planted communities, power-law degrees, features of known difficulty; up to 10^9 edges.

    A degree-corrected planted partition (Karrer, Newman: Stochastic blockmodels and community structure in networks,
    Phys. Rev. E 83, 2011). Every node belongs to a community, every community to a class. An edge picks its first end
    by weight; its second end lies in the same community with probability 0.5, else in the same class
    with probability 0.4, else anywhere. Weights fall as rank^(-2/3) inside a community, so
    degrees follow a power law (exponent 2.5). 2 % of the nodes sit in small tree-shaped components of one class each.

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

    config: SyntheticConfig

    def ingest(self, context: StageContext) -> dict[str, Any]:
        """Write the tables in chunks; peak memory is a few row groups, whatever the size."""
        from tasks.ingest.synthetic.generator import generate

        config = self.config
        if config.task == "node" and config.feature_dim:
            ceiling, alone = 1 - config.label_noise, features_alone(config)
            context.message(f"test accuracy possible: {ceiling:.3f} at most, {alone:.3f} by features alone")
        return generate(config, context)


def features_alone(config: SyntheticConfig) -> float:
    """Return the best possible test accuracy without the graph, against the noisy labels."""
    right = config.feature_accuracy
    return right * (1 - config.label_noise) + (1 - right) * config.label_noise / (config.num_classes - 1)


@DATASETS.register("synthetic_triples")
class SyntheticTriples(GeneratedDataset):
    """Generated knowledge graph: latent types, and relations that are turns, inverse, symmetric, composed or one-way.

    The entities of a latent type lie on a ring. A relation leads from a type to one and has a turn: the tails of the
    entity at place x are the few places behind x + shift. In turn there come

    - **turn**: types and shift at random;
    - **inverse**: the pairs of the turn before, the other way round;
    - **symmetric**: neighbours on the ring of one type, in both directions;
    - **composed**: first one turn, then the next: its shift is the sum of theirs;
    - **one_way**: a quarter of a turn within a type; no pair's reverse is there.

    Held-out triples can be told from the others: nearly all that follows the rules is true, so that a model that finds
    them ranks what is held out above what is false. A share `noise` leads elsewhere, and no model can know where: the
    filtered MRR that is possible is about 1 - noise. ComplEx of 64 dimensions reaches 0.94 on the defaults, and 0.98
    without noise (2026).

    Everything comes from counters, so that chunks are independent, memory does not grow with the graph, and the same
    options give the same triples on every machine.
    """

    config: SyntheticTriplesConfig

    def ingest(self, context: StageContext) -> dict[str, Any]:
        """Write the tables in chunks; peak memory is a few row groups, whatever the size."""
        from tasks.ingest.synthetic.triple_generator import generate_triples

        return generate_triples(self.config, context)
