"""Preprocess's shards on a Prefect task runner: processes, threads, or the workers of Dask or Ray.

A pool costs seconds before its first result (a worker imports Prefect: about 3 s of CPU on a 2025 server core), so
the first shards are done here and the pool starts only where the rest is worth more than that.
"""

from __future__ import annotations

import importlib
import itertools
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from configs.errors import RecipeError
from configs.schema import PreprocessConfig
from tasks.stage import MapShards, map_in_process

_POOL_START_SECONDS = 4.0
_CHUNKS_PER_WORKER = 4
# Task runner to its package and class, the variable that names a cluster, and the option for one of its own.
_INTEGRATIONS = {
    "dask": ("prefect_dask", "DaskTaskRunner", "DASK_SCHEDULER_ADDRESS", "cluster_kwargs", "n_workers"),
    "ray": ("prefect_ray", "RayTaskRunner", "RAY_ADDRESS", "init_kwargs", "num_cpus"),
}
# A Dask cluster of our own runs what it is sent: by TLS with certificates that it makes for itself, so from us alone.
# Its pages would listen on all interfaces, and show logs to everybody.
_PRIVATE: dict[str, dict[str, Any]] = {
    "dask": {
        "security": True,
        "host": "127.0.0.1",
        "dashboard_address": "127.0.0.1:0",
        "scheduler_kwargs": {"dashboard": False},
    }
}
_NO_PAGES: dict[str, list[str]] = {"distributed.scheduler.http.routes": [], "distributed.worker.http.routes": []}


def make_map_shards(config: PreprocessConfig) -> MapShards:
    """Return the mapping that the recipe asks for. Raises RecipeError where an integration is not installed."""
    workers = config.workers or os.cpu_count() or 1
    if config.runner in _INTEGRATIONS:
        return RunnerMap(_integration(config.runner, config.workers), workers, at_once=True)
    if workers == 1:
        return map_in_process
    if config.runner == "thread":
        from prefect.task_runners import ThreadPoolTaskRunner

        return RunnerMap(lambda: ThreadPoolTaskRunner(max_workers=workers), workers, at_once=True)
    from prefect.task_runners import ProcessPoolTaskRunner

    return RunnerMap(lambda: ProcessPoolTaskRunner(max_workers=workers, initializer=end_with_parent), workers)


def _integration(name: str, workers: int) -> Callable[[], Any]:
    package, class_name, variable, options_name, count_name = _INTEGRATIONS[name]
    try:
        runner_class = getattr(importlib.import_module(package), class_name)
    except ImportError as error:
        raise RecipeError(
            f"preprocess.runner={name} needs {package}, which cannot be imported ({error}): "
            f'.venv/bin/python -m pip install --editable ".[{name}]" '
            "(or take preprocess.runner=process)"
        ) from error
    address = os.environ.get(variable)
    if address:
        return lambda: runner_class(address=address)
    if name == "dask":
        importlib.import_module("dask").config.set(_NO_PAGES)
    options = {options_name: {count_name: workers or None, **_PRIVATE.get(name, {})}}
    return lambda: runner_class(**options)


class RunnerMap:
    """Maps over shards with a Prefect task runner, a few tasks a worker."""

    def __init__(self, make_runner: Callable[[], Any], workers: int, *, at_once: bool = False) -> None:
        """With `at_once` the runner is used for any two items; else only where it pays for its start."""
        self._make_runner = make_runner
        self._workers = workers
        self._at_once = at_once

    def __call__(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        """Apply `function` to each of `items`, results in order."""
        done = 0
        seconds = math.inf
        while done < len(items) and not (self._at_once and len(items) > 1):
            started = time.perf_counter()
            result = function(items[done])
            seconds = min(seconds, time.perf_counter() - started)  # the first one may compile kernels
            yield result
            done += 1
            saved = seconds * (len(items) - done) * (1 - 1 / self._workers)
            if done >= 2 and saved > _POOL_START_SECONDS:
                break
        if done < len(items):
            yield from self._elsewhere(function, items[done:])

    def _elsewhere(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        task = _shard_task()
        with self._make_runner() as runner:
            futures = [
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
    """A function and the items of one task. A plain object: Prefect and Dask look into collections, not into this."""

    def __init__(self, function: Callable[[Any], Any], items: Sequence[Any]) -> None:
        self.function = function
        self.items = items


def apply_to_all(work: ShardWork) -> list[Any]:
    """Apply the function to each item; what a shard task does."""
    return [work.function(item) for item in work.items]


def _shard_task() -> Any:
    from prefect import Task
    from prefect.cache_policies import NO_CACHE

    return Task(apply_to_all, name="shards", persist_result=False, cache_policy=NO_CACHE)


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
