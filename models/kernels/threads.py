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
from threading import Barrier, Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

CHUNKS_A_THREAD = 4
"""Ranges a thread, so that one that is held up leaves its share to the others."""

_starting = Lock()
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
    """Call kernel(bounds[i], bounds[i + 1], *args) for all i, on `num_threads()` threads; see `run_parts`."""
    run_parts(lambda i: kernel(bounds[i], bounds[i + 1], *args), len(bounds) - 1)


def run_parts(part: Callable[[int], None], count: int) -> None:
    """Call part(0), ..., part(count - 1) on `num_threads()` threads.

    A thread takes the next part as soon as it is done with one, and torch takes one thread in it: where a sampler holds
    a core for a while, the others go on, while torch's own threads would wait for the slowest after every operation.
    The parts must write to different places; they run without gradients and autocast. An exception of any is raised.
    """
    threads = min(num_threads(), count)
    if threads <= 1:
        for i in range(count):
            part(i)
        return
    numbers = itertools.count()  # next() on it is atomic

    @torch.no_grad()  # the mode is a thread's own
    def work() -> None:
        while (i := next(numbers)) < count:
            part(i)

    # The caller only waits: torch's number of threads is also a thread's own, and the caller's is not 1.
    first, *others = [_executor(threads).submit(work) for _ in range(threads)]
    first.result()
    for future in others:
        if not future.cancel():  # one that found no free thread has nothing left to do
            future.result()


def _executor(size: int) -> ThreadPoolExecutor:
    global _pool, _pool_size
    with _starting:
        if _pool is None or _pool_size < size:
            _pool, _pool_size = _start(size), size
        return _pool


def _start(size: int) -> ThreadPoolExecutor:
    """Start threads in which torch takes one thread."""
    pool, threads, met = ThreadPoolExecutor(size, thread_name_prefix="kernel"), num_threads(), Barrier(size)

    def prepare() -> None:
        torch.get_num_threads()  # what a thread asks torch first makes it take over the process's number
        torch.set_num_threads(1)
        met.wait()

    for future in [pool.submit(prepare) for _ in range(size)]:
        future.result()
    torch.set_num_threads(threads)  # it is also what threads that torch starts later begin with
    return pool


def _forget() -> None:
    global _pool, _starting
    _pool, _starting = None, Lock()


os.register_at_fork(after_in_child=_forget)  # a child has no threads but its own
