"""The nodes' features where a GPU reads them: in its memory, and what has no room there in page-locked CPU memory.

Which rows have room follows from how often a batch is expected to read them. Not yet run on a GPU.
"""

from __future__ import annotations

import math
import mmap
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[Any]
_CHUNK_ROWS = 1 << 16


@dataclass(frozen=True)
class FeatureTable:
    """Rows of features, float32, float16 or bfloat16."""

    hot: Tensor
    """(K, D) on the device: all rows, or those that are read most."""
    cold: Tensor | None = None
    """(N - K, D) in CPU memory, page-locked where the device is a GPU, which reads it over its bus."""
    place: Tensor | None = None
    """int32 or int64 (N,) on the device: a row's number k in `hot`, or -1 - k in `cold`."""

    @property
    def is_split(self) -> bool:
        """Whether some rows lie in CPU memory."""
        return self.cold is not None

    def parts(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return what kernels take; what is not there is not read."""
        return self.hot, self.hot if self.cold is None else self.cold, self.hot if self.place is None else self.place

    @classmethod
    def put(cls, table: Array, reads: Array, device: torch.device, memory: int) -> FeatureTable:
        """Copy a table to where it is read.

        Args:
            table: (N, D) float32, float16, or bfloat16 as uint16.
            reads: float (N,), how often a row is read, see `expected_reads`.
            device: of the kernels.
            memory: bytes that may be taken there.
        """
        num_rows, row_bytes = len(table), table.itemsize * table.shape[1]
        if num_rows * row_bytes <= memory:
            return cls(_copy(table, np.arange(num_rows), device))
        wide = np.dtype(np.int32 if num_rows < 1 << 31 else np.int64)
        count = max(0, memory - wide.itemsize * num_rows) // row_bytes
        # A stable order, so that equal rows lie alike on every machine.
        order = np.argsort(-reads, kind="stable")
        place = np.empty(num_rows, wide)
        place[order[:count]] = np.arange(count)
        place[order[count:]] = -1 - np.arange(num_rows - count)
        return cls(
            _copy(table, order[:count], device),
            _copy_to_host(table, order[count:], device),
            torch.tensor(place).to(device),
        )


def _copy(table: Array, rows: Array, device: torch.device) -> Tensor:
    out = torch.empty(len(rows), table.shape[1], dtype=_dtype(table), device=device)
    for low in range(0, len(rows), _CHUNK_ROWS):
        out[low : low + _CHUNK_ROWS] = _tensor(table[rows[low : low + _CHUNK_ROWS]])
    return out


def _copy_to_host(table: Array, rows: Array, device: torch.device) -> Tensor:
    """Copy rows into memory that the device can read."""
    shape = (len(rows), table.shape[1])
    # Whole pages of its own: a page can be locked once only.
    memory = mmap.mmap(-1, max(1, math.prod(shape) * table.itemsize))
    out = _tensor(np.frombuffer(memory, table.dtype, math.prod(shape)).reshape(shape))
    for low in range(0, len(rows), _CHUNK_ROWS):
        out[low : low + _CHUNK_ROWS] = _tensor(table[rows[low : low + _CHUNK_ROWS]])
    if device.type == "cuda" and out.nbytes:
        _lock(out)
    return out


def _lock(memory: Tensor) -> None:
    """Page-lock memory where it lies: torch's own page-locked memory is rounded up to a power of two."""
    runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    code = int(runtime.cudaHostRegister(memory.data_ptr(), memory.nbytes, 0))
    if code:
        raise MemoryError(f"cudaHostRegister could not lock {memory.nbytes / 1e9:,.1f} GB of features (code {code})")
    weakref.finalize(memory, runtime.cudaHostUnregister, memory.data_ptr()).atexit = False


def _dtype(table: Array) -> torch.dtype:
    return _tensor(np.empty((0, 1), table.dtype)).dtype


def _tensor(array: Array) -> Tensor:
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    return tensor.view(torch.bfloat16) if array.dtype == np.uint16 else tensor


def expected_reads(indptr: Array, indices: Array, seeds: Array, fanouts: tuple[int, ...]) -> Array:
    """Return how often batches read each node's features, up to a factor: float64 (N,).

    A hop takes each in-edge of v with chance min(1, fanout / in-degree): one pass over all edges a hop. A node that
    is reached twice in a batch is counted twice, which moves what is read most only little.
    """
    reached = np.zeros(len(indptr) - 1)
    reached[seeds] = 1
    total = reached.copy()
    for fanout in fanouts:
        beyond = np.zeros_like(reached)
        _pass_on(np.asarray(indptr), np.asarray(indices), fanout, reached, beyond)
        total += beyond
        reached = reached + beyond  # all nodes so far are the next hop's destinations
    return total


@njit(cache=True, nogil=True)
def _pass_on(indptr, indices, fanout, reached, beyond):  # type: ignore[no-untyped-def]
    for v in range(len(indptr) - 1):
        degree = indptr[v + 1] - indptr[v]
        if reached[v] > 0 and degree > 0:
            share = reached[v] * min(1.0, fanout / degree)
            for e in range(indptr[v], indptr[v + 1]):
                beyond[indices[e]] += share
