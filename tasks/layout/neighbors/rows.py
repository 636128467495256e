"""Rows of vectors as a metric compares them: read by block, from memory or from a mapped file, never copied whole."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from configs.errors import DataError
from tasks.arrays import Array, blocks

Metric = Literal["euclidean", "cosine", "dot"]
NeighborLists: TypeAlias = tuple[NDArray[np.int64], NDArray[np.float32]]
"""Rows and distances of neighbours, (m, k) each, the nearest first."""
BLOCK_BYTES = 32 << 20
"""Of float32 rows, or of scores, that are in memory at a time for each thread."""
_FAR = 1e15


class SearchedRows:
    """Vectors (n, d) of any numeric type, in memory or mapped, as float32."""

    def __init__(self, vectors: Array, metric: Metric, chosen: NDArray[np.int64] | None = None) -> None:
        """Nothing is read yet; with `chosen` only those rows count. Raises ValueError for what is no matrix."""
        if vectors.ndim != 2 or vectors.dtype.kind not in "iufb":
            raise ValueError(f"vectors have the shape {vectors.shape} of {vectors.dtype}; numbers (n, d) are needed")
        self.vectors, self.metric, self.chosen = vectors, metric, chosen

    def __len__(self) -> int:
        return len(self.vectors if self.chosen is None else self.chosen)

    @property
    def block(self) -> int:
        """How many rows are read at a time."""
        return max(BLOCK_BYTES // (4 * max(self.vectors.shape[1], 1)), 1)

    def read(self, rows: slice | NDArray[np.int64]) -> Tensor:
        """Return some rows: float32 (m, d), of length 1 for cosine, where a row of zeros stays one."""
        with np.errstate(over="ignore"):
            values = np.array(self.vectors[rows if self.chosen is None else self.chosen[rows]], np.float32)
        rows_read = torch.from_numpy(values)
        return unit_rows(rows_read) if self.metric == "cosine" else rows_read

    def mean(self) -> Tensor:
        """Return the mean row, float32 (d,). Raises DataError for numbers that cannot be compared."""
        total, largest = torch.zeros(self.vectors.shape[1], dtype=torch.float64), 0.0
        for rows in blocks(len(self), self.block):
            part = self.read(rows)
            total += part.sum(0, dtype=torch.float64)
            largest = max(largest, float(part.abs().max()) if part.numel() else 0.0)
            if not total.isfinite().all():
                row, column = (int(one[0]) for one in np.nonzero(~part.isfinite().numpy()))
                row = rows.start + row if self.chosen is None else int(self.chosen[rows.start + row])
                where = f"row {row}" if self.metric == "cosine" else f"row {row}, column {column}"
                raise DataError(
                    f"vectors: {where} is not a finite float32 number; leave the row out or put a number there"
                )
        if largest > _FAR or 0 < largest < 1 / _FAR:
            raise DataError(
                f"vectors: the largest number is {largest:g}, and float32 cannot square it; "
                f"{'divide' if largest > 1 else 'multiply'} all by one number"
            )
        return (total / max(len(self), 1)).float()


def unit_rows(x: Tensor) -> Tensor:
    """Return rows of length 1, float32 (m, d); a row of zeros stays. The largest number comes to 1 before squares."""
    largest = x.abs().amax(1, keepdim=True) if x.shape[1] else x.new_ones(len(x), 1)
    x = x / torch.where(largest > 0, largest, torch.ones_like(largest))
    return torch.nn.functional.normalize(x, dim=1)


def scores(metric: Metric, queries: Tensor, others: Tensor) -> Tensor:
    """Return how far queries (m, d) are from others (c, d), less what is the same for all of a query: float32 (m, c).

    Squared distances less the query's square; for dot the negative product. The smallest is the nearest.
    """
    if metric == "dot":
        return -(queries @ others.T)
    return torch.addmm((others * others).sum(1)[None], queries, others.T, alpha=-2)


def distances(metric: Metric, queries: Tensor, others: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distances of queries (m, d) to the others at the places `at` (m, k), and these, the nearest first.

    The distance; for cosine 1 - cosine; for dot the negative product. Differences are squared here, since products lose
    what is small beside the vectors' lengths.
    """
    squared = np.empty(at.shape, np.float32)
    _compare(queries.numpy(), others.numpy(), at.numpy(), metric == "dot", squared)
    far, order = torch.from_numpy(squared).sort(dim=1, stable=True)
    if metric == "euclidean":
        far = far.sqrt()
    elif metric == "cosine":
        far = far / 2
    return far, at.gather(1, order)


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _compare(queries, others, at, products, out):  # type: ignore[no-untyped-def]
    for i in range(len(at)):
        for j in range(at.shape[1]):
            total, other = np.float32(0), at[i, j]
            if products:
                for c in range(queries.shape[1]):
                    total -= queries[i, c] * others[other, c]
            else:
                for c in range(queries.shape[1]):
                    d = queries[i, c] - others[other, c]
                    total += d * d
            out[i, j] = total


def squares(metric: Metric, distance: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return what a Gaussian falls with, of distances as `distances` returns them.

    The squared distance, of unit vectors for cosine; for dot the negative product: of vectors of one length half the
    squared distance but for a constant, and weights do not change with either.
    """
    if metric == "euclidean":
        return distance * distance
    return 2 * distance if metric == "cosine" else distance
