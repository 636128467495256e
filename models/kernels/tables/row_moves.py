"""Rows of tables, read at random, and moved by gradients that came for them.

Gradients of one row are added up first and the row moves once, as its rule says: training by batches, where
`models.kernels.skipgram.train_pairs` trains pair by pair. All of it is the same from run to run.

Milliseconds for 5,000 and 50,000 random ones of 2 million rows of 200 float32, one thread (Sapphire Rapids, November
2026): gathered 1.0 and 17 (torch 3.1 and 54), moved by SGD 1.4 and 20 (torch's index_add_ 3.0 and 29), of which sorting
takes 0.2 and 3; by Adagrad 2.7 and 24, by Adam 4.2 and 38.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from models.kernels.memory import empty
from models.kernels.simd.row_tiles import LEAST, rough_reciprocal_root
from models.kernels.simd.vector import FAR, NEAR, Lanes, load, prefetch, prefetch_far, store, tiles, total, zeros
from models.kernels.tables.device_tables import DeviceTable, device_rows, move_device_rows, set_device_lengths
from models.kernels.tables.row_steps import SCRAMBLE, WHOLE_ROW, ask_for, following, move_row, put
from models.kernels.tables.row_tables import RowTable
from models.kernels.threads import even_rows, run_rows

_ODD = np.uint64(1)
_TINY, _THREE, _HALF = np.float32(LEAST), np.float32(3), np.float32(0.5)
_WORTH_THREADS = 8192
"""Gradients: to wake threads takes as long as to move a thousand rows."""
_FLOATS_AHEAD = 1024
"""Rows as many as make so many columns are asked for ahead, and two at least: flat from 512 to 4096."""


def gather_rows(table: RowTable | DeviceTable, rows: NDArray[Any]) -> Tensor:
    """Return rows of a table, int32 or int64 (n,), as float32 (n, width)."""
    assert rows.ndim == 1, "row numbers"
    if isinstance(table, DeviceTable):
        return device_rows(table, rows)
    gathered = empty((len(rows), table.width), torch.float32)
    for column, lanes, count in tiles(table.width):
        _gather(lanes, table.stride, table.width, column, count, table.values, rows, gathered.view(-1).numpy())
    return gathered


@njit(cache=True, nogil=True)
def _gather(lanes, stride, width, column, count, table, rows, found):  # type: ignore[no-untyped-def]
    last = len(rows) - 1
    for i in range(len(rows)):
        prefetch_far(lanes, table, np.int64(rows[min(i + FAR, last)]) * stride + column)
        prefetch(lanes, table, np.int64(rows[min(i + NEAR, last)]) * stride + column)
        row = load(lanes, table, np.int64(rows[i]) * stride + column, count)
        store(lanes, found, i * width + column, row, count)


def all_rows(table: RowTable | DeviceTable) -> Tensor:
    """Return a copy of all rows, float32 (num_rows, width), where they lie."""
    if isinstance(table, DeviceTable):
        return table.values[:, : table.width].float().clone()
    return torch.from_numpy(table.read())


def move_rows(table: RowTable | DeviceTable, rows: NDArray[Any], gradients: Tensor, rate: float, noise: int) -> None:
    """Move rows down their gradients: each row once, by the sum of its gradients in their order.

    Args:
        table: rows, which move as its rule says; on a device by other functions, to nearly the same.
        rows: their numbers, int32 or int64 (n,), in any order, some more than once.
        gradients: float32 (n, width).
        rate: learning rate.
        noise: seed of the rounding of bfloat16 tables, above 0; another one for every call.
    """
    assert rows.ndim == 1, "row numbers"
    assert gradients.shape == (len(rows), table.width), "a gradient for each row"
    assert gradients.dtype == torch.float32, "gradients are float32"
    if isinstance(table, DeviceTable):
        move_device_rows(table, rows, gradients, rate, noise)
        return
    order = _order(rows)
    stride, rule = table.stride, table.rule
    size = min(stride & -stride, WHOLE_ROW)
    constants = np.array([rule.decay, rule.second_decay, rule.epsilon], np.float32)
    flat = gradients.detach().contiguous().view(-1).numpy()
    ahead = max(2, _FLOATS_AHEAD // stride)
    by_element = True if rule.name == "elementwise_adagrad" else None
    run_rows(
        _move_rows, _whole_rows(rows, order), *_lanes(size), size, table.width, stride, table.values, rows, order, flat,
        table.moment, table.scalars, np.float32(-rate), constants, np.uint64(noise), ahead, by_element
    )  # fmt: skip


def _whole_rows(rows: NDArray[Any], order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return bounds in the order for threads: no two of them have gradients of one row."""
    if len(order) < _WORTH_THREADS:
        return np.array([0, len(order)])
    bounds, ascending = even_rows(len(order)), rows[order]
    bounds[1:-1] = np.searchsorted(ascending, ascending[bounds[1:-1]])
    return bounds


def _order(rows: NDArray[Any]) -> NDArray[np.int64]:
    """Return the places of rows in ascending order, of equal ones in theirs: `argsort(kind="stable")`.

    Row and place sorted as one number are never equal, which lets NumPy take its vector instructions: 6 us for 1,152
    rows where argsort takes 38, 15 for 3,000 where it takes 107 to 212 (Sapphire Rapids, November 2026).
    """
    assert len(rows) < 1 << 32, "places of 32 bits"
    both = (rows.astype(np.int64) << 32) | np.arange(len(rows))
    both.sort()
    return both & 0xFFFFFFFF


@cache
def _lanes(size: int) -> tuple[Lanes, Lanes]:
    return Lanes(size), Lanes(size, partly=True)


@njit(cache=True, nogil=True)
def _move_rows(  # type: ignore[no-untyped-def]
    low, high, lanes, partly, size, width, stride, table, rows, order, gradients, moment, scalars, rate, constants,
    noise, ahead, by_element
):  # fmt: skip
    """Move rows in ascending order, those whose gradients are from `low` to below `high` in it."""
    count, parts, at = len(order), stride // size, low
    summed = np.zeros(stride, np.float32)
    while at < high:
        state = following((noise + np.uint64(at) * SCRAMBLE) | _ODD)
        row = np.int64(rows[order[at]])
        soon = order[min(at + ahead, count - 1)]
        ask_for(lanes, size, parts, table, np.int64(rows[soon]) * stride)
        ask_for(lanes, size, parts, gradients, np.int64(soon) * width)
        if moment is not None:
            ask_for(lanes, size, parts, moment, np.int64(rows[soon]) * stride)
        _set(lanes, partly, size, parts, width, summed, gradients, order[at])
        at += 1
        while at < count and np.int64(rows[order[at]]) == row:
            _add(lanes, partly, size, parts, width, summed, gradients, order[at])
            at += 1
        if by_element is not None:
            _move_by_element(lanes, size, table, row * stride, summed, moment, rate, state)
        else:
            move_row(lanes, size, width, table, row, summed, moment, scalars, rate, constants, state)


@njit(inline="always")
def _move_by_element(lanes, size, table, at, gradient, squares, rate, state):  # type: ignore[no-untyped-def]
    """Move a row by its gradient over the root of the sum of all its squares, number by number."""
    scramble = state * SCRAMBLE
    for part in range(0, len(gradient), size):
        step = load(lanes, gradient, part, size)
        seen = load(lanes, squares, at + part, size) + step * step
        store(lanes, squares, at + part, seen, size)
        scramble = following(scramble)
        guess = rough_reciprocal_root(seen + _TINY)
        root = guess * (_THREE - (seen + _TINY) * guess * guess) * _HALF  # Newton's step makes 14 bits 27
        put(lanes, table, at + part, load(lanes, table, at + part, size) + step * root * rate, scramble)


@njit(inline="always")
def _set(lanes, partly, size, parts, width, summed, gradients, number):  # type: ignore[no-untyped-def]
    for part in range(parts):
        column = part * size
        row = load(partly, gradients, number * width + column, min(size, width - column))
        store(lanes, summed, column, row, size)


@njit(inline="always")
def _add(lanes, partly, size, parts, width, summed, gradients, number):  # type: ignore[no-untyped-def]
    for part in range(parts):
        column = part * size
        row = load(partly, gradients, number * width + column, min(size, width - column))
        store(lanes, summed, column, load(lanes, summed, column, size) + row, size)


def set_lengths(table: RowTable | DeviceTable, rows: NDArray[Any]) -> None:
    """Give rows, int32 or int64 (n,), the length 1; rows of zeros stay. A row that is there twice is the same after it.

    bfloat16 is rounded to the nearest.
    """
    assert rows.ndim == 1, "row numbers"
    if isinstance(table, DeviceTable):
        set_device_lengths(table, rows)
        return
    stride = table.stride
    size = min(stride & -stride, WHOLE_ROW)
    _set_lengths(Lanes(size), size, stride, table.values, np.unique(rows))


@njit(cache=True, nogil=True)
def _set_lengths(lanes, size, stride, table, rows):  # type: ignore[no-untyped-def]
    parts, last, ahead = stride // size, len(rows) - 1, max(2, _FLOATS_AHEAD // stride)
    for i in range(len(rows)):
        ask_for(lanes, size, parts, table, np.int64(rows[min(i + ahead, last)]) * stride)
        at, squares = np.int64(rows[i]) * stride, zeros(lanes)
        for part in range(parts):
            columns = load(lanes, table, at + part * size, size)
            squares = squares + columns * columns
        length = np.float32(np.sqrt(total(squares)))
        if length > 0:
            for part in range(parts):
                store(lanes, table, at + part * size, load(lanes, table, at + part * size, size) / length, size)
