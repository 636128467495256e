"""Pure functions on shards whose results are kept as signed pickles, named by content, and reused.

A result is named by the function, its version, the shard's sha256 and the parameters that decide it. So a changed
transform recomputes what it touches and nothing else, whichever artifact asks.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.stage import StageContext
from tasks.storage.home_files.caching import PickleCache


@dataclass(frozen=True)
class ShardJob:
    """One function on one shard; picklable, so that it may run in any process that sees the same folders."""

    function: Callable[[Any, Any], dict[str, Any]]
    """A module-level function of (shard, payload): arrays and plain types come out."""
    version: int
    """To be raised when the function's result changes."""
    shard: Any
    """Something with a `sha256` of its content."""
    key: dict[str, Any]
    """Plain values that decide the result, besides the shard's content."""
    cache: PickleCache
    payload: Any = field(default=None, compare=False)
    """What the function works with; `key` identifies its content."""
    reads_table: bool = False
    """Whether of the home it reads its shard of a table and no other file: a machine without the home fetches that."""

    @property
    def name(self) -> str:
        """Name of the result in the cache."""
        key = json.dumps(self.key, sort_keys=True)
        return PickleCache.name(self.function.__name__, self.version, shard=self.shard.sha256, key=key)


def compute_shard(job: ShardJob) -> bool:
    """Make sure that the cache holds the job's result; returns whether it had to be computed.

    The result itself stays out of the answer: arrays do not travel between processes.
    """
    if job.cache.load(job.name) is not None:
        return False
    job.cache.store(job.name, job.function(job.shard, job.payload))
    return True


def result(job: ShardJob) -> dict[str, Any]:
    """Read a job's result; computed here if the cache lost it in between (another run's clean-up)."""
    answer: dict[str, Any] | None = job.cache.load(job.name)
    if answer is None:
        answer = job.function(job.shard, job.payload)
        job.cache.store(job.name, answer)
    return answer


def run_jobs(context: StageContext, jobs: Sequence[ShardJob], what: str) -> Iterator[dict[str, Any]]:
    """Run jobs over the context's workers and yield the results in order, one in memory at a time."""
    computed = 0
    for done, (job, fresh) in enumerate(zip(jobs, context.map_shards(compute_shard, jobs), strict=True), start=1):
        computed += bool(fresh)
        yield result(job)
        context.progress(done, len(jobs), "shards", what)
    if jobs:
        context.message(f"{what}: {computed} of {len(jobs)} shards computed, {len(jobs) - computed} reused")


def digest(*values: Any) -> str:
    """Return a short digest of arrays and plain values, nested or not."""
    state = hashlib.sha256()
    _feed(state, values)
    return state.hexdigest()[:32]


def _feed(state: Any, value: Any) -> None:
    if isinstance(value, np.ndarray):
        array: NDArray[Any] = np.ascontiguousarray(value)
        state.update(f"array {array.dtype.str} {array.shape};".encode())
        # Objects (strings) have no buffer of their own.
        state.update(json.dumps(array.tolist()).encode() if array.dtype.hasobject else array.data)
    elif isinstance(value, dict):
        state.update(f"dict {len(value)};".encode())
        for key in sorted(value):
            _feed(state, key)
            _feed(state, value[key])
    elif isinstance(value, list | tuple):
        state.update(f"list {len(value)};".encode())
        for item in value:
            _feed(state, item)
    else:
        state.update(f"{type(value).__name__} {value!r};".encode())
