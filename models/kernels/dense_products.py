"""Products of dense matrices whose number of rows no two batches share; without gradients.

oneDNN compiles its code for each shape of operands, 1 to 2 ms a product. So rows are taken in pieces of multiples of
256, which are found compiled when the next batch has about as many, and the last few by other means. Threads take a
piece each; it stays in their cache from one product to the next that reads it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from models.kernels.memory import empty
from models.kernels.threads import run_parts

_MKLDNN: Any = torch.backends.mkldnn
_PREFERS_ONEDNN = _MKLDNN.is_available() and torch.cpu._is_avx2_supported() and not torch.cpu._is_amx_tile_supported()
"""For float32, where oneDNN has vector code of its own and no reason to round (`_float32_by_onednn`).

GFLOP/s of one core in float32, forward / by input / by weight, 15,000 x 256 times 256 x 256, November 2026:
Zen 4: MKL 85 / 82 / 91, oneDNN 97 / 105 / 100. Zen 5: MKL about 100, oneDNN 200 to 250.
By what the processor can do and not by a measurement, which on a busy machine would change results between runs.
"""
_STEP, _SMALLEST, _LARGEST = 256, 64, 4096
"""Rows of a piece: multiples of the first, or half and a quarter of it at the end, up to the last. One core, 21,525 x
256 times 256 x 256, GFLOP/s: float32 95 to 100 in pieces of 512 to 21,525 rows alike; bfloat16 178 to 197 with 512
rows, 188 to 206 with 2048, 196 to 213 undivided, less 2 ms for each compilation (Zen 4, November 2026)."""
_PARTS = 8
"""Pieces at least, where rows suffice, so that threads are done at about the same time."""
_SUMS = 8
"""Partial sums over rows: a number of their own, so that results do not follow from the number of threads."""

Bounds = list[tuple[int, int]]


def takes_pieces(x: Tensor) -> bool:
    """Return whether products with these rows are taken piece by piece through oneDNN."""
    if x.device.type != "cpu" or x.dim() != 2 or len(x) < _SMALLEST:
        return False
    return x.dtype == torch.bfloat16 or (x.dtype == torch.float32 and _PREFERS_ONEDNN)


def multiply_rows(
    terms: Sequence[tuple[Tensor, Tensor]], out: Tensor, bias: Tensor | None = None, *, accumulate: bool = False
) -> Tensor:
    """out = sum_i x_i M_i + bias, or out += the sum; returns out.

    Args:
        terms: pairs of x_i (n, k_i) and M_i (k_i, m), which may be a transposed view; all of out's dtype.
        out: (n, m), its rows contiguous; none of the x_i.
        bias: (m,) of out's dtype or None.
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
    fill(len(bounds))
    return out


def _add_product(x: Tensor, matrix: Tensor, out: Tensor, bias: Tensor | None, accumulate: bool) -> None:
    if _is_rest(out):
        y = out.float() if accumulate else torch.zeros(out.shape)
        y.addmm_(x.float(), matrix.float())
        out.copy_(y if bias is None else y + bias)
    elif accumulate:
        out.addmm_(x, matrix)
        if bias is not None:
            out += bias
    elif bias is None:
        torch.mm(x, matrix, out=out)
    else:
        torch.addmm(bias, x, matrix, out=out)


def gradient_of_matrix(grad: Tensor, x: Tensor) -> Tensor:
    """Return grad^T x: (n, m), (n, k) -> (m, k); float32 where they are bfloat16, else their dtype."""
    return gradients_of_map(grad, x, with_bias=False)[0]


def gradients_of_map(grad: Tensor, x: Tensor, *, with_bias: bool = True) -> tuple[Tensor, Tensor | None]:
    """Return grad^T x, (n, m), (n, k) -> (m, k), and the sum of grad's rows, (m,).

    Both are float32 where grad and x are bfloat16, else of their dtype.
    """
    kind = torch.float32 if grad.dtype == torch.bfloat16 else grad.dtype
    bounds, rest = _pieces(grad, -(-len(grad) // _SUMS))
    products = empty((len(bounds) + 1, grad.shape[1], x.shape[1]), kind, grad.device)
    sums = torch.empty(len(bounds) + 1, grad.shape[1], dtype=kind, device=grad.device)

    def multiply(i: int) -> None:
        low, high = bounds[i] if i < len(bounds) else rest
        _multiply_transposed(grad[low:high], x[low:high], products[i])
        if with_bias:
            sums[i] = grad[low:high].sum(0)

    with _float32_by_onednn(grad):
        run_parts(multiply, len(bounds))
    multiply(len(bounds))
    return products.sum(0), sums.sum(0) if with_bias else None


def _multiply_transposed(grad: Tensor, x: Tensor, out: Tensor) -> None:
    """out = grad^T x."""
    if grad.dtype == out.dtype:
        torch.mm(grad.t(), x, out=out)
    elif _is_rest(grad):
        torch.mm(grad.float().t(), x.float(), out=out)
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
    bounds, low = [], 0
    size = -(-size // _STEP) * _STEP
    for piece in (size, count % size // _STEP * _STEP, _STEP // 2, _SMALLEST):
        while 0 < piece <= count - low:
            bounds.append((low, low + piece))
            low += piece
    return bounds, (low, count)


def _is_rest(rows: Tensor) -> bool:
    """Whether these are the few bfloat16 rows beyond the pieces: for MKL in float32, which needs no compiling."""
    return rows.dtype == torch.bfloat16 and rows.device.type == "cpu" and len(rows) < _SMALLEST


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
