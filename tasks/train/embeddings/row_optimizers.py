"""Optimizers of tables in CPU memory, whose gradients are a few of their rows."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from models.kernels.threads import CHUNKS_A_THREAD, num_threads, run_rows

_MIN_ROWS_A_RANGE = 256


class RowAdagrad:
    """Adagrad with one accumulator a row, as in PyTorch-BigGraph (https://arxiv.org/abs/1903.12287).

    s_i += mean_d(g_id^2), w_i -= rate * g_i / (sqrt(s_i) + eps): 4 bytes of state a row.
    """

    eps = 1e-10

    def __init__(self, table: Tensor, make: Callable[[tuple[int, ...]], Tensor]) -> None:
        """`make` makes float32 zeros of a shape."""
        self.table = table
        self.sums = make((len(table),))

    def tensors(self) -> dict[str, Tensor]:
        """Return the state."""
        return {"sums": self.sums}

    def step(self, ids: Tensor, grads: Tensor, rate: float, number: int) -> None:
        """Update the rows `ids`, int64 (n,), distinct, by their gradients, float32 (n, D)."""
        arrays = (ids, grads, self.table, self.sums)
        run_rows(row_adagrad, _ranges(len(ids)), *(array.numpy() for array in arrays), np.float32(rate), self.eps)


class SparseAdam:
    """Adam whose moments change on the rows with gradients only: torch.optim.SparseAdam on coalesced gradients."""

    betas = (0.9, 0.999)
    eps = 1e-8

    def __init__(self, table: Tensor, make: Callable[[tuple[int, ...]], Tensor]) -> None:
        """`make` makes float32 zeros of a shape."""
        self.table = table
        self.means, self.squares = make(tuple(table.shape)), make(tuple(table.shape))

    def tensors(self) -> dict[str, Tensor]:
        """Return the state."""
        return {"means": self.means, "squares": self.squares}

    def step(self, ids: Tensor, grads: Tensor, rate: float, number: int) -> None:
        """Update the rows `ids`, int64 (n,), distinct, by their gradients, float32 (n, D), in step `number`, from 1."""
        first, second = self.betas
        scaled = rate * math.sqrt(1 - second**number) / (1 - first**number)
        arrays = (ids, grads, self.table, self.means, self.squares)
        constants = (np.float32(scaled), np.float32(1 - first), np.float32(1 - second), np.float32(self.eps))
        run_rows(sparse_adam, _ranges(len(ids)), *(array.numpy() for array in arrays), *constants)


def _ranges(count: int) -> NDArray[np.int64]:
    pieces = max(1, min(CHUNKS_A_THREAD * num_threads(), count // _MIN_ROWS_A_RANGE))
    return np.arange(pieces + 1) * count // pieces


# error_model: with Python's, every division is tested for zero, and no loop is vectorised (three times slower)
@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def row_adagrad(start, stop, ids, grads, table, sums, rate, eps):  # type: ignore[no-untyped-def]
    """Apply RowAdagrad to gradients start..stop - 1."""
    for i in range(start, stop):
        v = ids[i]
        grad, row = grads[i], table[v]
        square = np.float32(0)
        for d in range(len(grad)):
            square += grad[d] * grad[d]
        sums[v] += square / np.float32(len(grad))
        scale = rate / (np.sqrt(sums[v]) + np.float32(eps))
        for d in range(len(grad)):
            row[d] -= scale * grad[d]


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def sparse_adam(start, stop, ids, grads, table, means, squares, rate, first, second, eps):  # type: ignore[no-untyped-def]
    """Apply SparseAdam to gradients start..stop - 1; `first` and `second` are 1 - beta."""
    for i in range(start, stop):
        v = ids[i]
        grad, row, mean, square = grads[i], table[v], means[v], squares[v]
        for d in range(len(grad)):
            g = grad[d]
            m = mean[d] + (g - mean[d]) * first
            s = square[d] + (g * g - square[d]) * second
            mean[d] = m
            square[d] = s
            row[d] -= rate * m / (np.sqrt(s) + eps)
