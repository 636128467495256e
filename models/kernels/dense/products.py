"""Products of dense matrices whose number of rows no two batches share; without gradients.

oneDNN compiles its code for each shape of operands, 1 to 2 ms a product. So rows are taken in pieces of multiples of
256, which are found compiled when the next batch has about as many, and the last few by other means. Threads take a
piece each; it stays in their cache from one product to the next that reads it.

Where bfloat16 is only a way to store numbers, which the processor multiplies faster in float32, bfloat16 rows are
multiplied so and rounded at the end.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, Literal

import torch
from torch import Tensor

from models.kernels.dense.row_products import rows_are_stable
from models.kernels.memory import empty
from models.kernels.processor import processor
from models.kernels.threads import run_parts

_MKLDNN: Any = torch.backends.mkldnn
_IS_AMD = any("AuthenticAMD" in line for line in processor())
_PREFERS_ONEDNN = _MKLDNN.is_available() and torch.cpu._is_avx2_supported() and _IS_AMD
"""For float32, where MKL is slow and oneDNN has vector code of its own and no reason to round (`_float32_by_onednn`).

GFLOP/s of one core in float32, forward / by input / by weight, 15,000 x 256 times 256 x 256, November 2026:
Zen 4: MKL 85 / 82 / 91, oneDNN 97 / 105 / 100. Zen 5: MKL about 100, oneDNN 200 to 250. Emerald Rapids: both 145 to
160, but pieces cost a tenth, of 816 rows a third.
By what the processor is and not by a measurement, which on a busy machine would change results between runs.
"""
_MULTIPLIES_BFLOAT16 = torch.cpu._is_amx_tile_supported() or (_IS_AMD and torch.cpu._is_avx512_bf16_supported())
"""Whether products of bfloat16 are faster than those of float32.

Zen's instruction for them does twice as much as float32's in a cycle, and AMX far more. Intel's, where AMX is not to be
had, does half as much: 83 GFLOP/s of 86 that are possible against 150 in float32 (Emerald Rapids, November 2026).
"""
_STEP, _SMALLEST, _LARGEST = 256, 64, 4096
"""Rows of a piece: multiples of the first, or half and a quarter of it at the end, up to the last. One core, 21,525 x
256 times 256 x 256, GFLOP/s: float32 95 to 100 in pieces of 512 to 21,525 rows alike; bfloat16 178 to 197 with 512
rows, 188 to 206 with 2048, 196 to 213 undivided, less 2 ms for each compilation (Zen 4, November 2026)."""
_LEAST_IN_FLOAT = 1024
"""Rows of a piece that is multiplied in float32, at least: a product by weight of fewer is mostly adding up."""
_PARTS = 8
"""Pieces at least, where rows suffice, so that threads are done at about the same time."""
_SUMS = 8
"""Partial sums over rows: a number of their own, so that results do not follow from the number of threads."""

Bounds = list[tuple[int, int]]


def takes_pieces(x: Tensor) -> bool:
    """Return whether products with these rows are taken piece by piece, through oneDNN or in float32."""
    if x.device.type != "cpu" or x.dim() != 2 or rows_are_stable():
        return False
    if x.dtype == torch.bfloat16 and not _MULTIPLIES_BFLOAT16:
        return len(x) > 0
    return len(x) >= _SMALLEST and (x.dtype == torch.bfloat16 or (x.dtype == torch.float32 and _PREFERS_ONEDNN))


def widened(x: Tensor) -> Tensor:
    """Return few bfloat16 rows in float32 where they are multiplied so, that several products need not widen them."""
    return x.float() if _in_float32(x) and not _MULTIPLIES_BFLOAT16 and len(x) < 2 * _LEAST_IN_FLOAT else x


def multiply_rows(
    terms: Sequence[tuple[Tensor, Tensor]], out: Tensor, bias: Tensor | None = None, *, accumulate: bool = False
) -> Tensor:
    """out = sum_i x_i M_i + bias, or out += the sum; returns out.

    Args:
        terms: pairs of x_i (n, k_i) and M_i (k_i, m), which may be a transposed view; x_i of out's dtype, M_i as
            `factor` returns it.
        out: (n, m), its rows contiguous; none of the x_i.
        bias: (m,) as `factor` returns it, or None.
        accumulate: add to what is in out.
    """
    bounds, rest = _pieces(out, min(-(-len(out) // _PARTS), _LARGEST))
    sizes = [high - low for low, high in (*bounds, rest)]
    factors = [(torch.split(x, sizes), matrix) for x, matrix in terms]
    results = torch.split(out, sizes)

    def fill(i: int) -> None:
        for number, (x, matrix) in enumerate(factors):
            _add_product(x[i], matrix, results[i], None if number else bias, accumulate or number > 0)

    with _float32_by_onednn(out):
        run_parts(fill, len(bounds))
    if sizes[-1]:
        fill(len(bounds))
    return out


def factor(matrix: Tensor, x: Tensor) -> Tensor:
    """Return a matrix or bias in the dtype in which `multiply_rows` reads it beside rows x.

    bfloat16 that is multiplied in float32 takes a float32 matrix as it is: rounding it would only cost time.
    """
    return matrix if _in_float32(x) else matrix.to(x.dtype)


def _add_product(x: Tensor, matrix: Tensor, out: Tensor, bias: Tensor | None, accumulate: bool) -> None:
    if _in_float32(out):
        rows, matrix, bias = x.float(), matrix.float(), None if bias is None else bias.float()
        # With `out` products do not go by autocast, which would round the factors.
        y = empty(tuple(out.shape), torch.float32)
        if accumulate:
            torch.addmm(out.float(), rows, matrix, out=y)
            y = y if bias is None else y.add_(bias)
        elif bias is None:
            torch.mm(rows, matrix, out=y)
        else:
            torch.addmm(bias, rows, matrix, out=y)
        out.copy_(y)
    elif accumulate:
        out.addmm_(x, matrix)
        if bias is not None:
            out += bias
    elif bias is None:
        torch.mm(x, matrix, out=out)
    else:
        torch.addmm(bias, x, matrix, out=out)


def gradients_of_map(grad: Tensor, x: Tensor, *, with_bias: bool = True) -> tuple[Tensor, Tensor | None]:
    """Return grad^T x, (n, m), (n, k) -> (m, k), and the sum of grad's rows, (m,).

    Both are float32 where grad and x are bfloat16, else of their dtype.
    """
    kind = torch.float32 if grad.dtype == torch.bfloat16 else grad.dtype
    bounds, rest = _pieces(grad, -(-len(grad) // _SUMS))
    has_rest = rest[0] < rest[1] or not bounds
    products = empty((len(bounds) + has_rest, grad.shape[1], x.shape[1]), kind, grad.device)
    sums = torch.empty(len(products), grad.shape[1], dtype=kind, device=grad.device)

    def multiply(i: int) -> None:
        low, high = bounds[i] if i < len(bounds) else rest
        _multiply_transposed(grad[low:high], x[low:high], products[i], sums[i] if with_bias else None)

    with _float32_by_onednn(grad):
        run_parts(multiply, len(bounds))
    if has_rest:
        multiply(len(bounds))
    product, total = (part[0] if len(part) == 1 else part.sum(0) for part in (products, sums))
    return product, total if with_bias else None


def _multiply_transposed(grad: Tensor, x: Tensor, out: Tensor, sums: Tensor | None) -> None:
    """out = grad^T x, sums = the sum of grad's rows."""
    if _in_float32(grad):
        grad, x = grad.float(), x.float()
    if sums is not None:
        torch.sum(grad, 0, dtype=sums.dtype, out=sums)
    if grad.dtype == out.dtype:
        torch.mm(grad.t(), x, out=out)
    else:
        out.copy_(grad.t() @ x)


def new_rows(x: Tensor, columns: int) -> Tensor:
    """Return (len(x), columns) of x's dtype and device with arbitrary content."""
    return empty((len(x), columns), x.dtype, x.device)


def _pieces(rows: Tensor, size: int) -> tuple[Bounds, tuple[int, int]]:
    """Return bounds of pieces of about `size` rows, and of the rest; all is rest where pieces bring nothing.

    They follow from the number of rows alone, so that results do too.
    """
    count = len(rows)
    if not takes_pieces(rows):
        return [], (0, count)
    if rows.dtype == torch.bfloat16 and not _MULTIPLIES_BFLOAT16:
        parts = min(-(-count // size), count // _LEAST_IN_FLOAT) if size else 0
        edges = [count * i // parts for i in range(parts + 1)] if parts > 1 else [0]
        return list(itertools.pairwise(edges)), (edges[-1], count)
    bounds, low = [], 0
    size = -(-size // _STEP) * _STEP
    for piece in (size, count % size // _STEP * _STEP, _STEP // 2, _SMALLEST):
        while 0 < piece <= count - low:
            bounds.append((low, low + piece))
            low += piece
    return bounds, (low, count)


def _in_float32(rows: Tensor) -> bool:
    """Whether to multiply bfloat16 rows in float32 through MKL, which needs no compiling.

    Where that is faster, and else the few rows beyond the pieces.
    """
    is_half = rows.dtype == torch.bfloat16 and rows.device.type == "cpu"
    return is_half and (not _MULTIPLIES_BFLOAT16 or len(rows) < _SMALLEST)


@contextmanager
def _float32_by_onednn(rows: Tensor) -> Iterator[None]:
    """Send torch's products of float32 matrices to oneDNN, which reads transposed operands where they lie.

    torch does so where it may round factors to bfloat16; without AMX oneDNN has no such product and computes in float32
    (a test compares with float64). The setting is the process's: products of other threads are as right either way.
    """
    if rows.dtype != torch.float32 or not takes_pieces(rows):
        yield
        return
    _setting.take()
    try:
        yield
    finally:
        _setting.give_back()


class _Setting:
    """The process's setting and its users in several threads: the first changes it, the last restores it."""

    def __init__(self) -> None:
        self.lock, self.users, self.before = Lock(), 0, ""

    def take(self) -> None:
        with self.lock:
            if not self.users:
                self.before = _MKLDNN.matmul.fp32_precision
                _MKLDNN.matmul.fp32_precision = "bf16"
            self.users += 1

    def give_back(self) -> None:
        with self.lock:
            self.users -= 1
            if not self.users:
                _MKLDNN.matmul.fp32_precision = self.before

    def forget(self) -> None:
        """A child has none of its parent's threads: nobody in it would restore the setting, or open the lock."""
        if self.users:
            _MKLDNN.matmul.fp32_precision = self.before
        self.lock, self.users = Lock(), 0


_setting = _Setting()
os.register_at_fork(after_in_child=_setting.forget)


@contextmanager
def products_in(precision: Literal["float32", "bfloat16", "tf32"]) -> Iterator[None]:
    """Have products of float32 matrices computed in bfloat16, where the processor has that, in float32, or in TF32.

    Factors are rounded to 8 bits, TF32's to 10 (on GPUs; not yet run on one); sums and results are float32. It holds
    for the whole process meanwhile. Milliseconds of (1024, 256) times (256, 1000) on one thread (Sapphire Rapids,
    November 2026): 3.4 in float32, 0.7 in bfloat16.
    """
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision({"bfloat16": "medium", "float32": "highest", "tf32": "high"}[precision])
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
