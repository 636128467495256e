"""Losses and steps of layouts in plain NumPy and float64: what the loops are checked against."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.kernels.layout.move_points import GROUP, PointRows
from models.kernels.layout.objectives import LayoutObjective

_TINY = 1e-30
"""Added to a squared distance of 0 before its logarithm is taken."""


def layout_loss(
    own: PointRows,
    others: PointRows,
    heads: NDArray[Any],
    tails: NDArray[Any],
    negatives: NDArray[Any],
    objective: LayoutObjective,
) -> float:
    """Return the mean of -log p(d_ij) - w sum_k log(1 - p(d_ik)) over samples, given as to `move_points`.

    w is gamma, or 1 for tsne. `epsilon` and clipping change steps, not the loss; equal points count as very near ones.
    """
    points = own.rows[heads].astype(np.float64)
    near = _squares(points - others.rows[tails])
    far = _squares(points[:, None] - others.rows[negatives])
    weight = 1.0 if objective.name == "tsne" else objective.gamma
    if objective.name == "tsne":
        odds = objective.odds
        attracted = np.log1p(odds * (1 + near))
        pushed = np.log1p(odds * (1 + far)) - np.log(odds * (1 + far))
    else:
        a, b = (objective.a, objective.b) if objective.name == "umap" else (1.0, 1.0)
        attracted = np.log1p(a * near**b)
        pushed = np.log1p(a * far**b) - np.log(a * far**b + _TINY)
    return float((attracted + weight * pushed.sum(1)).mean())


def _squares(gaps: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray((gaps**2).sum(-1))


def reference_forces(
    objective: LayoutObjective, d: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the attraction and the repulsion at squared distances d."""
    if objective.name == "tsne":
        odds = objective.odds * (1 + d)
        return -2 * objective.odds / (1 + odds), 2 / ((1 + d) * (1 + odds))
    a, b = (objective.a, objective.b) if objective.name == "umap" else (1.0, 1.0)
    away = np.maximum(d, _TINY)
    attraction = -2 * a * b * away ** (b - 1) / (1 + a * away**b)
    return attraction, 2 * objective.gamma * b / (np.maximum(d + objective.epsilon, _TINY) * (1 + a * away**b))


def reference_move_points(
    points: NDArray[np.float64],
    pairs: NDArray[Any],
    negatives: NDArray[Any],
    objective: LayoutObjective,
    *,
    rate: float,
    most: float = 5.0,
    move_tails: bool = True,
    move_negatives: bool = True,
) -> None:
    """Do what `move_points` does to one table: points (rows, dim), pairs (n, 2)."""
    for low in range(0, len(pairs), GROUP):
        before = points.copy()
        for (i, j), others in zip(pairs[low : low + GROUP], negatives[low : low + GROUP], strict=True):
            for number, row in enumerate([j, *others]):
                gap = before[i] - before[row]
                force = reference_forces(objective, gap @ gap)[min(number, 1)]
                move = rate * np.clip(force * gap, -most, most)
                points[i] += move
                if move_tails if number == 0 else move_negatives:
                    points[row] -= move
