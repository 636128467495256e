"""Steps of a layout: points move by the gradients of samples, in place, without a gradient being stored.

For a sample of neighbours (i, j) with negatives n_1..n_K, and the forces of `objectives.py`, the head i moves by

    rate * (clip(attraction(d_ij) (y_i - y_j)) + sum_k clip(repulsion(d_ik) (y_i - y_{n_k})))

where each number of each part is clipped by itself; the tail and the negatives move the other way, by their own part.
Sixteen samples are read before any of them moves, and all their moves are added: no step is lost where they share rows.
One thread, or threads whose rows are disjoint, give the same bits always.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.kernels.layout.loops import GROUP, move_groups
from models.kernels.layout.objectives import LayoutObjective, ObjectiveKind
from models.kernels.simd.vector import Lanes

_LANES = Lanes(GROUP)
_AXES = {2: (0, 1), 3: (0, 1, 2)}
_AHEAD = 2 * GROUP
_NEAR_BYTES = 1 << 20
"""Tables up to this size are in the second-level cache anyway."""


@dataclass(frozen=True)
class PointRows:
    """Coordinates of points, and how far apart their rows are."""

    values: NDArray[np.float32]
    """Flat: row r begins at r * stride; numbers of a row from `dim` on are not touched."""
    stride: int
    dim: int
    """2 or 3."""

    @classmethod
    def zeros(cls, num_points: int, dim: int) -> PointRows:
        """Return points at 0, in rows of two or four numbers: none is on two cache lines."""
        stride = 2 if dim == 2 else 4
        return cls(np.zeros(num_points * stride, np.float32), stride, dim)

    @property
    def rows(self) -> NDArray[np.float32]:
        """The coordinates: a view (num_points, dim)."""
        return self.values.reshape(-1, self.stride)[:, : self.dim]


def move_points(
    own: PointRows,
    others: PointRows,
    heads: NDArray[Any],
    tails: NDArray[Any],
    negatives: NDArray[Any],
    objective: LayoutObjective,
    *,
    rate: float,
    most: float = 5.0,
    move_tails: bool = True,
    move_negatives: bool = True,
) -> None:
    """Take one step for each sample, group after group.

    Args:
        own: points of heads.
        others: points of tails and negatives: the same as `own`, or another block of them, in rows alike.
        heads: rows of `own`, int32 or int64 (n,).
        tails: rows of `others` (n,).
        negatives: rows of `others` (n, K). One that is the head itself pushes nothing.
        objective: gives the forces.
        rate: learning rate.
        most: what each number of a sample's gradient is clipped to.
        move_tails: whether tails move; not those of new points among fixed ones.
        move_negatives: likewise; in UMAP's own program they do not.
    """
    assert (own.stride, own.dim) == (others.stride, others.dim), "rows are laid out alike"
    slots, width = negatives.shape[1] + 2, own.dim * GROUP
    is_near = own.values.nbytes + others.values.nbytes <= _NEAR_BYTES
    move_groups(
        _LANES,
        ObjectiveKind(objective.name),
        _AXES[own.dim],
        own.values,
        others.values,
        own.stride,
        np.ascontiguousarray(heads),
        np.ascontiguousarray(tails),
        np.ascontiguousarray(negatives),
        (move_tails, move_negatives),
        objective.numbers,
        np.float32(rate),
        np.float32(most),
        np.zeros(slots * width, np.float32),
        np.zeros(width, np.float32),
        0 if is_near else _AHEAD,
    )
