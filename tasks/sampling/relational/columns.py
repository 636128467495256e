"""Some columns of a matrix that all types share, row by row: each type has its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from models.kernels.memory import recycled
from models.kernels.simd.prefetch import AHEAD
from models.kernels.simd.vector import prefetch_item
from tasks.arrays import Array
from tasks.sampling.neighborhoods.lookup import frozen

_LINE_NUMBERS = 16  # float32 or int32 of a cache line


def gather_columns(table: Array, rows: Array, columns: Sequence[int], dtype: Any) -> Tensor:
    """Return table[rows][:, columns] as a tensor (n, len(columns)) of `dtype`: np.float32 or np.int64.

    Args:
        table: (N, D), contiguous; of float16 or of what `dtype` is or is converted from.
        rows: integer (n,).
        columns: below D, ascending or not.
        dtype: np.float32 or np.int64.
    """
    out = recycled((len(rows), len(columns)), dtype)
    wanted = np.asarray(columns, np.int64)
    if table.dtype == np.float16:  # which numba does not read
        low, high = int(wanted.min()), int(wanted.max()) + 1
        out[:] = table[rows, low:high][:, wanted - low]
    else:
        lines = np.unique(wanted // _LINE_NUMBERS) * _LINE_NUMBERS
        _copy(frozen(table).reshape(-1), table.shape[1], frozen(rows), wanted, lines, out)
    return torch.from_numpy(out)


@njit(cache=True, nogil=True)
def _copy(table, width, rows, columns, lines, out):  # type: ignore[no-untyped-def]
    for i in range(len(rows)):
        if i + AHEAD < len(rows):
            ahead = np.int64(rows[i + AHEAD]) * width
            for line in lines:
                prefetch_item(table, ahead + line)
        start = np.int64(rows[i]) * width
        for j in range(len(columns)):
            out[i, j] = table[start + columns[j]]
