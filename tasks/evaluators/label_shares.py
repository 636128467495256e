"""Classes of nodes from their vectors, by the share of labels that are known: the usual test of node embeddings.

A random share of the labelled nodes trains a logistic model of each class against the rest, the others are predicted:
either as many classes as a node has, the likeliest ones (how DeepWalk, LINE and node2vec are measured, which tells the
model how many labels a node has), or each class by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from models.vectors.logistic import fit_logistic

STRENGTH = 4.0
"""C of the logistic models, for all shares and graphs. Vectors have length 1; on BlogCatalog it is within a point of
the best of 1, 2, 4, 8, 16 for every method and share. A choice by the known labels takes longer and is noisier."""


@dataclass(frozen=True)
class ShareScore:
    """F1 at one share of labels, over several splits."""

    share: float
    micro: float
    """Mean over the splits, in 0..1; all pairs of a node and a class weigh alike."""
    macro: float
    """The same where classes weigh alike; one that nobody has and nobody is given counts 0."""
    micro_spread: float
    """Standard deviation over the splits."""


def f1_by_share(
    x: Tensor,
    is_member: Tensor,
    shares: Sequence[float],
    *,
    splits: int,
    strength: float = STRENGTH,
    seed: int = 0,
    known_counts: bool = True,
) -> list[ShareScore]:
    """Measure vectors at several shares of labels; those that leave no node to predict are left out.

    `x`: float32 (n, D), of nodes that have a label; `is_member`: bool (n, C), their classes. `shares` of the nodes
    train, each between 0 and 1, in `splits` random splits by `seed`. `strength`: C of the logistic models.
    `known_counts`: as many classes are predicted as a node has; else each class by itself.
    """
    measured = []
    for share in shares:
        count, scores = max(1, round(share * len(x))), []
        for split in range(splits if count < len(x) else 0):
            order = torch.from_numpy(np.random.default_rng([seed, split]).permutation(len(x)))
            train, test = order[:count], order[count:]
            logits, truth = fit_logistic(x[train], is_member[train], strength).scores(x[test]), is_member[test]
            scores.append(f1(truth, likeliest(logits, truth.sum(1)) if known_counts else logits > 0))
        if scores:
            micro, macro = np.array(scores).T
            measured.append(ShareScore(share, float(micro.mean()), float(macro.mean()), float(micro.std())))
    return measured


def likeliest(scores: Tensor, counts: Tensor) -> Tensor:
    """Return the counts[i] highest scores of row i: bool (n, C)."""
    ranks = torch.empty_like(scores, dtype=torch.int64)
    order = scores.argsort(dim=1, descending=True, stable=True)
    ranks.scatter_(1, order, torch.arange(scores.shape[1]).expand_as(order))
    return ranks < counts[:, None]


def f1(truth: Tensor, predicted: Tensor) -> tuple[float, float]:
    """Return micro- and macro-F1 of bool (n, C)."""
    right = (truth & predicted).sum(0).double()
    either = truth.sum(0).double() + predicted.sum(0).double()
    by_class = torch.where(either > 0, 2 * right / either.clamp(min=1), torch.zeros_like(right))
    return float(2 * right.sum() / either.sum().clamp(min=1)), float(by_class.mean())
