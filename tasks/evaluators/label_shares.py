"""Classes of nodes from their vectors, by the share of labels that are known: the usual test of node embeddings.

A random share of the labelled nodes trains a logistic model of each class against the rest, of the others as many
classes are predicted as a node has, the likeliest ones: so DeepWalk, LINE and node2vec are measured, which tells the
model how many labels a node has.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from models.vectors.logistic import fit_logistic
from tasks.evaluators.metrics import f1_of_columns

STRENGTH = 4.0
"""C of the logistic models, for all shares and graphs. Vectors have length 1; on BlogCatalog it is within a point of
the best of 1, 2, 4, 8, 16 for every method and share. A choice by the known labels takes longer and is noisier."""


def f1_by_share(
    x: Tensor,
    is_member: Tensor,
    shares: Sequence[float],
    *,
    splits: int,
    strength: float = STRENGTH,
    seed: int = 0,
) -> list[dict[str, float]]:
    """Measure vectors at several shares of labels; those that leave no node to predict are left out.

    `x`: float32 (n, D), of nodes that have a label; `is_member`: bool (n, C), their classes. `shares` of the nodes
    train, each between 0 and 1, in `splits` random splits by `seed`. `strength`: C of the logistic models.

    Returns: `share`, `micro` and `macro` F1 in 0..1, means over the splits, and `micro_spread`, their standard
    deviation. A class that nobody has and nobody is given counts 0 in `macro`.
    """
    measured = []
    for share in shares:
        count, scores = max(1, round(share * len(x))), []
        for split in range(splits if count < len(x) else 0):
            order = torch.from_numpy(np.random.default_rng([seed, split]).permutation(len(x)))
            train, test = order[:count], order[count:]
            logits, truth = fit_logistic(x[train], is_member[train], strength).scores(x[test]), is_member[test]
            given = truth.double().numpy(), likeliest(logits, truth.sum(1)).numpy()
            scores.append([f1_of_columns(*given, average) for average in ("micro", "macro")])
        if scores:
            (micro, macro), spread = np.mean(scores, axis=0).tolist(), np.std(scores, axis=0).tolist()
            measured.append({"share": share, "micro": micro, "macro": macro, "micro_spread": spread[0]})
    return measured


def likeliest(scores: Tensor, counts: Tensor) -> Tensor:
    """Return the counts[i] highest scores of row i: bool (n, C)."""
    ranks = torch.empty_like(scores, dtype=torch.int64)
    order = scores.argsort(dim=1, descending=True, stable=True)
    ranks.scatter_(1, order, torch.arange(scores.shape[1]).expand_as(order))
    return ranks < counts[:, None]
