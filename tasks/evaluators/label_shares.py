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

from models.logistic import fit_logistic

STRENGTHS = tuple(2.0**power for power in range(-7, 8))
_FIRST_STRENGTH = STRENGTHS.index(4.0)
"""Where the search begins; usual of vectors of length 1."""
_FOLDS, _TRIED_FOLDS = 5, (0, 1)
_MOST_TRIED = 10_000
"""Of the known labels, for the choice: by more of them it is hardly another one."""


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
    strength: float
    """C of the logistic models."""


def f1_by_share(
    x: Tensor,
    is_member: Tensor,
    shares: Sequence[float],
    *,
    splits: int,
    strength: float | None = None,
    seed: int = 0,
    known_counts: bool = True,
) -> list[ShareScore]:
    """Measure vectors at several shares of labels.

    Args:
        x: float32 (n, D): vectors of the nodes that have a label.
        is_member: bool (n, C): their classes, one at least.
        shares: of the nodes that train, each between 0 and 1.
        splits: random splits of each share.
        strength: C of the logistic models; None: for each share the one of STRENGTHS that is best on fifths of what is
            known in the first split, by the mean of micro- and macro-F1. What is predicted there is never looked at.
        seed: of the splits.
        known_counts: predict as many classes as a node has; else each class by itself.
    """
    found = []
    best = _FIRST_STRENGTH
    for share in shares:
        count = max(1, round(share * len(x)))
        orders = [torch.from_numpy(np.random.default_rng([seed, split]).permutation(len(x))) for split in range(splits)]
        if strength is None:
            known = orders[0][: min(count, _MOST_TRIED)]
            best = _best_strength(x[known], is_member[known], best, known_counts)
        chosen = STRENGTHS[best] if strength is None else strength
        scores = [
            _scores(x, is_member, order[:count], order[count:], strength=chosen, known_counts=known_counts)
            for order in orders
        ]
        micro, macro = np.array(scores).T
        found.append(ShareScore(share, float(micro.mean()), float(macro.mean()), float(micro.std()), chosen))
    return found


def _scores(
    x: Tensor, is_member: Tensor, train: Tensor, test: Tensor, *, strength: float, known_counts: bool
) -> tuple[float, float]:
    """Return micro- and macro-F1 of the rows `test` by a model of the rows `train`."""
    logits, truth = fit_logistic(x[train], is_member[train], strength).scores(x[test]), is_member[test]
    return f1(truth, likeliest(logits, truth.sum(1)) if known_counts else logits > 0)


def _best_strength(x: Tensor, is_member: Tensor, place: int, known_counts: bool) -> int:
    """Return the place in STRENGTHS of the best, uphill from `place`: F1 has one top along them, or nearly so."""
    if len(x) < _FOLDS:
        return place
    folds = torch.arange(len(x)) % _FOLDS
    values: dict[int, float] = {}

    def value(place: int) -> float:
        if not 0 <= place < len(STRENGTHS):
            return -1.0
        if place not in values:
            strength = STRENGTHS[place]
            parts = [(torch.nonzero(folds != fold)[:, 0], torch.nonzero(folds == fold)[:, 0]) for fold in _TRIED_FOLDS]
            scores = [_scores(x, is_member, *part, strength=strength, known_counts=known_counts) for part in parts]
            values[place] = float(np.mean(scores))
        return values[place]

    while True:
        higher = max((place, place - 1, place + 1), key=value)
        if higher == place:
            return place
        place = higher


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
