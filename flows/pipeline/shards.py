"""Preprocess's shards in a pool of processes, as a Prefect task runner.

A pool costs seconds before its first result (a worker imports Prefect: about 3 s of CPU on a 2025 server core), so
the first shards are done here and the pool starts only where the rest is worth more than that.
"""

from __future__ import annotations

import itertools
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

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
        from prefect import Task
        from prefect.cache_policies import NO_CACHE
        from prefect.task_runners import ProcessPoolTaskRunner

        task: Any = Task(apply_to_all, name="shards", persist_result=False, cache_policy=NO_CACHE)
        with ProcessPoolTaskRunner(max_workers=self._workers, initializer=end_with_parent) as runner:
            futures: list[Any] = [
                runner.submit(task, {"work": ShardWork(function, chunk)})
                for chunk in split_evenly(items, self._workers * _CHUNKS_PER_WORKER)
            ]
            futures.reverse()
            while futures:
                yield from futures.pop().result()


def split_evenly(items: Sequence[Any], count: int) -> list[Sequence[Any]]:
    """Return at most `count` runs of neighbouring items, none empty, lengths differing by at most one."""
    count = min(count, len(items))
    cuts = [i * len(items) // count for i in range(count + 1)] if count else [0]
    return [items[a:b] for a, b in itertools.pairwise(cuts)]


class ShardWork:
    """A function and the items of one task. A plain object: Prefect looks into collections, not into this."""

    def __init__(self, function: Callable[[Any], Any], items: Sequence[Any]) -> None:
        self.function = function
        self.items = items


def apply_to_all(work: ShardWork) -> list[Any]:
    """Apply the function to each item; what a shard task does."""
    return [work.function(item) for item in work.items]


def end_with_parent() -> None:
    """In a worker process: end when the parent does, however that ends (an orphan would wait for work for ever)."""
    import multiprocessing
    import multiprocessing.connection
    import signal

    parent = multiprocessing.parent_process()
    if parent is None:
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends its workers

    def watch() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="parent-watch").start()
