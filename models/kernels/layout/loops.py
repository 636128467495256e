"""The loop of a layout's steps: see `models.kernels.layout.move_points`.

A row has two or three floats, so that vectors go across samples: a group of as many as there are lanes is gathered,
number by number, then all its distances, forces and moves are computed, then the moves are added, one after the other.
The parts are functions that numba does not inline but LLVM may: only one of them is compiled anew for an objective, and
only the others for another kind of row numbers.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from models.kernels.layout.objectives import attraction, repulsion
from models.kernels.simd.vector import load, maximum, minimum, prefetch_item, store, zeros

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
    """Add the move in a slot and lane to a row."""
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
