"""A generated graph of known difficulty, a knowledge graph whose relations follow rules, and vectors in groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from configs.registry import DATASETS
from tasks.arrays import Array, blocks
from tasks.ingest.base import GeneratedDataset
from tasks.ingest.synthetic.configs import SyntheticConfig, SyntheticTriplesConfig, SyntheticVectorsConfig
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


_CHUNK_ROWS = 1 << 16
_FAMILY = 3
"""Groups of a family, whose centres are near to each other."""
_WAVES = 6
"""Sines and cosines that bend a sheet."""


@DATASETS.register("synthetic_vectors")
class SyntheticVectors(GeneratedDataset):
    """Generated vectors: groups that are curved sheets; three groups each make a family.

    A row is c_g + B_g w(s, t) + noise: c_g a group's centre, B_g a random frame, w sines and cosines of a place (s, t)
    within the group. A good map has the groups apart, families side by side, and `along` (s) in order within a group.
    """

    config: SyntheticVectorsConfig

    def ingest(self, context: StageContext) -> dict[str, Any]:
        """Write rows in chunks."""
        from tasks.ingest.vectors.gathered import Gathered, write_vectors

        config = self.config
        rng = np.random.default_rng(config.seed)
        group = rng.integers(config.num_groups, size=config.num_rows)
        places = rng.random((config.num_rows, 2), dtype=np.float32)
        kept = {"family": pa.array([f"family {g // _FAMILY}" for g in group]), "along": pa.array(places[:, 0])}
        names = pa.array([f"group {g}" for g in range(config.num_groups)])
        gathered = Gathered(
            num_rows=config.num_rows,
            chunks=lambda: self._chunks(group, places),
            labels=("multiclass", group.astype(np.int64), names),
            kept=kept,
        )
        return write_vectors(gathered, "generated vectors", context.work)

    def _chunks(self, group: Array, places: Array) -> Iterator[Array]:
        config = self.config
        rng = np.random.default_rng([config.seed, 1])
        families = -(-config.num_groups // _FAMILY)
        centres = 4 * rng.standard_normal((families, config.dim)).repeat(_FAMILY, 0)[: config.num_groups]
        centres += 1.5 * rng.standard_normal((config.num_groups, config.dim))
        frames = rng.standard_normal((config.num_groups, 2 * _WAVES, config.dim)) / np.sqrt(_WAVES)
        bends = np.array([[3, 2, 1, 0, 1, 2], [0, 1, 2, 2, 1, 0]], np.float32)
        for rows in blocks(config.num_rows, _CHUNK_ROWS):
            groups, angles = group[rows], places[rows] @ bends
            waves = np.concatenate([np.sin(angles), np.cos(angles)], 1)  # (n, 2 * _WAVES)
            noise = config.noise * rng.standard_normal((len(groups), config.dim))
            bent = np.einsum("nw,nwd->nd", waves, frames[groups])
            yield (centres[groups] + 2 * bent + noise).astype(np.float32)
