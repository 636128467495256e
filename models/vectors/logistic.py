"""Logistic regression of many classes at once: what scores node embeddings, and the head that they are used with.

Every class against the rest, L2-regularised, as LIBLINEAR's solver 0 does one class after the other (Fan and others:
LIBLINEAR, JMLR 9, 2008): for a class with labels y = +1 or -1, minimise

    |w|^2 / 2 + C sum_i log(1 + exp(-y_i w . x_i)),

where x ends with a constant 1 whose weight, the bias, is regularised with the others. Newton's method as in LIBLINEAR,
its linear systems by conjugate gradients; all classes share the products with x, which are then products of matrices.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_TOLERANCE = 1e-4
"""Of the gradient's norm against that at 0, times the smaller class's share: LIBLINEAR's, as scikit-learn sets it."""
_MOST_STEPS, _MOST_INNER_STEPS, _MOST_HALVINGS = 50, 60, 12
_ENOUGH = 0.1
"""Linear systems are solved until the residual is this share of the gradient."""
_SUFFICIENT = 0.01
"""Share of the decrease that the slope promises which a step has to bring."""


@dataclass(frozen=True)
class LogisticModel:
    """Scores x . weight + bias."""

    weight: Tensor
    """float32 (D, C)."""
    bias: Tensor
    """float32 (C,)."""

    def scores(self, x: Tensor) -> Tensor:
        """Return the scores of rows, float32 (n, D) -> (n, C); above 0: more likely than not."""
        return torch.addmm(self.bias, x, self.weight)


def fit_logistic(x: Tensor, is_member: Tensor, strength: float = 1.0) -> LogisticModel:
    """Fit every class against the rest.

    Args:
        x: float32 (n, D).
        is_member: bool (n, C): which rows are of a class. A class with no row, or with all, gets what its objective
            says, a bias far from 0 at most.
        strength: C, above 0: how much the rows count against the regularisation.

    Raises:
        ValueError: no rows, or shapes that do not fit.
    """
    if x.dim() != 2 or is_member.dim() != 2 or len(x) != len(is_member) or not len(x):
        raise ValueError(f"rows {tuple(x.shape)} and members {tuple(is_member.shape)} are not (n, D) and (n, C), n > 0")
    with torch.no_grad():
        ones = torch.ones(len(x), 1, dtype=torch.float32, device=x.device)
        weights = _newton(torch.cat([x.float(), ones], 1), is_member, strength)
    return LogisticModel(weights[:-1], weights[-1])


def _newton(x: Tensor, is_member: Tensor, strength: float) -> Tensor:
    """Return the weights of all classes, (D + 1, C)."""
    weights = torch.zeros(x.shape[1], is_member.shape[1], dtype=torch.float32, device=x.device)
    members = is_member.sum(0)
    rarer = torch.minimum(members, len(x) - members).clamp(min=1) / len(x)
    start: Tensor | None = None
    active = torch.arange(is_member.shape[1], device=x.device)
    for _ in range(_MOST_STEPS):
        target = is_member[:, active].float()
        active_weights, score = weights[:, active], x @ weights[:, active]
        chance = score.sigmoid()
        gradient = active_weights + strength * (x.T @ (chance - target))
        norms = gradient.norm(dim=0)
        start = norms if start is None else start
        open_ = norms > _TOLERANCE * rarer[active] * start[active]
        if not open_.any():
            break
        if not open_.all():
            active, target, active_weights, score, chance, gradient = (
                active[open_],
                *(matrix[:, open_] for matrix in (target, active_weights, score, chance, gradient)),
            )
        step = _solve(x, strength * chance * (1 - chance), gradient)
        weights[:, active] = active_weights + step * _step_size(
            x, strength, target, active_weights, score, gradient, step
        )
    return weights


def _solve(x: Tensor, curvature: Tensor, gradient: Tensor) -> Tensor:
    """Solve (1 + x^T diag(curvature_c) x) s_c = -gradient_c for every class c, to a tenth of the gradient."""
    diagonal = 1 + (x * x).T @ curvature
    step = torch.zeros_like(gradient)
    residual = -gradient
    scaled = residual / diagonal
    direction = scaled.clone()
    product = (residual * scaled).sum(0)
    enough = _ENOUGH * gradient.norm(dim=0)
    for _ in range(_MOST_INNER_STEPS):
        open_ = residual.norm(dim=0) > enough
        if not open_.any():
            break
        curved = direction + x.T @ (curvature * (x @ direction))
        # A class that is done takes steps of 0: leaving it out would cost more than its share of the product.
        length = torch.where(open_, product / (direction * curved).sum(0).clamp(min=1e-30), 0.0)
        step += length * direction
        residual = residual - length * curved
        scaled = residual / diagonal
        following = (residual * scaled).sum(0)
        direction = scaled + direction * torch.where(open_, following / product.clamp(min=1e-30), 0.0)
        product = following
    return step


def _step_size(
    x: Tensor, strength: float, target: Tensor, weights: Tensor, score: Tensor, gradient: Tensor, step: Tensor
) -> Tensor:
    """Return how far to go along each class's step: 1, or halved until the objective falls enough: (C,)."""
    sign, moved = 2 * target - 1, x @ step
    slope = (gradient * step).sum(0)

    def objective(size: Tensor) -> Tensor:
        losses = torch.nn.functional.softplus(-sign * (score + moved * size))
        return ((weights + step * size) ** 2).sum(0) / 2 + strength * losses.sum(0)

    size = torch.ones_like(slope)
    before = objective(torch.zeros_like(slope))
    for _ in range(_MOST_HALVINGS):
        # The last bits of sums of float32 are noise, which must not turn a good step down.
        enough = objective(size) <= before + _SUFFICIENT * size * slope + 1e-6 * before.abs()
        if enough.all():
            break
        size = torch.where(enough, size, size / 2)
    return size
