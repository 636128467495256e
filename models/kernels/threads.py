"""Row ranges of a kernel on several threads.

Kernels are plain nogil functions; Python threads run them side by side, as many as torch may use. numba's own
parallel=True is not used: its thread layer ends the process when two threads enter it at once, and samplers run
beside the training step.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier, Lock, local
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

CHUNKS_A_THREAD = 4
"""Ranges a thread, so that one that is held up leaves its share to the others."""

_alone = local()
_starting = Lock()
_pools: dict[str, tuple[ThreadPoolExecutor, int]] = {}


def num_threads() -> int:
    """Return how many threads kernels may use: torch's number, or what it was before `kernels_alone`."""
    return getattr(_alone, "threads", None) or torch.get_num_threads()


@contextmanager
def kernels_alone() -> Iterator[None]:
    """Leave all threads to kernels and parts; torch's operations take the caller's meanwhile.

    Torch's own threads wait busily for the next operation. Where small operations take turns with kernels that is half
    of the processor: a training of ComplEx on two threads took 383 CPU seconds with them, where one thread takes 171.
    """
    before = torch.get_num_threads()
    _alone.threads = before
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _alone.threads = None


def even_rows(count: int) -> NDArray[np.int64]:
    """Return bounds that cut `count` rows of equal work for `run_rows`."""
    threads = num_threads()
    parts = 1 if threads == 1 else max(min(count, threads * CHUNKS_A_THREAD), 1)
    return np.linspace(0, count, parts + 1).astype(np.int64)


def run_rows(kernel: Callable[..., Any], bounds: NDArray[np.int64], *args: Any) -> None:
    """Call kernel(bounds[i], bounds[i + 1], *args) for all i, on `num_threads()` threads, the caller's among them.

    The ranges must write to different places. An exception of any of them is raised here.
    """
    run_each(lambda i: kernel(bounds[i], bounds[i + 1], *args), len(bounds) - 1)


def run_each(call: Callable[[int], object], count: int) -> None:
    """Call call(0), ..., call(count - 1), which spend their time in kernels, on `num_threads()` threads.

    A thread takes the next number when it is done with one. An exception of any of them is raised here.
    """
    threads = min(num_threads(), count)
    work = _in_turn(call, count)
    pending = [_executor("kernel", threads - 1).submit(work) for _ in range(threads - 1)]
    work()
    _finish(pending)


def run_parts(part: Callable[[int], None], count: int) -> None:
    """Call part(0), ..., part(count - 1), which use torch, on `num_threads()` threads.

    A thread takes the next part as soon as it is done with one, and torch takes one thread in it: where a sampler holds
    a core for a while, the others go on, while torch's own threads would wait for the slowest after every operation.
    The parts must write to different places; they run without gradients and autocast. An exception of any is raised.
    """
    threads = min(num_threads(), count)
    work = _in_turn(part, count)
    if threads <= 1:
        work()
        return
    # The caller only waits: torch's number of threads is also a thread's own, and the caller's is not 1. Samplers run
    # kernels, not parts, so that nobody waits for a pool that is busy with another's.
    alone = torch.no_grad()(work)  # the mode is a thread's own
    first, *others = [_executor("product", threads).submit(alone) for _ in range(threads)]
    first.result()
    _finish(others)


def _in_turn(call: Callable[[int], object], count: int) -> Callable[[], None]:
    """Return what threads do side by side: each takes the next number until there are no more."""
    numbers = itertools.count()  # next() on it is atomic

    def work() -> None:
        while (i := next(numbers)) < count:
            call(i)

    return work


def _finish(pending: list[Future[None]]) -> None:
    """Wait for those that began: one that found no free thread has nothing left to do."""
    for future in pending:
        if not future.cancel():
            future.result()


def _executor(name: str, size: int) -> ThreadPoolExecutor:
    """Return the pool of that name with so many threads at least."""
    with _starting:
        pool, threads = _pools.get(name, (None, 0))
        if pool is None or threads < size:
            pool = _start(name, size)
            _pools[name] = pool, size
        return pool


def _start(name: str, size: int) -> ThreadPoolExecutor:
    """Start threads in which torch takes one thread."""
    pool, threads, met = ThreadPoolExecutor(size, thread_name_prefix=name), torch.get_num_threads(), Barrier(size)

    def prepare() -> None:
        torch.get_num_threads()  # what a thread asks torch first makes it take over the process's number
        torch.set_num_threads(1)
        met.wait()

    for future in [pool.submit(prepare) for _ in range(size)]:
        future.result()
    torch.set_num_threads(threads)  # it is also what threads that torch starts later begin with
    return pool


def _forget() -> None:
    global _starting
    _starting = Lock()
    _pools.clear()


os.register_at_fork(after_in_child=_forget)  # a child has no threads but its own
