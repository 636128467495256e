"""Products of complex numbers, row by row, in one pass: torch makes six results of their size on the way.

Rows hold the real parts in the first half of their columns, the imaginary parts in the second.
"""

from __future__ import annotations

import torch
from numba import njit
from torch import Tensor

from models.kernels.simd.vector import has_kernels, load, storage, store, tiles

_WIDEST = 64
"""Four parts of numbers at once take half of the registers."""


def complex_products(a: Tensor, b: Tensor, *, conjugate: bool = False) -> Tensor:
    """Return a b, or a conj(b), of complex numbers in halves: (n, 2 d) each.

    float32 rows on the CPU go through one loop on the caller's thread, anything else through torch.
    """
    assert a.shape == b.shape, f"rows {tuple(a.shape)} and {tuple(b.shape)}"
    assert a.shape[1] % 2 == 0, "a complex number takes two columns"
    if not (has_kernels(a) and a.dtype == b.dtype == torch.float32) or a.requires_grad or b.requires_grad:
        return _plain(a, b, conjugate)
    products = torch.empty(a.shape)
    half, ways = a.shape[1] // 2, True if conjugate else None
    arrays = storage(a), storage(b), storage(products)
    for column, lanes, count in tiles(half, _WIDEST):
        _multiply(lanes, half, column, count, len(a), ways, *arrays)
    return products


def _plain(a: Tensor, b: Tensor, conjugate: bool) -> Tensor:
    real, imaginary = a.chunk(2, 1)
    other_real, other_imaginary = b.chunk(2, 1)
    if conjugate:
        other_imaginary = -other_imaginary
    products = real * other_real - imaginary * other_imaginary, real * other_imaginary + imaginary * other_real
    return torch.cat(products, 1)


@njit(cache=True, nogil=True)
def _multiply(lanes, half, column, count, rows, conjugate, a, b, products):  # type: ignore[no-untyped-def]
    for i in range(rows):
        at = 2 * i * half + column
        real, imaginary = load(lanes, a, at, count), load(lanes, a, at + half, count)
        other, turned = load(lanes, b, at, count), load(lanes, b, at + half, count)
        if conjugate is not None:
            store(lanes, products, at, real * other + imaginary * turned, count)
            store(lanes, products, at + half, imaginary * other - real * turned, count)
        else:
            store(lanes, products, at, real * other - imaginary * turned, count)
            store(lanes, products, at + half, real * turned + imaginary * other, count)
