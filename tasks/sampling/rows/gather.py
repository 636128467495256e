"""Features gathered from their table row by row, and means of neighbours' features taken on the way.

A table is (N, D) float32, float16, bfloat16 as uint16, or int8 (N, D + 4), see
`models.kernels.tables.byte_rows`. What comes out is a float32 or bfloat16 tensor in recycled memory. Kernels copy one
tile of columns at a time, in vectors, and ask for rows well before they are due.

Rows may lie in two tables of one kind, where a machine holds a part of a graph: row r >= 0 is table[r], and row r < 0
is extra[~r], one that came from another machine.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit, types
from numba.extending import overload
from numpy.typing import NDArray
from torch import Tensor

from models.kernels.memory import recycled
from models.kernels.simd.prefetch import (
    ROWS_AHEAD,
    ROWS_NEAR,
    Lines,
    prefetch_row,
    prefetch_row_near,
    row_lines,
)
from models.kernels.simd.vector import Lanes, load, store, tiles, zeros
from models.kernels.tables.byte_rows import SCALE_BYTES, load_bytes, load_half, round_to_bfloat16
from tasks.sampling.neighborhoods.in_edges import frozen

Array = NDArray[Any]
_LINE_BYTES = 64
_STREAMED_BYTES = 1 << 22


def gather_rows(table: Array, rows: Array, dtype: torch.dtype, extra: Array | None = None) -> Tensor:
    """Return table[rows], (n, D) of `dtype`: float32 or bfloat16; the table (N, D) is contiguous, rows integer (n,).

    `extra`, like `table`, has the negative rows, see above; None: there are none.
    """
    out = _new(len(rows), num_columns(table), dtype)
    _copy(table, rows, out, extra)
    return _tensor(out, dtype)


def gather_side_by_side(left: Array, right: Array, rows: Array, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return left[rows] and right[rows], the halves of one (n, 2 D) matrix; arguments as of `gather_rows`."""
    assert left.shape == right.shape
    width = left.shape[1]
    both = _new(len(rows), 2 * width, dtype)
    _copy(left, rows, both[:, :width])
    _copy(right, rows, both[:, width:])
    whole = _tensor(both, dtype)
    return whole[:, :width], whole[:, width:]


def num_columns(table: Array) -> int:
    """Return D, the numbers in a row of a table."""
    return int(table.shape[1]) - (SCALE_BYTES if table.dtype == np.int8 else 0)


def _copy(table: Array, rows: Array, out: Array, extra: Array | None = None) -> None:
    for tile in table_tiles(table, out, extra):
        copy_rows(0, len(rows), *tile, frozen(rows), flat_rows(out), row_stride(out))


def gather_mean(
    table: Array, nodes: Array, indptr: Array, ids: Array, dtype: torch.dtype, extra: Array | None = None
) -> tuple[Tensor, Tensor]:
    """Return the rows of destinations and the means over their in-edges' sources, in one pass over the edges.

    own_v = x_nodes[v], mean_v = 1/|N(v)| sum_{u in N(v)} x_u, 0 where v has no in-edges. Sums are float32. For bfloat16
    results the rows are rounded before they are added: a table that was rounded beforehand gives the same.

    Args:
        table: x, (N, D) contiguous, see above.
        nodes: int32 or int64 (num_dst,).
        indptr: int64 (num_dst + 1,), the edges of each destination.
        ids: like nodes (E,), their sources.
        dtype: torch.float32 or torch.bfloat16.
        extra: like `table`, the negative nodes and ids, see above; None: there are none.

    Returns:
        own and mean, each (num_dst, D) of `dtype`: the halves of one (num_dst, 2 D) matrix.
    """
    width = num_columns(table)
    both = _new(len(nodes), 2 * width, dtype)
    own, mean = both[:, :width], both[:, width:]
    edges = frozen(nodes), frozen(indptr), frozen(ids)
    for tile in table_tiles(table, own, extra):
        mean_rows(0, len(nodes), *tile, *edges, flat_rows(own), flat_rows(mean), row_stride(own))
    whole = _tensor(both, dtype)
    return whole[:, :width], whole[:, width:]


@njit(cache=True, nogil=True)
def copy_rows(low, high, lanes, count, width, column, far, near, table, shift, rows, out, stride):  # type: ignore[no-untyped-def]
    """Copy one tile of rows low..high-1 of `rows`; results lie `stride` numbers apart."""
    for i in range(low, high):
        if i + ROWS_AHEAD < high:
            prefetch_row(far, table, _offset(rows[i + ROWS_AHEAD], width, shift) + column)
        if near is not None and i + ROWS_NEAR < high:
            prefetch_row_near(near, table, _offset(rows[i + ROWS_NEAR], width, shift) + column)
        vector = _load(lanes, table, _offset(rows[i], width, shift), column, width, count)
        store(lanes, out, i * stride + column, vector, count)


@njit(cache=True, nogil=True)
def mean_rows(  # type: ignore[no-untyped-def]
    low, high, lanes, count, width, column, far, near, table, shift, nodes, indptr, ids, own, mean, stride
):
    """Fill one tile of own (num_dst, D), unless it is None, and mean, for destinations low..high-1.

    Their rows lie `stride` numbers apart.
    """
    last = indptr[high]
    for i in range(low, high):
        if own is not None:
            if i + 2 < high:
                prefetch_row(far, table, _offset(nodes[i + 2], width, shift) + column)
            vector = _load(lanes, table, _offset(nodes[i], width, shift), column, width, count)
            store(lanes, own, i * stride + column, vector, count)
        total = zeros(lanes)
        for e in range(indptr[i], indptr[i + 1]):
            if e + ROWS_AHEAD < last:
                prefetch_row(far, table, _offset(ids[e + ROWS_AHEAD], width, shift) + column)
            if near is not None and e + ROWS_NEAR < last:
                prefetch_row_near(near, table, _offset(ids[e + ROWS_NEAR], width, shift) + column)
            vector = _load(lanes, table, _offset(ids[e], width, shift), column, width, count)
            total = total + _rounded(vector, mean)
        total = total * (np.float32(1) / np.float32(max(1, indptr[i + 1] - indptr[i])))
        store(lanes, mean, i * stride + column, total, count)


def _load(lanes: Any, table: Any, start: Any, column: Any, width: Any, count: Any) -> Any:
    raise AssertionError("for kernels only")


@overload(_load, inline="always")
def _choose_load(lanes, table, start, column, width, count):  # type: ignore[no-untyped-def]
    if table.dtype.bitwidth == 8:
        return lambda lanes, table, start, column, width, count: load_bytes(
            lanes, table, start + column, count, start + width - SCALE_BYTES
        )
    if table.dtype.bitwidth == 16 and table.dtype.signed:
        return lambda lanes, table, start, column, width, count: load_half(lanes, table, start + column, count)
    return lambda lanes, table, start, column, width, count: load(lanes, table, start + column, count)


def _offset(row: Any, width: Any, shift: Any) -> Any:
    raise AssertionError("for kernels only")


@overload(_offset, inline="always")
def _choose_offset(row, width, shift):  # type: ignore[no-untyped-def]
    """Return where a row begins: rows of both tables are read from the first one's address on.

    Without a branch, for which table a row is in is as good as random: with one this took 2.5 times as long.
    """
    if shift is None or isinstance(shift, types.NoneType | types.Omitted):
        return lambda row, width, shift: np.int64(row) * width

    def either(row, width, shift):  # type: ignore[no-untyped-def]
        at = np.int64(row)
        sign = at >> np.int64(63)  # all bits of a negative number
        return (at ^ sign) * width + (shift & sign)

    return either


def _rounded(vector: Any, out: Any) -> Any:
    raise AssertionError("for kernels only")


@overload(_rounded, inline="always")
def _choose_rounding(vector, out):  # type: ignore[no-untyped-def]
    if out.dtype.bitwidth == 16:
        return lambda vector, out: round_to_bfloat16(vector)
    return lambda vector, out: vector


def table_tiles(
    table: Array, out: Array, extra: Array | None = None
) -> list[tuple[Lanes, int, int, int, Lines, Lines | None, Array, int | None]]:
    """Return the kernels' arguments for each tile of columns.

    They are lanes, columns used, the row's width, first column, lines to prefetch far and near, the table as it is read
    by kernels, and how many numbers behind its beginning `extra` begins. `out`, (n, D), or one like it, is what they
    write: past the caches where it is large, since nobody reads it before all of it is written (a quarter of the time,
    rows of 512 bytes, Zen 4, November 2026).
    """
    assert table.flags.c_contiguous, "tables of features are contiguous"
    width = table.shape[1]
    flat = frozen(table.view(np.int16) if table.dtype == np.float16 else table).reshape(-1)
    shift = None
    if extra is not None:
        assert (extra.dtype, extra.shape[1]) == (table.dtype, table.shape[1]), "both tables have rows of one kind"
        assert extra.flags.c_contiguous, "tables of features are contiguous"
        shift, rest = divmod(extra.ctypes.data - table.ctypes.data, table.itemsize)
        assert not rest, "numbers are aligned"
    size = table.itemsize
    columns = num_columns(table)
    whole_lines = all(n % _LINE_BYTES == 0 for n in (out.ctypes.data, out.strides[0], columns * out.itemsize))
    streaming = whole_lines and out.nbytes >= _STREAMED_BYTES
    return [
        (lanes, count, width, column, *row_lines(count * size, size), flat, shift)
        for column, lanes, count in tiles(columns, streaming=streaming)
    ]


def flat_rows(out: Array) -> Array:
    """Return rows (n, D), which may be columns of a wider matrix, as the flat array that kernels write."""
    count = len(out)
    size = (count - 1) * row_stride(out) + out.shape[1] if count else 0
    return np.lib.stride_tricks.as_strided(out, (size,), (out.itemsize,))


def row_stride(out: Array) -> int:
    """Return how many numbers lie between one row and the next."""
    return out.strides[0] // out.itemsize


def _new(rows: int, width: int, dtype: torch.dtype) -> Array:
    return recycled((rows, width), np.uint16 if dtype == torch.bfloat16 else np.float32)


def _tensor(array: Array, dtype: torch.dtype) -> Tensor:
    tensor = torch.from_numpy(array)
    return tensor.view(dtype) if dtype == torch.bfloat16 else tensor
