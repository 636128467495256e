"""Preprocess's shards in a pool of processes, which starts only where the rest is worth its seconds."""

from __future__ import annotations

import math
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from configs.errors import StageError
from configs.schema import PreprocessConfig
from tasks.stage import MapShards, map_in_process

_POOL_START_SECONDS = 4.0
_CHUNKS_PER_WORKER = 4


def make_map_shards(config: PreprocessConfig) -> MapShards:
    """Return the mapping over as many processes as the recipe asks for."""
    workers = config.workers or os.cpu_count() or 1
    return map_in_process if workers == 1 else PoolMap(workers)


class PoolMap:
    """Maps over shards with a pool of processes, a few tasks a worker, where it pays for its start."""

    def __init__(self, workers: int, start_seconds: float = _POOL_START_SECONDS) -> None:
        self._workers = workers
        self._start_seconds = start_seconds

    def __call__(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        """Apply `function` to each of `items`, results in order."""
        seconds = math.inf
        for done, item in enumerate(items, start=1):
            started = time.perf_counter()
            result = function(item)
            seconds = min(seconds, time.perf_counter() - started)  # the first one may compile kernels
            yield result
            saved = seconds * (len(items) - done) * (1 - 1 / self._workers)
            if done >= 2 and saved > self._start_seconds:
                yield from self._elsewhere(function, items[done:])
                return

    def _elsewhere(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        size = math.ceil(len(items) / (self._workers * _CHUNKS_PER_WORKER))
        with ProcessPoolExecutor(self._workers, multiprocessing.get_context("spawn"), end_with_parent) as pool:
            try:
                yield from pool.map(function, items, chunksize=size)
            except BrokenProcessPool as error:
                raise StageError(
                    "a process that worked on shards was killed, perhaps for want of memory; run again (finished "
                    f"shards are kept), with fewer at a time: preprocess.workers={max(1, self._workers // 2)}"
                ) from error


def end_with_parent() -> None:
    """In a worker process: end when the parent does, however that ends (an orphan would wait for work for ever)."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends its workers

    def watch() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="parent-watch").start()
