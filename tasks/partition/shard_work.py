"""What workers of a sharded partitioning do: look at ranges of nodes, count edges between clusters, merge the counts.

A worker may be any process that sees the scratch folder: it maps the graph's files, of which it reads the rows that it
is given, and keeps a label and a size for each node between calls. What changed in a wave lies in small files, and a
worker that comes to a wave takes over those that it does not know yet. So a task can be done by anyone, and again.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tasks.arrays import Array
from tasks.partition.base import Csr
from tasks.partition.waves import Bounds, Pass, look_at


@dataclass(frozen=True)
class GraphFiles:
    """A graph's files, and the folder of what workers tell each other; the same paths on every machine."""

    indptr: str
    indices: str
    folder: str

    def open(self) -> Csr:
        """Map the files."""
        return Csr(*(np.asarray(np.load(path, mmap_mode="r")) for path in (self.indptr, self.indices)))

    def path(self, name: str) -> Path:
        """File of the folder."""
        return Path(self.folder) / f"{name}.npy"

    def write(self, name: str, array: Array) -> None:
        """Write a file of the folder, whole or not at all: a task may run twice at once."""
        path = self.path(name)
        temporary = path.with_name(f"{name}-{os.getpid()}-{threading.get_ident()}.part")
        with temporary.open("wb") as file:
            np.save(file, array)
        temporary.replace(path)


@dataclass(frozen=True)
class LookTask:
    """Some ranges of a wave."""

    files: GraphFiles
    phase: str
    """Names the passes that belong together: clusters, or parts that begin with what the file `start-PHASE` holds."""
    wave: int
    """Waves of the phase that came before, each of `shares` files of changes."""
    share: int
    shares: int
    ranges: tuple[Bounds, ...]
    what: Pass
    num_parts: int

    def changes(self, wave: int, share: int) -> str:
        """Name of a file of changes."""
        return f"changes-{self.phase}-{wave}-{share}"


class _State:
    """Labels and sizes as they were before a wave."""

    def __init__(self, task: LookTask) -> None:
        self.csr = task.files.open()
        self.applied = 0
        num_nodes = self.csr.num_nodes
        self.label: Array
        self.size: Array
        if task.what.parts:
            self.label = np.load(task.files.path(f"start-{task.phase}"))
            self.size = np.bincount(self.label, minlength=task.num_parts)
        else:
            self.label = np.arange(num_nodes, dtype=self.csr.indices.dtype)
            self.size = np.ones(num_nodes, np.int32)

    def catch_up(self, task: LookTask) -> None:
        """Take over the changes of all waves before the task's."""
        from tasks.partition.kernels.range_moves import apply_changes

        for wave in range(self.applied, task.wave):
            for share in range(task.shares):
                nodes, chosen = np.load(task.files.path(task.changes(wave, share)))
                apply_changes(nodes, chosen.astype(self.label.dtype), self.label, self.size)
        self.applied = max(self.applied, task.wave)


_states: dict[tuple[str, str], _State] = {}
_lock = threading.Lock()  # threads of one process share a state


def look_shard(task: LookTask) -> int:
    """Look at some ranges of a wave and write what changed; returns how many nodes moved."""
    with _lock:
        key = (task.files.folder, task.phase)
        if key not in _states or _states[key].applied > task.wave:
            _states.clear()
            _states[key] = _State(task)
        state = _states[key]
        state.catch_up(task)
    found = [look_at(state.csr, bounds, task.what, state.label, state.size) for bounds in task.ranges]
    changes = np.stack([np.concatenate([getattr(one, name) for one in found]) for name in ("nodes", "chosen")])
    task.files.write(task.changes(task.wave, task.share), changes)
    return int(changes.shape[1])


def forget_state(folder: str) -> None:
    """Free what this process keeps of a partitioning."""
    with _lock:
        for key in [key for key in _states if key[0] == folder]:
            del _states[key]


@dataclass(frozen=True)
class PairsTask:
    """A range whose edges between clusters are to be counted."""

    files: GraphFiles
    number: int
    bounds: Bounds
    cuts: tuple[int, ...]
    """First cluster of each bucket, and the number of clusters."""


def count_pairs(task: PairsTask) -> list[int]:
    """Write the pairs of clusters that the range's edges join, and how often; returns where each bucket begins."""
    from tasks.partition.kernels.pairs import add_up, pack_pairs
    from tasks.partition.kernels.range_moves import Rows

    csr, (first, last), num_clusters = task.files.open(), task.bounds, task.cuts[-1]
    label = np.asarray(np.load(task.files.path("clusters"), mmap_mode="r"))
    indptr = csr.indptr[first : last + 1]
    keys = np.empty(int(indptr[-1] - indptr[0]), np.int64)
    rows = Rows(first, indptr, csr.indices[indptr[0] : indptr[-1]])
    keys = keys[: pack_pairs(rows, label, num_clusters, keys)]
    keys.sort()
    weights = np.ones(len(keys), np.int32)
    count = add_up(keys, weights)
    task.files.write(f"keys-{task.number}", keys[:count])
    task.files.write(f"weights-{task.number}", weights[:count])
    return np.searchsorted(keys[:count], np.array(task.cuts) * num_clusters).tolist()


@dataclass(frozen=True)
class MergeTask:
    """A bucket of clusters whose rows are to be made."""

    files: GraphFiles
    bucket: int
    first: int
    last: int
    num_clusters: int
    pieces: tuple[tuple[int, int], ...]
    """Where the bucket lies in the file of each range."""


def merge_pairs(task: MergeTask) -> int:
    """Write the rows of a bucket's clusters: lengths, clusters and weights; returns how many entries there are."""
    from tasks.partition.kernels.pairs import add_up

    def read(name: str) -> Any:
        files = enumerate(task.pieces)
        return np.concatenate(
            [np.load(task.files.path(f"{name}-{i}"), mmap_mode="r")[low:high] for i, (low, high) in files]
        )

    keys, weights = read("keys"), read("weights")
    order = np.argsort(keys, kind="stable")
    keys, weights = keys[order], weights[order]
    del order
    count = add_up(keys, weights)
    rows, columns = np.divmod(keys[:count], task.num_clusters)
    task.files.write(f"lengths-{task.bucket}", np.bincount(rows - task.first, minlength=task.last - task.first))
    task.files.write(f"columns-{task.bucket}", columns.astype(np.int32))
    task.files.write(f"sums-{task.bucket}", weights[:count])
    return count
