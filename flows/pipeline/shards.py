"""Preprocess's shards in a pool of processes, which starts only where the rest is worth its seconds."""

from __future__ import annotations

import json
import math
import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from configs.errors import StageError, error_of
from configs.schema import PreprocessConfig, Recipe
from tasks.processes.children import PARENT, ROOT, describe_exit, end_group
from tasks.stage import MapShards, map_in_process
from tasks.storage.home import Home
from tasks.storage.home_files.temporary import own_folder

_POOL_START_SECONDS = 4.0
_CHUNKS_PER_WORKER = 4


def make_map_shards(recipe: Recipe, home: Home) -> MapShards:
    """Return the mapping over a recipe's cluster, or over as many processes as it asks for."""
    return make_pool_map(recipe.preprocess) if recipe.cluster.address is None else ClusterMap(recipe, home)


def make_pool_map(config: PreprocessConfig) -> MapShards:
    """Return the mapping over as many processes of this machine as a recipe asks for."""
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


class ClusterMap(PoolMap):
    """Maps jobs (`tasks.preprocess.shards`) over the machines of a cluster, where it pays to ask them."""

    def __init__(self, recipe: Recipe, home: Home) -> None:
        super().__init__(2)  # one machine more, at least
        self._recipe, self._home = recipe, home

    def _elsewhere(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        from tasks.cluster.order import shard_order

        order = shard_order(self._recipe, self._home)
        with own_folder(self._home) as folder:
            jobs, said = folder / "jobs", folder / "said"
            jobs.write_bytes(pickle.dumps(list(items), protocol=5))
            command = [sys.executable, "-m", "tasks.cluster.shards", str(jobs)]
            environment = {**os.environ, **order(folder), PARENT: str(os.getpid())}
            with (
                said.open("wb") as errors,
                subprocess.Popen(
                    command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
                ) as process,
            ):
                assert process.stdout is not None
                try:
                    for line in process.stdout:
                        answer = json.loads(line)
                        if "kind" in answer:
                            raise error_of(answer["kind"], answer["message"])
                        yield answer["fresh"]
                    if code := process.wait():
                        last = said.read_text(errors="replace").strip().splitlines()[-1:]
                        raise StageError(f"shards on the cluster ended with {describe_exit(code)}: {''.join(last)}")
                finally:
                    end_group(process)


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
