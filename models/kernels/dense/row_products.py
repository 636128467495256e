"""Products of matrices in which each number follows from its row and its column alone, on every machine.

Libraries add up in an order that goes by the shapes: the same row, beside more rows, ends in other last bits. Of 338
shapes of weights in ten chunkings each, 3,380 cases, MKL's differ from the whole's in 0 with AVX-512, 1,553 with AVX2
and 39 with SSE4.2 (`benchmarks.row_products`, torch 2.13 on a Xeon, November 2026); MKL and oneDNN by turns in 238 of
2,170 on a Zen 4. Here a number is s_K of s_0 = its bias or 0, s_k = fma(x_k, w_k, s_{k-1}), each step rounded once as
IEEE 754 says: no choice is left to shapes, threads, libraries or instruction sets, and nothing has to be tried at run
time.

GFLOP/s of one thread, this and MKL (Emerald Rapids, November 2026): 15,000 x 256 times 256 x 256 136 and 133, 8,000 x
602 times 602 x 256 133 and 147, 20,000 x 500 times 500 x 16 44 and 58.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from models.kernels.memory import empty
from models.kernels.simd._llvm import HAS_AVX512
from models.kernels.simd.row_tiles import RowTile, fused, repeated, spread_rows, store_rows
from models.kernels.simd.vector import Lanes, load, storage
from models.kernels.threads import even_rows, run_rows

_HEIGHT = 8 if HAS_AVX512 else 4
"""Rows at once: with the widest lanes half of the registers."""
_TILE, _ROW = {n: RowTile(_HEIGHT, n) for n in (16, 32)}, {n: RowTile(1, n) for n in (16, 32)}
_LANES = {n: Lanes(n) for n in (16, 32)}
_WIDEST = 32 if HAS_AVX512 else 16
"""Columns at once."""
_BLOCK = 256
"""Rows that stay in the second-level cache while all columns are made of them."""

_stable = 0


def rows_are_stable() -> bool:
    """Return whether products are taken by rows now (`stable_rows`)."""
    return _stable > 0


@contextmanager
def stable_rows() -> Iterator[None]:
    """Have torch's products of float32 and bfloat16 matrices on the CPU taken by `multiply_by_rows`, in this thread.

    Whoever calls them: layers of torch, of DGL, of users. What else goes by the number of rows asks `rows_are_stable`,
    which holds for the whole process meanwhile. Without gradients.
    """
    global _stable
    _stable += 1
    try:
        with _Products():  # type: ignore[no-untyped-call]
            yield
    finally:
        _stable -= 1


class _Products(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = dict(kwargs or {})
        packet = func.overloadpacket
        if packet not in _PRODUCTS or not all(_can_take(one) for one in (*args, *given.values())):
            return func(*args, **given)
        before, x, matrix = (None, *args) if len(args) == 2 else args
        out = before if packet in _IN_PLACE else given.pop("out", None)
        result = _multiply_add(before, x, matrix, out, **given)
        return result if out is None else out


_ATEN = torch.ops.aten
_IN_PLACE = {_ATEN.addmm_, _ATEN.baddbmm_, _ATEN.addmv_}
_PRODUCTS = {_ATEN.mm, _ATEN.bmm, _ATEN.mv, _ATEN.addmm, _ATEN.baddbmm, _ATEN.addmv} | _IN_PLACE


def _can_take(value: Any) -> bool:
    if not isinstance(value, Tensor):
        return True  # alpha, beta
    return value.device.type == "cpu" and value.layout == torch.strided and value.dtype in _DTYPES


_DTYPES = (torch.float32, torch.bfloat16)


def _multiply_add(
    before: Tensor | None, x: Tensor, matrix: Tensor, out: Tensor | None, alpha: float = 1, beta: float = 1
) -> Tensor:
    """Return beta before + alpha x M as torch's `addmm`, `baddbmm` and `addmv` do; in `out` where that is given."""
    if matrix.dim() == 1:
        column = None if before is None else before.unsqueeze(-1)
        y = _multiply_add(column, x, matrix.unsqueeze(1), None, alpha, beta).squeeze(1)
        return y if out is None else out.copy_(y)
    bias = None
    if before is not None and before.dim() == 1 and len(before) == matrix.shape[-1] and alpha == beta == 1:
        bias, before = before.float(), None
    y = multiply_by_rows(x.float(), matrix.float(), bias, None if before is not None else out)
    if alpha != 1:
        y *= alpha
    if before is not None and beta != 0:
        y.add_(before, alpha=beta)
    if y is out:
        return y
    return y.to(x.dtype) if out is None else out.copy_(y)


def multiply_by_rows(x: Tensor, matrices: Tensor, bias: Tensor | None = None, out: Tensor | None = None) -> Tensor:
    """Return x M + bias: (n, k), (k, m), (m,) -> (n, m), float32 on the CPU; or (B, n, k), (B, k, m) -> (B, n, m).

    It is written into `out` where that is contiguous float32.
    """
    (count, width), columns = x.shape[-2:], matrices.shape[-1]
    fits = out is not None and out.is_contiguous() and out.dtype == torch.float32
    y = out if out is not None and fits else empty((*x.shape[:-1], columns), torch.float32)
    rows, result = storage(x.contiguous()), storage(y)
    start = torch.zeros(columns) if bias is None else bias
    whole = columns - columns % _WIDEST
    if columns - whole > 16:
        whole = columns
    for first, last, lanes in ((0, whole, _WIDEST), (whole, columns, 16)):
        if first < last:
            panels, begin = (_panels(one[..., first:last], lanes) for one in (matrices, start.unsqueeze(0)))
            run_rows(
                _multiply, even_rows(len(y) if y.dim() == 2 else len(y) * count), _TILE[lanes], _HEIGHT, _ROW[lanes],
                _LANES[lanes], lanes, max(count, 1), width, first, last, columns, rows, panels, begin, result,
            )  # fmt: skip
    return y


def _panels(matrices: Tensor, lanes: int) -> NDArray[Any]:
    """Cut columns into panels: (..., k, m) -> flat (..., panels, k, lanes), the last one filled up with zeros."""
    missing = -matrices.shape[-1] % lanes
    filled = torch.nn.functional.pad(matrices, (0, missing))
    panels = filled.view(*filled.shape[:-1], filled.shape[-1] // lanes, lanes)
    return storage(panels.transpose(-2, -3).contiguous())


@njit(cache=True, nogil=True)
def _multiply(  # type: ignore[no-untyped-def]
    low, high, tile, height, row, lanes, size, count, width, first, last, columns, x, panels, bias, y
):
    """Set columns `first` to `last` of rows low to high of all products, `count` rows of each."""
    per_matrix = -(-(last - first) // size) * width * size
    i = low
    while i < high:
        stop = min(high, i + _BLOCK, (i // count + 1) * count)
        base = i // count * per_matrix
        for column in range(first, last, size):
            used, panel = min(size, last - column), base + (column - first) * width
            begin = load(lanes, bias, column - first, size)
            j = i
            while j + height <= stop:
                sums = repeated(tile, begin)
                for k in range(width):
                    weights = repeated(tile, load(lanes, panels, panel + k * size, size))
                    sums = fused(spread_rows(tile, x, j * width + k, width), weights, sums)
                store_rows(tile, y, j * columns + column, columns, sums, used)
                j += height
            while j < stop:
                sums = repeated(row, begin)
                for k in range(width):
                    weights = repeated(row, load(lanes, panels, panel + k * size, size))
                    sums = fused(spread_rows(row, x, j * width + k, width), weights, sums)
                store_rows(row, y, j * columns + column, columns, sums, used)
                j += 1
        i = stop
