"""Partitioning by workers: each looks at shards of the edges, nobody holds them all."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from configs.registry import PARTITIONERS
from tasks.arrays import Array, offsets, row_ranges
from tasks.partition.base import Csr, Graph, PartitionContext, Partitioner, Parts
from tasks.partition.coarsened import limits_of, multilevel
from tasks.partition.configs import ShardedPartitionerConfig
from tasks.partition.levels import Level, Resources, read_only
from tasks.partition.shard_work import (
    GraphFiles,
    LookTask,
    MergeTask,
    PairsTask,
    count_pairs,
    forget_state,
    look_shard,
    merge_pairs,
)
from tasks.partition.waves import Bounds, Changes, Pass, Waves
from tasks.stage import MapShards, lasting_workers
from tasks.storage.graph_store import create_array

_PIECE_ENTRIES = 1 << 23  # about so many are counted or merged by a worker at a time: 200 MB
_COARSE_SHARE = 0.4  # of the imbalance; what is left is room for the workers' moves


@PARTITIONERS.register("sharded")
class ShardedPartitioner(Partitioner):
    """As `coarsened`, by the workers of preprocess.runner: for graphs whose edges no machine's memory holds.

    1. Workers join nodes to clusters, range by range, and tell each other in small files what changed.
    2. Workers count the edges between clusters, range by range, and merge the counts.
    3. The graph of clusters is split on this machine, by `coarsened`.
    4. Workers move nodes to the parts of most of their neighbours.

    The parts are the same with any number of workers, of any kind. Workers see the scratch folder under the same path.

    Memory of a worker: a label and a size for each node (8 bytes), and the rows that it looks at. Of this machine: 24
    bytes a node; the graph of clusters lies in files.
    """

    Config = ShardedPartitionerConfig

    config: ShardedPartitionerConfig

    def partition(self, csr: Csr, num_parts: int, context: PartitionContext | None = None) -> NDArray[np.int32]:
        """Return the part of each node, (num_nodes,)."""
        context = context or PartitionContext()
        with (
            lasting_workers(context.map_shards) as (mapping, workers),
            _Shards(csr, context, mapping, workers) as shards,
        ):
            context.message(f"{workers} workers look at {len(shards.waves)} waves of ranges in turn")
            part = self._split(shards, csr, num_parts, context)
            size = np.bincount(part, minlength=num_parts)
            limits = limits_of(np.ones(csr.num_nodes, np.int32), None, num_parts, self.config.imbalance)
            none = np.zeros(0, np.int32)
            shards.improve(Parts(part, none, none, size, none, limits.cap, 0), self.config.passes)
        return part

    def _split(self, shards: _Shards, csr: Csr, num_parts: int, context: PartitionContext) -> NDArray[np.int32]:
        """Return the part of each node as that of its cluster."""
        from tasks.partition.kernels.clustering import join_two_hop, number_clusters

        config, num_nodes = self.config, csr.num_nodes
        ones = np.ones(num_nodes, np.int32)
        limits = limits_of(ones, None, num_parts, _COARSE_SHARE * config.imbalance)
        label, size = shards.cluster(limits.cluster_cap, config.rounds, config.seed + 1)
        graph = read_only(csr.indptr, csr.indices, np.zeros(0, np.int32))
        scratch = np.full(num_nodes, -1, label.dtype)
        clusters = Parts(label, ones, ones[:0], size, ones[:0], limits.cluster_cap, 0)
        join_two_hop(graph, clusters, np.zeros(num_nodes, np.int32), scratch)
        scratch[:] = -1
        num_clusters = number_clusters(label, scratch)
        del scratch, clusters, size, ones
        weight = np.bincount(label, minlength=num_clusters).astype(np.int32)
        coarse = Level(shards.contract(label, num_clusters), weight, np.zeros(0, np.int32))
        context.message(f"{num_nodes:,} nodes became {num_clusters:,} clusters with {coarse.num_edges:,} edge ends")
        if num_clusters <= num_parts:
            return (label % num_parts).astype(np.int32)
        resources = Resources.of(0, context)
        found: NDArray[np.int32] = multilevel(coarse, limits, config, resources, context.message, whole=False).part
        return found[label]


class _Shards(Waves):
    """Ranges looked at by workers."""

    def __init__(self, csr: Csr, context: PartitionContext, mapping: MapShards, workers: int) -> None:
        super().__init__(csr)
        self._map, self._workers = mapping, workers
        folder = context.scratch / f"shards-{uuid.uuid4().hex}"
        folder.mkdir()
        self._files = GraphFiles(
            _file_of(csr.indptr, folder / "indptr.npy"), _file_of(csr.indices, folder / "indices.npy"), str(folder)
        )
        self._phase = self._wave = self._num_parts = 0
        self._parts: bool | None = None

    def __enter__(self) -> _Shards:
        """Nothing is running yet."""
        return self

    def __exit__(self, *error: object) -> None:
        """Remove the files that workers wrote."""
        import shutil

        forget_state(self._files.folder)
        shutil.rmtree(self._files.folder, ignore_errors=True)

    def look(self, wave: list[Bounds], what: Pass, label: Array, size: Array) -> Iterable[Changes]:
        """Look at the ranges of a wave."""
        if what.parts != self._parts:
            self._begin(what, label, size)
        shares = min(self._workers, len(self.waves[-1]))  # the shortest wave gives each worker something
        tasks = [
            LookTask(
                self._files,
                str(self._phase),
                self._wave,
                share,
                shares,
                tuple(wave[share::shares]),
                what,
                self._num_parts,
            )
            for share in range(shares)
        ]
        for _ in self._map(look_shard, tasks):
            pass
        self._wave += 1
        for task in tasks:
            nodes, chosen = np.load(self._files.path(task.changes(task.wave, task.share)))
            yield Changes(nodes, chosen.astype(label.dtype))

    def _begin(self, what: Pass, label: Array, size: Array) -> None:
        """Begin passes that start from other labels."""
        self._phase, self._wave, self._parts, self._num_parts = self._phase + 1, 0, what.parts, len(size)
        if what.parts:
            self._files.write(f"start-{self._phase}", label)

    def contract(self, label: Array, num_clusters: int) -> Graph:
        """Return the graph of clusters; `label`, id (N,), is the cluster of each node, 0..num_clusters - 1."""
        self._files.write("clusters", label)
        pieces = 1 + self.csr.num_edges // _PIECE_ENTRIES
        ranges = row_ranges(self.csr.indptr, pieces)
        buckets = min(num_clusters, pieces)
        cuts = tuple(num_clusters * i // buckets for i in range(buckets + 1))
        jobs = [PairsTask(self._files, i, bounds, cuts) for i, bounds in enumerate(ranges)]
        begins = np.array(list(self._map(count_pairs, jobs))).reshape(len(jobs), buckets + 1)
        merges = [
            MergeTask(
                self._files,
                b,
                cuts[b],
                cuts[b + 1],
                num_clusters,
                tuple(zip(*begins[:, b : b + 2].T.tolist(), strict=True)),
            )
            for b in range(buckets)
        ]
        return self._join_rows(list(self._map(merge_pairs, merges)), num_clusters)

    def _join_rows(self, counts: Sequence[int], num_clusters: int) -> Graph:
        """Put the buckets' rows end to end, in files that vanish with their last reader."""
        files, total = self._files, sum(counts)
        arrays = []
        for name in ("columns", "sums"):
            path = Path(files.folder) / f"all-{name}.npy"
            out = np.asarray(create_array(path, (total,), np.int32))
            path.unlink()
            start = 0
            for bucket, count in enumerate(counts):
                out[start : start + count] = np.load(files.path(f"{name}-{bucket}"), mmap_mode="r")
                start += count
            arrays.append(out)
        lengths = np.concatenate([np.load(files.path(f"lengths-{bucket}")) for bucket in range(len(counts))])
        assert len(lengths) == num_clusters
        return read_only(offsets(lengths), *arrays)


def _file_of(array: Array, otherwise: Path) -> str:
    """Return the `.npy` file that an array is the map of; one that is none is written to `otherwise`."""
    base: Any = array
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    if isinstance(base, np.memmap) and base.nbytes == array.nbytes and base.filename is not None:
        if base.mode != "r":
            base.flush()  # other machines read the disk
        return str(base.filename)
    np.save(otherwise, array)
    return str(otherwise)
