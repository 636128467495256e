"""Edges: Parquet shards to CSC (and CSR), symmetrised, merged, with their data.

First each shard by itself (in parallel, kept as a pickle): ids of the graph, reverses, self-loops, sorted by
destination and source. Then a counting sort over all shards: count the rows, place the shards' runs one after the
other, sort and merge within rows.

Memory: 16 bytes a node and one shard at a time, plus 40 bytes an edge of a shard in each worker (80 when symmetrised;
ingest writes shards of at most 4 M edges). Everything as long as the edge list lies in memory-mapped files, of which
the shards' order makes the access run forward; scratch files take 4 to 16 bytes an edge until the stage ends.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from configs.errors import DataError
from configs.matching import listed
from configs.schema import PreprocessConfig
from tasks.arrays import Array, blocks, row_blocks
from tasks.preprocess.edges import edge_kernels as kernels
from tasks.preprocess.edges.edge_data import EdgeData, EncodeColumn
from tasks.preprocess.edges.edge_kernels import Packing, Runs, expand_edges, sort_and_compress, sort_rows
from tasks.preprocess.id_space import IdSpace
from tasks.preprocess.shards import ShardJob, result, run_jobs
from tasks.preprocess.transforms.base import State
from tasks.stage import StageContext
from tasks.storage.dataset_store import DatasetStore, ShardRef, iter_row_groups
from tasks.storage.graph_store import ArrayWriter, id_dtype
from tasks.transpose import transpose

SORT_VERSION = 2
_CHUNK_EDGES = 1 << 22
_MERGE_MODES = {"sum": 0, "max": 1, "first": 2}


@dataclass(frozen=True)
class ShardPlan:
    """How a shard's edges enter the graph; everything here decides the shard's result."""

    packing: Packing
    merge: bool
    """Merge repeated edges within the shard; only where edges carry no data."""
    keep_rows: bool
    """Remember which row of the table each edge came from; only where edges carry data."""


def sort_edge_shard(shard: ShardRef, plan: ShardPlan) -> dict[str, Any]:
    """Return the arrays of a shard's `Runs` by name, `loops` (self-loops met) and `merged` (edges left out).

    A row group is in memory at a time. Raises IntegrityError where the file does not fit the manifest.
    """
    size = shard.num_rows * (2 if plan.packing.symmetrize else 1)
    # NumPy's large arrays get huge pages; fresh small ones would take longer than the sort.
    keys, table_rows = np.empty(size, np.uint64), np.empty(size if plan.keep_rows else 0, id_dtype(shard.num_rows))
    count = loops = first_row = 0
    for group in iter_row_groups(shard, ["src", "dst"]):
        src, dst = group.column("src").to_numpy(), group.column("dst").to_numpy()
        count, met = expand_edges(src, dst, plan.packing, keys, count, table_rows, first_row)
        loops += met
        first_row += len(src)
    runs = sort_and_compress(keys[:count], table_rows[:count], plan.packing.bits, plan.merge)
    merged = count - len(runs.cols)
    if merged and plan.packing.symmetrize:  # a self-loop is its own reverse
        left = int(np.count_nonzero(np.repeat(runs.rows, runs.counts) == runs.cols)) if loops else 0
        merged = (merged + (0 if plan.packing.drop_loops else loops - left)) // 2
    return {**runs._asdict(), "loops": loops, "merged": merged}


@dataclass(frozen=True)
class EdgeRules:
    """Which edges the graph has, and in which ids."""

    config: PreprocessConfig
    ids: IdSpace
    """The graph's."""
    source: IdSpace
    """The data set's own: shards are sorted in its ids, once for all snapshots."""
    existing: Callable[[Runs, ShardRef], Runs] | None = None
    """Leaves the edges that are in a snapshot, or that are not held out themselves."""
    held_out: Callable[[Runs, int], Runs] | None = None
    """Takes out, on link tasks, what is to be predicted; the number is the relation's."""
    codes: Mapping[str, State] = field(default_factory=dict)
    """Categorical columns whose codes become those of a model's training (`ReadsAsTrained.edge_codes`)."""
    encode: EncodeColumn | None = None
    """Makes numbers of a column of texts."""
    scored: Array | None = None
    """int64 (M,): numbers over all tables of the edges that are scored by their features too."""


def build_edges(
    context: StageContext, store: DatasetStore, writer: ArrayWriter, rules: EdgeRules
) -> tuple[dict[str, Any], EdgeData]:
    """Write the adjacency and the edges' data; returns counts for the report, and what the edges carry."""
    scratch = context.work / "scratch"
    scratch.mkdir(exist_ok=True)
    try:
        merge = _Merge(context, store, writer, rules, scratch)
        return merge.run(), merge.data
    finally:
        shutil.rmtree(scratch)


class _Merge:
    def __init__(
        self, context: StageContext, store: DatasetStore, writer: ArrayWriter, rules: EdgeRules, scratch: Path
    ) -> None:
        config, ids, source = rules.config, rules.ids, rules.source
        self.context, self.ids, self.config, self.writer = context, ids, config, writer
        self.existing, self.held_out, self.scored = rules.existing, rules.held_out, rules.scored
        self.scratch = ArrayWriter(scratch)
        self.data = EdgeData(store, ids, config.feature_dtype, self.scratch, rules.codes, rules.encode)
        self.threads = config.workers or os.cpu_count() or 1
        self.keeps_rows = ids.carries_data or (rules.existing is not None and rules.scored is not None)
        self.jobs: list[ShardJob] = []
        self.bases: list[int] = []  # number of each shard's first edge in the numbering over all tables
        self.relations: dict[ShardRef, int] = {}  # number of each shard's table
        for index, edge_type in enumerate(store.manifest.edge_types):
            offsets = source.offset(edge_type.source), source.offset(edge_type.target)
            id_bits = max(1, (source.num_nodes - 1).bit_length())
            packing = Packing(*offsets, id_bits, ids.symmetrize, config.self_loops != "keep")
            plan = ShardPlan(packing, config.deduplicate and not self.keeps_rows, self.keeps_rows)
            for shard in store.shards(f"edges/{edge_type.name}"):
                self.relations[shard] = index
                cache = context.cache
                self.jobs.append(ShardJob(sort_edge_shard, SORT_VERSION, shard, vars(plan), cache, plan, True))
                self.bases.append(int(ids.table_starts[index]) + shard.first_row)

    def run(self) -> dict[str, Any]:
        ids = self.ids
        indptr, report = self._count()
        indices, eids = self._place(indptr)
        kernels.over_rows(sort_rows, self.threads, indptr, indices, eids)
        out_indptr, out_eids, merged_loops = self._emit(indptr, indices, eids)
        num_edges = int(out_indptr[-1])
        merged = int(indptr[-1]) - num_edges + ids.add_loops * ids.num_nodes
        report["num_merged"] += (merged + merged_loops) // 2 if ids.symmetrize else merged
        if self.existing is None or self.keeps_rows:
            self._report_merged(report["num_merged"])
        if self.existing is not None:  # shards count what they hold, which is not what exists
            report = {}
        report["num_edges"] = num_edges
        self.data.follow(out_indptr, out_eids, self.writer)
        if self.scored is not None:
            self.data.write_features(self.scored, self.writer, "scored")
        self._other_direction(out_indptr)
        return report

    def _report_merged(self, count: int) -> None:
        text = f"{count:,} edges were merged with others between the same nodes"
        values = sorted(self.ids.edge_columns - {"weight"})
        if count and values:
            kept = f"messages carry only the first one's values ({listed(values)})"
            self.context.warn(f"{text}: {kept}; preprocess.deduplicate=false keeps all edges")
        elif count:
            self.context.message(f"{text} (preprocess.deduplicate=false keeps all)")

    def _count(self) -> tuple[Array, dict[str, Any]]:
        """First sight of every shard: edges of each row, before merging over shards."""
        indptr = np.zeros(self.ids.num_nodes + 1, np.int64)
        loops = merged = 0
        for job, sorted_shard in zip(self.jobs, run_jobs(self.context, self.jobs, "edges"), strict=True):
            runs = self._runs_of(sorted_shard, job)
            indptr[1:][runs.rows] += runs.counts  # a row occurs once a shard
            loops += sorted_shard["loops"]
            merged += sorted_shard["merged"]
        np.cumsum(indptr, out=indptr)
        return indptr, {"num_self_loops": loops, "num_merged": merged}

    def _runs_of(self, sorted_shard: dict[str, Any], job: ShardJob) -> Runs:
        """Return a shard's runs in the graph's ids, without what is not in the graph."""
        runs = Runs(*(sorted_shard[name] for name in Runs._fields))
        if self.existing is not None:
            runs = self.existing(runs, job.shard)
        return runs if self.held_out is None else self.held_out(runs, self.relations[job.shard])

    def _place(self, indptr: Array) -> tuple[Array, Array]:
        size = int(indptr[-1])
        ids = self.ids
        indices = self.scratch.create("indices", (size,), ids.id_type)
        eid_type = id_dtype(int(ids.table_starts[-1]) + 1)
        eids = self.scratch.create("eids", (size if ids.carries_data else 0,), eid_type)
        cursor = indptr[:-1].copy()
        for job, base in zip(self.jobs, self.bases, strict=True):
            kernels.place_runs(self._runs_of(result(job), job), base, cursor, np.asarray(indices), np.asarray(eids))
        assert np.array_equal(cursor, indptr[1:])
        return np.asarray(indices), np.asarray(eids)

    def _emit(self, indptr: Array, indices: Array, eids: Array) -> tuple[Array, Array, int]:
        """Write the merged rows; returns the final indptr, each edge's table row (-1: an added self-loop), and how many
        self-loops were merged."""
        config, ids = self.config, self.ids
        out_indptr = np.zeros(ids.num_nodes + 1, np.int64)
        edges = kernels.Unmerged(indices, eids, ids.table_starts, config.deduplicate, ids.add_loops)
        merged_loops = sum(kernels.over_rows(kernels.count_merged, self.threads, indptr, edges, out_indptr[1:]))
        np.cumsum(out_indptr, out=out_indptr)
        size = int(out_indptr[-1])
        out_indices = self.writer.create("csc_indices", (size,), ids.id_type)
        out_eids = self.scratch.create("out_eids", (size if ids.carries_data else 0,), eids.dtype)
        raw_weight = out_weight = np.empty(0, np.float32)
        if "weight" in ids.edge_columns:
            raw_weight = self.data.raw("weight", np.float32, 1.0)[:, 0]
            out_weight = self.writer.create("edge_weight", (size,), np.float32)
        out = kernels.Merged(out_indptr, *(np.asarray(array) for array in (out_indices, out_eids, out_weight)))
        kernels.over_rows(
            kernels.emit_merged, self.threads, indptr, edges, raw_weight, _MERGE_MODES[config.merge_weights], out
        )
        chunks = blocks(len(out.weight), _CHUNK_EDGES) if config.merge_weights == "sum" else ()
        num_infinite = sum(np.count_nonzero(~np.isfinite(out.weight[rows])) for rows in chunks)
        if num_infinite:
            raise DataError(
                f"the weights of parallel edges add up to more than float32 holds (3.4e38) on {num_infinite:,} merged "
                "edges; set preprocess.merge_weights to max or first, or write smaller weights, such as all divided by "
                "the largest"
            )
        self.writer.write("csc_indptr", out_indptr)
        return out_indptr, out.eids, merged_loops

    def _other_direction(self, indptr: Array) -> None:
        """CSR unless the graph is symmetric, and where edges carry data the way from CSR to CSC positions."""
        ids, size = self.ids, int(indptr[-1])
        want_rows = not ids.symmetrize
        if not want_rows and not ids.carries_data:
            return
        indices = np.asarray(self.writer.read("csc_indices"))
        csr_indptr = np.zeros(ids.num_nodes + 1, np.int64)
        kernels.count_columns(indices, csr_indptr[1:])
        np.cumsum(csr_indptr, out=csr_indptr)
        empty = np.empty(0, np.int64)
        out_indices = self.writer.create("csr_indices", (size,), ids.id_type) if want_rows else empty
        out_eids = self.writer.create("csr_eids", (size,), np.int64) if ids.carries_data else empty
        transpose(indptr, indices, csr_indptr[:-1].copy(), np.asarray(out_indices), np.asarray(out_eids))
        if want_rows:
            self.writer.write("csr_indptr", csr_indptr)


def check_within_graphs(indptr: Array, indices: Array, graph_offsets: Array) -> None:
    """Refuse an edge that joins two graphs. Raises DataError."""
    for start, end in row_blocks(indptr[graph_offsets], _CHUNK_EDGES):
        first, last = int(graph_offsets[start]), int(graph_offsets[end])
        degree = np.diff(indptr[first : last + 1])
        sizes = np.diff(graph_offsets[start : end + 1])
        lower = np.repeat(np.repeat(graph_offsets[start:end], sizes), degree)
        upper = np.repeat(np.repeat(graph_offsets[start + 1 : end + 1], sizes), degree)
        cols = indices[indptr[first] : indptr[last]]
        wrong = np.flatnonzero((cols < lower) | (cols >= upper))
        if len(wrong):
            node = first + int(np.searchsorted(np.cumsum(degree), wrong[0], side="right"))
            graph = int(np.searchsorted(graph_offsets, node, side="right")) - 1
            raise DataError(
                f"an edge joins node {int(cols[wrong[0]])} to node {node} of graph {graph}, which holds nodes "
                f"{int(graph_offsets[graph])} to {int(graph_offsets[graph + 1]) - 1}; edges must stay within a graph"
            )
