"""How fast data gets ready: CSV to CSR against OGB's reader and SciPy, components against SciPy.

    python -m benchmarks.prepare [--edges 20000000] [--repeats 3] [--cores 1] [--keep FOLDER]

All contenders run in turn, round after round, in one process; the table has medians and ratios to the named peer. With
`--cores 1` (the default) the process is pinned to one core, so that neither side's threads help, and CPU seconds are
compared; with more cores wall-clock seconds are. Both sides' results are compared once before anything is timed.
The graphs: a synthetic one (`--edges`, undirected, each stored once), and OGB-layout debdeps where it is at hand
(GRAPHMILL_DATA, default ../shared/data). Figures go to benchmarks/results/prepare.json too.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import itertools
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components as scipy_components

from benchmarks.gnn_report import machine, print_machine
from tasks.components.connected import connected_components
from tasks.ingest.edges import EdgeCheck
from tasks.ingest.writer import DatasetWriter
from tasks.preprocess.edges.edge_kernels import Packing, expand_edges, sort_and_compress
from tasks.readers.numbers import number_chunks, read_numbers
from tasks.storage.dataset_store import ShardRef, iter_row_groups
from tasks.storage.graph_store import Array

RESULTS = Path(__file__).parent / "results"
FEATURE_DIM = 32
DATA = Path(os.environ.get("GRAPHMILL_DATA", "../shared/data"))


@dataclass
class Contest:
    """One job, done by us and by a named peer."""

    title: str
    size: int
    """Edges that the job handles."""
    target: float | None
    """How many times as fast as the peer it has to be."""
    peer: str
    ours: Callable[[], Any]
    theirs: Callable[[], Any]
    same: Callable[[Any, Any], bool]
    seconds: dict[str, list[float]] = field(default_factory=lambda: {"ours": [], "theirs": []})

    def warm_up(self) -> None:
        """Run both once: kernels compile, files enter the page cache, results are compared."""
        assert self.same(self.ours(), self.theirs()), f"{self.title}: the two sides disagree"

    def round(self, clock: Callable[[], float], swap: bool) -> None:
        """Time each once; the order changes from round to round."""
        for side in ("theirs", "ours") if swap else ("ours", "theirs"):
            started = clock()
            outcome = getattr(self, side)()
            self.seconds[side].append(clock() - started)
            del outcome

    def record(self) -> dict[str, Any]:
        """Medians and their ratio."""
        ours, theirs = (statistics.median(self.seconds[side]) for side in ("ours", "theirs"))
        return {
            "job": self.title,
            "edges": self.size,
            "peer": self.peer,
            "ours_seconds": ours,
            "peer_seconds": theirs,
            "ratio": theirs / ours,
            "target": self.target,
            "all_seconds": self.seconds,
        }


def our_csr(num_nodes: int, src: Array, dst: Array) -> tuple[Array, Array]:
    """Edge list to CSR, columns ascending, parallel edges merged: what preprocess does with a shard."""
    bits = max(1, (num_nodes - 1).bit_length())
    keys = np.empty(len(src), np.uint64)
    expand_edges(dst, src, Packing(0, 0, bits, False, False), keys, 0, np.empty(0, np.int32), 0)
    return keys_to_csr(num_nodes, bits, keys)


def keys_to_csr(num_nodes: int, bits: int, keys: Array) -> tuple[Array, Array]:
    """Sort and compress packed edges; the keys are used up."""
    rows, counts, cols, _ = sort_and_compress(keys, np.empty(0, np.int32), bits, True)
    indptr = np.zeros(num_nodes + 1, np.int64)
    indptr[1:][rows] = counts
    return np.cumsum(indptr, out=indptr), cols


def scipy_csr(num_nodes: int, src: Array, dst: Array) -> sp.csr_matrix:
    """The same by SciPy, with the smallest data that it takes."""
    return sp.coo_matrix((np.ones(len(src), np.int8), (src, dst)), shape=(num_nodes, num_nodes)).tocsr()


def same_csr(ours: tuple[Array, Array], theirs: sp.csr_matrix) -> bool:
    return np.array_equal(ours[0], theirs.indptr) and np.array_equal(ours[1], theirs.indices)


def our_csv_to_csr(raw: Path, num_nodes: int, scratch: Path) -> tuple[Array, Array]:
    """Read and check the edges, write Parquet, read that back, make CSR."""
    shutil.rmtree(scratch, ignore_errors=True)
    check = EdgeCheck(num_nodes, num_nodes)
    with DatasetWriter(scratch) as writer:
        with writer.table("edges") as table:
            for rows in number_chunks(raw / "edge.csv.gz", np.int32, num_columns=2):
                check.add(rows[:, 0], rows[:, 1])
                table.write({"src": rows[:, 0], "dst": rows[:, 1]})
        made = zip(writer.tables["edges"].shards, writer.tables["edges"].shard_rows, strict=True)
        shards = [ShardRef(str(scratch / path), "", 0, rows, ("src", "dst")) for path, rows in made]
    bits = max(1, (num_nodes - 1).bit_length())
    keys, count, nothing = np.empty(check.num_edges, np.uint64), 0, np.empty(0, np.int32)
    for group in itertools.chain.from_iterable(iter_row_groups(shard, ["src", "dst"]) for shard in shards):
        row, col = group.column("src").to_numpy(), group.column("dst").to_numpy()
        count, _ = expand_edges(col, row, Packing(0, 0, bits, False, False), keys, count, nothing, 0)
    assert count == check.num_edges
    return keys_to_csr(num_nodes, bits, keys)


def read_ogb(raw: Path) -> dict[str, Any]:
    """OGB's own reader of a raw folder (pandas). It writes no Parquet and checks nothing."""
    from ogb.io.read_graph_raw import read_csv_graph_raw

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        graph: dict[str, Any] = read_csv_graph_raw(str(raw), add_inverse_edge=False)[0]
    return graph


def make_synthetic(num_edges: int, folder: Path) -> Path:
    """Write a synthetic graph as OGB's raw files (edge.csv.gz and counts); kept for the next run if it is there."""
    raw = folder / f"synthetic-{num_edges}"
    if (raw / "done").exists():
        return raw
    from configs.registry import DATASETS
    from tasks.stage import StageContext
    from tasks.storage.home import Home
    from tasks.storage.home_files.caching import PickleCache

    raw.mkdir(parents=True, exist_ok=True)
    options = {"name": "synthetic", "num_nodes": max(1000, num_edges // 10), "num_edges": num_edges, "feature_dim": 0}
    with tempfile.TemporaryDirectory(dir=folder) as work:
        home = Home.open(Path(work) / "home")
        context = StageContext("ingest", Path(work), home, PickleCache(home))
        fields = DATASETS.create(DATASETS.config(options)).ingest(context)
        ((name, table),) = [item for item in fields["tables"].items() if item[0].startswith("edges/")]
        assert name
        with (raw / "edge.csv").open("wb") as file:
            for path, rows in zip(table.shards, table.shard_rows, strict=True):
                for group in iter_row_groups(ShardRef(f"{work}/{path}", "", 0, rows, ()), ["src", "dst"]):
                    pa_csv.write_csv(group, file, pa_csv.WriteOptions(include_header=False))
    subprocess.run(["gzip", "-6", "-f", str(raw / "edge.csv")], check=True)
    counts = {"node": fields["node_types"][0].num_nodes, "edge": fields["edge_types"][0].num_edges}
    for what, number in counts.items():
        _write_count(raw, what, number)
    (raw / "done").touch()
    return raw


def counts_of(raw: Path) -> tuple[int, int]:
    """Nodes and edges of a raw folder."""
    found = [read_numbers(raw / f"num-{what}-list.csv.gz", np.int64, num_columns=1)[0, 0] for what in ("node", "edge")]
    return int(found[0]), int(found[1])


def _write_count(raw: Path, what: str, number: int) -> None:
    packed = subprocess.run(["gzip", "-c"], input=f"{number}\n".encode(), capture_output=True, check=True).stdout
    (raw / f"num-{what}-list.csv.gz").write_bytes(packed)


def edges_only(source: Path, folder: Path) -> Path:
    """A raw folder with the edges and counts of another one, so that no side reads features."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("edge.csv.gz", "num-node-list.csv.gz", "num-edge-list.csv.gz"):
        shutil.copyfile(source / name, folder / name)
    return folder


def add_features(raw: Path, num_nodes: int, folder: Path) -> Path:
    """A raw folder with the same edges, and features of all nodes as float32 prints them."""
    folder = edges_only(raw, folder)
    features = np.random.default_rng(0).standard_normal((num_nodes, FEATURE_DIM), np.float32)
    names = [str(i) for i in range(FEATURE_DIM)]
    table = pa.table(list(features.T), names)
    with gzip.open(folder / "node-feat.csv.gz", "wb", compresslevel=6) as file:
        pa_csv.write_csv(table, file, pa_csv.WriteOptions(include_header=False))
    return folder


def reader_contests(name: str, raw: Path, num_nodes: int, num_edges: int) -> list[Contest]:
    """Edges with features against OGB."""
    edges, features = raw / "edge.csv.gz", raw / "node-feat.csv.gz"

    def ours() -> tuple[tuple[Array, Array], Array]:
        src, dst = read_numbers(edges, np.int32, num_columns=2).T
        return our_csr(num_nodes, src, dst), read_numbers(features, np.float32, num_columns=FEATURE_DIM)

    def theirs() -> tuple[sp.csr_matrix, Array]:
        graph = read_ogb(raw)
        return scipy_csr(num_nodes, *graph["edge_index"]), graph["node_feat"]

    return [
        Contest(
            f"{name}: edge and node-feat.csv.gz -> CSR and a matrix",
            num_edges,
            None,
            "ogb read_csv_graph_raw -> scipy CSR",
            ours,
            theirs,
            lambda a, b: same_csr(a[0], b[0]) and np.array_equal(a[1], b[1]),
        )
    ]


def contests(name: str, raw: Path, scratch: Path) -> list[Contest]:
    """The jobs on one graph."""
    num_nodes, num_edges = counts_of(raw)
    edges = [np.ascontiguousarray(rows.T) for rows in number_chunks(raw / "edge.csv.gz", np.int32, num_columns=2)]
    src, dst = np.concatenate(edges, axis=1)
    both = np.concatenate([src, dst]), np.concatenate([dst, src])
    indptr, indices = our_csr(num_nodes, *both)
    matrix = sp.csr_matrix((np.ones(len(indices), np.int8), indices, indptr), shape=(num_nodes, num_nodes))

    return [
        Contest(
            f"{name}: edge.csv.gz -> Parquet -> CSR",
            num_edges,
            2.0 if num_edges > 10**6 else None,
            "ogb read_csv_graph_raw -> scipy CSR",
            lambda: our_csv_to_csr(raw, num_nodes, scratch),
            lambda: scipy_csr(num_nodes, *read_ogb(raw)["edge_index"]),
            same_csr,
        ),
        Contest(
            f"{name}: COO -> CSR, sorted and merged",
            num_edges,
            None,
            "scipy coo_matrix.tocsr",
            lambda: our_csr(num_nodes, src, dst),
            lambda: scipy_csr(num_nodes, src, dst),
            same_csr,
        ),
        Contest(
            f"{name}: connected components",
            len(indices),
            10.0 if num_edges > 10**6 else None,
            "scipy.sparse.csgraph (same CSR)",
            lambda: connected_components(indptr, indices),
            lambda: scipy_components(matrix, directed=False),
            lambda ours, theirs: ours[0] == theirs[0] and np.array_equal(ours[1], theirs[1]),
        ),
    ]


def show(record: dict[str, Any]) -> None:
    """Print one row of the table."""
    target = f"(asked: {record['target']:g}x)" if record["target"] else ""
    print(
        f"{record['job']:<62} {record['edges'] / 1e6:8.2f} M  {record['ours_seconds']:8.3f} s  "
        f"{record['peer_seconds']:8.3f} s  {record['ratio']:6.2f}x {target:<13} {record['peer']}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--edges", type=int, default=20_000_000, help="edges of the synthetic graph")
    parser.add_argument("--repeats", type=int, default=3, help="rounds")
    parser.add_argument("--cores", type=int, default=1, help="cores that the process is pinned to")
    parser.add_argument("--keep", type=Path, help="folder that keeps the synthetic graph for the next run")
    options = parser.parse_args()
    available = sorted(os.sched_getaffinity(0))
    if options.cores > len(available):
        parser.error(f"--cores {options.cores}: this process may use {len(available)}")
    os.sched_setaffinity(0, available[: options.cores])
    pa.set_cpu_count(options.cores)
    clock, clock_name = (time.process_time, "CPU") if options.cores == 1 else (time.perf_counter, "wall-clock")
    facts = machine() | {"cores_used": options.cores}
    print_machine(facts)
    print(
        f"medians of {options.repeats} interleaved rounds, {clock_name} seconds, both sides on {options.cores} core(s)"
    )
    print(f"{'job':<62} {'edges':>10}  {'graphmill':>10}  {'peer':>10}  {'ratio':>7}")
    records = []
    with tempfile.TemporaryDirectory(prefix="graphmill-prepare-") as temporary:
        folder = Path(temporary)
        graphs = {"synthetic": make_synthetic(options.edges, options.keep or folder)}
        debdeps = DATA / "ogb" / "ogbn_debdeps" / "raw"
        if debdeps.is_dir():
            graphs["debdeps"] = edges_only(debdeps, folder / "debdeps")
        for name, raw in graphs.items():
            found = contests(name, raw, folder / "scratch")
            if name == "synthetic":
                num_nodes, num_edges = counts_of(raw)
                found += reader_contests(name, add_features(raw, num_nodes, folder / "features"), num_nodes, num_edges)
            for contest in found:
                contest.warm_up()
                for number in range(options.repeats):
                    contest.round(clock, swap=bool(number % 2))
                records.append(contest.record())
                show(records[-1])
    RESULTS.mkdir(parents=True, exist_ok=True)
    content = {"machine": facts, "clock": clock_name, "repeats": options.repeats, "records": records}
    (RESULTS / "prepare.json").write_text(json.dumps(content, indent=1))
    missed = [r["job"] for r in records if r["target"] and r["ratio"] < r["target"]]
    print("every figure asked for is reached" if not missed else f"below what was asked: {'; '.join(missed)}")


if __name__ == "__main__":
    main()
