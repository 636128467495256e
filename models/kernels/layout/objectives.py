"""What draws a point to its neighbours and pushes it from others, by the objective of a layout.

With d = |y_i - y_j|^2, an objective is the likelihood log p(d) of neighbours and log(1 - p(d)) of drawn pairs:

| objective | p(d) | source |
|---|---|---|
| largevis | 1 / (1 + d) | arXiv:1602.00370, equation 6: negatives count gamma times |
| umap | 1 / (1 + a d^b) | arXiv:1802.03426, section 3.2: likewise |
| tsne | q / (q + c), q = 1 / (1 + d) | t-SNE by negative sampling, arXiv:2206.01816, equation 6; c is `odds` |

A force is the factor of y_i - y_j in the gradient by y_i: twice the derivative by d. As 1 - p goes to 0 with d for
largevis and umap, theirs have a small `epsilon` added to the d that is divided by, as their authors' programs do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numba.extending import overload
from numpy.typing import NDArray

from models.kernels.simd._llvm import KernelConstant
from models.kernels.simd.exponentials import exp, log

ObjectiveName = Literal["largevis", "umap", "tsne"]
LEAST_EPSILON = 1e-12
"""What is added at least: the force between equal points, times no distance, is then 0."""
_ONE, _TWO, _MINUS_TWO = np.float32(1), np.float32(2), np.float32(-2)


@dataclass(frozen=True)
class ObjectiveKind(KernelConstant):
    """Which objective a loop is compiled for."""

    objective: ObjectiveName


@dataclass(frozen=True)
class LayoutObjective:
    """An objective and its numbers; those that it has not are not read."""

    name: ObjectiveName
    gamma: float = 1.0
    """Weight of negatives (largevis, umap)."""
    epsilon: float = 0.0
    """Squared distance that is added where one is divided by (largevis, umap)."""
    a: float = 1.0
    b: float = 1.0
    """Of umap's p."""
    odds: float = 1.0
    """Of tsne's p: the mean of q over all pairs, times the negatives of a sample. 1 is near to UMAP."""

    @property
    def numbers(self) -> NDArray[np.float32]:
        """What loops read: float32 (5,)."""
        return np.array([self.gamma, max(self.epsilon, LEAST_EPSILON), self.a, self.b, self.odds], np.float32)


def attraction(kind: Any, numbers: Any, d: Any) -> Any:
    """Return the force between neighbours at squared distances d, by lanes: below 0."""
    raise NotImplementedError


def repulsion(kind: Any, numbers: Any, d: Any) -> Any:
    """Return the force between a point and a negative at squared distances d, by lanes: above 0."""
    raise NotImplementedError


@overload(attraction, inline="always")
def _choose_attraction(kind, numbers, d):  # type: ignore[no-untyped-def]
    if kind.objective == "largevis":
        return lambda kind, numbers, d: _MINUS_TWO / (d + _ONE)
    if kind.objective == "tsne":
        return lambda kind, numbers, d: (_MINUS_TWO * numbers[4]) / ((d + _ONE) * numbers[4] + _ONE)

    def of_umap(kind, numbers, d):  # type: ignore[no-untyped-def]
        # Powers by logarithms: that of 0 is -88 here, so a power of it is finite, and its force is that of no distance.
        logarithm = log(d)
        factor = exp(logarithm * (numbers[3] - _ONE)) * (_MINUS_TWO * numbers[2] * numbers[3])
        return factor / (exp(logarithm * numbers[3]) * numbers[2] + _ONE)

    return of_umap


@overload(repulsion, inline="always")
def _choose_repulsion(kind, numbers, d):  # type: ignore[no-untyped-def]
    if kind.objective == "largevis":
        return lambda kind, numbers, d: (_TWO * numbers[0]) / ((d + numbers[1]) * (d + _ONE))
    if kind.objective == "tsne":
        return lambda kind, numbers, d: _TWO / ((d + _ONE) * ((d + _ONE) * numbers[4] + _ONE))
    return lambda kind, numbers, d: (
        (_TWO * numbers[0] * numbers[3]) / ((d + numbers[1]) * (exp(log(d) * numbers[3]) * numbers[2] + _ONE))
    )
