"""Steps of a layout: points move by the gradients of samples, in place, without a gradient being stored.

For a sample of neighbours (i, j) with negatives n_1..n_K, and the forces of `objectives.py`, the head i moves by

    rate * (clip(attraction(d_ij) (y_i - y_j)) + sum_k clip(repulsion(d_ik) (y_i - y_{n_k})))

where each number of each part is clipped by itself; the tail and the negatives move the other way, by their own part.
Sixteen samples are read before any of them moves, and all their moves are added: no step is lost where they share rows.
One thread, or threads whose rows are disjoint, give the same bits always.

A row has two or three floats, so that vectors go across samples: a group is gathered number by number, then all its
forces are computed, then its moves are added. The parts are functions that numba does not inline but LLVM may: only one
of them is compiled anew for an objective, and only the others for another kind of row numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from models.kernels.layout.objectives import LayoutObjective, ObjectiveKind, attraction, repulsion
from models.kernels.simd.vector import Lanes, load, maximum, minimum, prefetch_item, store, zeros

GROUP = 16
"""Samples that are read before they move: one register of AVX-512, two of AVX2."""


@njit
def _ask_for(own, others, stride, heads, tails, negatives, low, count):  # type: ignore[no-untyped-def]
    """Prefetch the rows of `count` samples."""
    for i in range(low, low + count):
        prefetch_item(own, np.int64(heads[i]) * stride)
        prefetch_item(others, np.int64(tails[i]) * stride)
        for k in range(negatives.shape[1]):
            prefetch_item(others, np.int64(negatives[i, k]) * stride)


@njit
def _gather(axes, own, others, stride, heads, tails, negatives, low, count, points):  # type: ignore[no-untyped-def]
    """Copy the rows of `count` samples: points of heads, of tails, of first negatives and so on, axis by axis."""
    for lane in range(count):
        i = low + lane
        head, tail = np.int64(heads[i]) * stride, np.int64(tails[i]) * stride
        for axis in range(len(axes)):
            points[axis * GROUP + lane] = own[head + axis]
            points[(len(axes) + axis) * GROUP + lane] = others[tail + axis]
        for k in range(negatives.shape[1]):
            row = np.int64(negatives[i, k]) * stride
            for axis in range(len(axes)):
                points[((k + 2) * len(axes) + axis) * GROUP + lane] = others[row + axis]


@njit
def _replace_by_moves(lanes, kind, axes, slots, numbers, rate, most, points, changes):  # type: ignore[no-untyped-def]
    """Replace the points of a group by how they move: tails and negatives each, heads in all."""
    width = len(axes) * GROUP
    for axis in range(len(axes)):
        store(lanes, changes, axis * GROUP, zeros(lanes), GROUP)
    for slot in range(1, slots):
        d = zeros(lanes)
        for axis in range(len(axes)):
            gap = load(lanes, points, axis * GROUP, GROUP) - load(lanes, points, slot * width + axis * GROUP, GROUP)
            d = d + gap * gap
        force = attraction(kind, numbers, d) if slot == 1 else repulsion(kind, numbers, d)
        for axis in range(len(axes)):
            at = slot * width + axis * GROUP
            gap = load(lanes, points, axis * GROUP, GROUP) - load(lanes, points, at, GROUP)
            move = minimum(maximum(force * gap, -most), most) * rate
            store(lanes, changes, axis * GROUP, load(lanes, changes, axis * GROUP, GROUP) + move, GROUP)
            store(lanes, points, at, zeros(lanes) - move, GROUP)
    for axis in range(len(axes)):
        store(lanes, points, axis * GROUP, load(lanes, changes, axis * GROUP, GROUP), GROUP)


@njit
def _add(axes, table, stride, row, slot, lane, points):  # type: ignore[no-untyped-def]
    at = np.int64(row) * stride
    for axis in range(len(axes)):
        table[at + axis] += points[(slot * len(axes) + axis) * GROUP + lane]


@njit(cache=True, nogil=True)
def move_groups(  # type: ignore[no-untyped-def]
    lanes, kind, axes, own, others, stride, heads, tails, negatives, moved, numbers, rate, most, points, changes, ahead
):
    """Take the steps of samples, group by group.

    Args:
        axes: a tuple as long as a point has coordinates: the loops over them are unrolled.
        moved: whether tails move, and whether negatives do.
        points: float32 ((K + 2) * len(axes) * GROUP,), room to work in.
        changes: float32 (len(axes) * GROUP,), likewise.
        ahead: samples ahead at which rows are asked for; 0: they are near enough.
    """
    count, num_negatives = negatives.shape
    for low in range(0, count, GROUP):
        size = min(GROUP, count - low)
        if ahead > 0:
            first = min(low + ahead, count)
            _ask_for(own, others, stride, heads, tails, negatives, first, min(GROUP, count - first))
        _gather(axes, own, others, stride, heads, tails, negatives, low, size, points)
        _replace_by_moves(lanes, kind, axes, num_negatives + 2, numbers, rate, most, points, changes)
        for lane in range(size):
            _add(axes, own, stride, heads[low + lane], 0, lane, points)
            if moved[0]:
                _add(axes, others, stride, tails[low + lane], 1, lane, points)
            if moved[1]:
                for k in range(num_negatives):
                    _add(axes, others, stride, negatives[low + lane, k], k + 2, lane, points)


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
    near = ((points - others.rows[tails]) ** 2).sum(-1)
    far = ((points[:, None] - others.rows[negatives]) ** 2).sum(-1)
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
