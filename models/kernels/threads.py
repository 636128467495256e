"""Row ranges of a kernel on several threads.

Kernels are plain nogil functions; Python threads run them side by side, as many as torch may use. numba's own
parallel=True is not used: its thread layer ends the process when two threads enter it at once, and samplers run
beside the training step.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

CHUNKS_A_THREAD = 4
"""Ranges a thread, so that one that is held up leaves its share to the others."""

_pool: ThreadPoolExecutor | None = None
_pool_size = 0


def num_threads() -> int:
    """Return how many threads kernels may use: torch's number."""
    return torch.get_num_threads()


def even_rows(count: int) -> NDArray[np.int64]:
    """Return bounds that cut `count` rows of equal work for `run_rows`."""
    threads = num_threads()
    parts = 1 if threads == 1 else max(min(count, threads * CHUNKS_A_THREAD), 1)
    return np.linspace(0, count, parts + 1).astype(np.int64)


def run_rows(kernel: Callable[..., Any], bounds: NDArray[np.int64], *args: Any) -> None:
    """Call kernel(bounds[i], bounds[i + 1], *args) for all i, on `num_threads()` threads.

    The ranges must write to different places. An exception of any of them is raised here.
    """
    count = len(bounds) - 1
    threads = min(num_threads(), count)
    if threads <= 1:
        for i in range(count):
            kernel(bounds[i], bounds[i + 1], *args)
        return
    numbers = itertools.count()  # next() on it is atomic

    def work() -> None:
        while (i := next(numbers)) < count:
            kernel(bounds[i], bounds[i + 1], *args)

    pending = [_executor(threads - 1).submit(work) for _ in range(threads - 1)]
    work()
    for future in pending:
        if not future.cancel():  # one that found no free thread has nothing left to do
            future.result()


def _executor(size: int) -> ThreadPoolExecutor:
    global _pool, _pool_size
    if _pool is None or _pool_size < size:
        _pool, _pool_size = ThreadPoolExecutor(size, thread_name_prefix="kernel"), size
    return _pool


def _forget() -> None:
    global _pool
    _pool = None


os.register_at_fork(after_in_child=_forget)  # a child has no threads but its own
