"""Products of dense matrices whose number of rows no two batches share; without gradients.

oneDNN compiles its code for each shape of operands, 1 to 2 ms a product. So rows are taken in pieces of 2048, 1024,
..., 64, which are found compiled from the second batch on, and the last few by other means. Threads take a piece each;
it stays in their cache from one product to the next that reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from llvmlite import binding
from torch import Tensor

from models.kernels.memory import empty
from models.kernels.threads import run_parts

_MKLDNN: Any = torch.backends.mkldnn
_PREFERS_ONEDNN = (
    binding.get_host_cpu_name().startswith("znver")
    and _MKLDNN.is_available()
    and not torch.cpu._is_amx_tile_supported()
)
"""For float32, on AMD's Zen, where MKL takes none of its fast paths.

GFLOP/s of one core in float32, forward / by input / by weight, 15,000 x 256 times 256 x 256, November 2026:
Zen 4: MKL 85 / 82 / 91, oneDNN 97 / 105 / 100. Zen 5: MKL about 100, oneDNN 200 to 250.
By the name of the processor and not by a measurement, which on a busy machine would change results between runs.
"""
_LARGEST, _SMALLEST = 2048, 64
"""Rows of a piece. One core, 21,525 x 256 times 256 x 256, GFLOP/s: float32 95 to 100 in pieces of 512 to 21,525 rows
alike; bfloat16 178 to 197 with 512 rows, 188 to 206 with 2048, 196 to 213 undivided, less 2 ms for each compilation."""
_LEAST_PIECES = 8
"""So that threads are done at about the same time."""
_GROUPS = 8
"""Partial sums over rows, so that results do not depend on which thread was faster, nor on how many there are."""

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

    def fill(low: int, high: int) -> None:
        for number, (x, matrix) in enumerate(terms):
            _add_product(x[low:high], matrix, out[low:high], None if number else bias, accumulate or number > 0)

    bounds, rest = _pieces(out)
    with _float32_by_onednn(out):
        run_parts(lambda i: fill(*bounds[i]), len(bounds))
    fill(*rest)
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
    bounds, rest = _pieces(grad)
    groups = [bounds[i::_GROUPS] for i in range(min(_GROUPS, len(bounds)))]
    products = empty((len(groups) + 1, grad.shape[1], x.shape[1]), kind, grad.device)
    sums = torch.zeros(len(groups) + 1, grad.shape[1], dtype=kind, device=grad.device)

    def add(group: int, pieces: Bounds) -> None:
        total = products[group].zero_()
        for low, high in pieces:
            _add_outer(grad[low:high], x[low:high], total)
            if with_bias:
                sums[group] += grad[low:high].sum(0)

    with _float32_by_onednn(grad):
        run_parts(lambda i: add(i, groups[i]), len(groups))
    add(len(groups), [rest])
    return products.sum(0), sums.sum(0) if with_bias else None


def _add_outer(grad: Tensor, x: Tensor, total: Tensor) -> None:
    if grad.dtype == total.dtype:
        total.addmm_(grad.t(), x)
    elif _is_rest(grad):
        total.addmm_(grad.float().t(), x.float())
    else:
        total += grad.t() @ x


def new_rows(x: Tensor, columns: int) -> Tensor:
    """Return (len(x), columns) of x's dtype and device with arbitrary content."""
    return empty((len(x), columns), x.dtype, x.device)


def _pieces(rows: Tensor) -> tuple[Bounds, tuple[int, int]]:
    """Return bounds of pieces whose sizes come again, and of the rest; all is rest where pieces bring nothing.

    They follow from the number of rows alone, so that results do too.
    """
    count = len(rows)
    if not takes_pieces(rows):
        return [], (0, count)
    bounds, low, size = [], 0, _LARGEST
    while size > _SMALLEST and size * _LEAST_PIECES > count:
        size //= 2
    while count - low >= _SMALLEST:
        if count - low < size:
            size //= 2
            continue
        bounds.append((low, low + size))
        low += size
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
    before = _MKLDNN.matmul.fp32_precision
    _MKLDNN.matmul.fp32_precision = "bf16"
    try:
        yield
    finally:
        _MKLDNN.matmul.fp32_precision = before
