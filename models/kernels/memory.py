"""Arrays whose memory is used again once nobody holds them.

A batch of a large graph, and each layer's rows of it, is tens of megabytes. Fresh memory costs a page fault every
4 KiB, which makes gathering features several times as slow; and no two batches are of one size, so that malloc's heap
grows to a multiple of what is in use. So what one step lets go of goes to the next. Arrays are ordinary: when the last
array or tensor that looks at the memory is gone, it comes back by itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
import threading
import weakref
from collections import deque
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_SMALL = 1 << 17  # malloc keeps what is smaller
_SMALL_TENSOR = 1 << 22
"""Layers make many tensors of up to 2 MB from batches of molecules. Each costs 30 to 60 microseconds here and 4 from
malloc, a twentieth of a step of GIN, whose process stays as large (Emerald Rapids, November 2026)."""
_HUGE_PAGE = 1 << 21
_SPARE_BYTES = 1 << 26


class Recycler:
    """Memory between batches.

    When memory is asked for, what lies idle is cut down to what was in use at once at most, and 64 MiB.
    """

    def __init__(self) -> None:
        self._idle: deque[mmap.mmap] = deque()
        self._lock = threading.Lock()
        self._total_bytes = 0
        self._peak_bytes = 0

    def empty(self, shape: int | tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Return an array with arbitrary content."""
        shape = (shape,) if isinstance(shape, int) else shape
        count = math.prod(shape)
        size = count * np.dtype(dtype).itemsize
        if size < _SMALL:
            return np.empty(shape, dtype)
        memory = self._take(size)
        owner = np.frombuffer(memory, dtype, count)
        # Views keep `owner` alive, not the memory below it: NumPy passes over bases that are arrays only.
        weakref.finalize(owner, self._idle.append, memory).atexit = False
        return owner.reshape(shape)

    def give_back(self) -> None:
        """Give what lies idle back to the system."""
        with self._lock:
            while self._idle:
                self._drop()
            self._peak_bytes = 0

    def _drop(self) -> int:
        """Give the oldest idle memory back; return its size."""
        oldest = self._idle.popleft()
        self._total_bytes -= len(oldest)
        return len(oldest)

    def _take(self, size: int) -> mmap.mmap:
        with self._lock:  # finalizers only append, so one that runs in here waits for nothing
            fitting: mmap.mmap | None = None
            best = max(2 * size, _rounded(size)) + 1  # of what is asked for again, what it left must do
            idle_bytes = 0
            for memory in list(self._idle):  # a hundred and more, thirty times a batch: one pass
                length = len(memory)
                idle_bytes += length
                if size <= length < best:
                    fitting, best = memory, length
            if fitting is not None:
                self._idle.remove(fitting)
                idle_bytes -= best
            taken = _allocate(size) if fitting is None else fitting
            self._total_bytes += len(taken) if fitting is None else 0
            self._peak_bytes = max(self._peak_bytes, self._total_bytes - idle_bytes)
            while idle_bytes > self._peak_bytes + _SPARE_BYTES:
                idle_bytes -= self._drop()
            return taken


def _rounded(size: int) -> int:
    """Return the bytes to map: an eighth to spare, since no two batches are of one size, in whole pages."""
    size += size // 8
    page = _HUGE_PAGE if size >= _HUGE_PAGE else mmap.PAGESIZE
    return -(-size // page) * page


def _allocate(size: int) -> mmap.mmap:
    """Map anonymous memory."""
    memory = mmap.mmap(-1, _rounded(size), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if len(memory) >= _HUGE_PAGE:
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


_recycler = Recycler()
recycled = _recycler.empty
"""`Recycler.empty` of the process's own."""


def give_back() -> None:
    """Give the system all that lies idle, recycled or malloc's, where other things need the room now."""
    _recycler.give_back()
    with contextlib.suppress(AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)


def empty(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device | None = None) -> Tensor:
    """Return a tensor with arbitrary content: `torch.empty`, recycled where it is a large one on the CPU."""
    size = math.prod(shape)
    if (device is not None and device.type != "cpu") or size * dtype.itemsize < _SMALL_TENSOR:
        return torch.empty(shape, dtype=dtype, device=device)
    storage = torch.from_numpy(recycled(size * dtype.itemsize, np.uint8)).untyped_storage()
    return torch.empty(0, dtype=dtype).set_(storage).resize_(shape)  # no view: autograd lets nothing write over one
