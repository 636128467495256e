"""Steps of layouts and of skip-gram in plain NumPy and float64: what the loops are checked against."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.kernels.layout.move_points import GROUP
from models.kernels.layout.objectives import LayoutObjective

_TINY = 1e-30


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


def reference_train_pairs(
    vertex: NDArray[np.float64],
    context: NDArray[np.float64],
    pairs: NDArray[Any],
    negatives: NDArray[Any],
    rate: float,
    negative_weight: float = 1.0,
    *,
    in_turn: bool = False,
) -> None:
    """Do what `train_pairs` does in plain float64: tables (rows, width), pairs (n, 2).

    `in_turn`: the slope of a row that is twice among a pair's contexts is taken anew after its first step.
    """
    for (u, v), others in zip(pairs, negatives, strict=True):
        rows, centre = [v, *others], vertex[u].copy()
        products = [centre @ context[row] for row in rows]
        change = np.zeros(vertex.shape[1])
        for number, row in enumerate(rows):
            chance = 1 / (1 + np.exp(-(centre @ context[row] if in_turn else products[number])))
            slope = rate * (-negative_weight * chance if number else 1 - chance)
            change += slope * context[row]
            context[row] += slope * centre
        vertex[u] += change


def reference_train_groups(
    vertex: NDArray[np.float64],
    context: NDArray[np.float64],
    pairs: NDArray[Any],
    negatives: NDArray[Any],
    rate: float,
    negative_weight: float = 1.0,
    group: int = 1,
) -> None:
    """Do what one program on a device does, in plain float64: tables (rows, width), pairs (n, 2)."""
    for low in range(0, len(pairs), group):
        others = negatives[low // group]
        rows, moved = context[others], np.zeros((len(others), vertex.shape[1]))
        for u, v in pairs[low : low + group]:
            centre, row = vertex[u].copy(), context[v].copy()
            slope = rate / (1 + np.exp(centre @ row))
            slopes = -rate * negative_weight / (1 + np.exp(-rows @ centre))
            context[v] += slope * centre
            vertex[u] += slope * row + slopes @ rows
            moved += np.outer(slopes, centre)
        np.add.at(context, others, moved)
