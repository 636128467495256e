"""Cut, time and memory of all partitioners on four graphs.

    python benchmarks/partition.py [--graphs large,mdual] [--methods coarsened,pymetis] [--parts 16] [--repeats 1]

Each run is a process of its own: its peak memory is its own, and one method's heap is not the next one's. Methods are
interleaved, so that a slow minute of the machine hits all alike; the table shows medians over repeats (each with
another seed). The real graphs are read from GRAPHMILL_DATA (default ../shared/data).
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import json
import lzma
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.gnn_report import machine, print_machine  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
GRAPHS = RESULTS / "partition-graphs"
DATA = Path(os.environ.get("GRAPHMILL_DATA", ROOT.parent / "shared" / "data"))
METHODS = ("pymetis", "metis", "coarsened", "auto", "random")
IMBALANCE = 0.03


def synthetic(num_nodes: int = 1_200_000, num_draws: int = 30_600_000, seed: int = 1) -> sp.csr_matrix:
    """Planted communities of power-law sizes in 47 classes, power-law degrees; about 27 million undirected edges.

    An edge's first end is drawn by weight; the second lies in the same community (65 %), class (15 %) or anywhere.
    """
    rng = np.random.default_rng(seed)
    num_communities, num_classes = 2000, 47
    share = rng.pareto(1.8, num_communities) + 0.3
    sizes = np.maximum(1, (share / share.sum() * num_nodes).astype(np.int64))
    sizes[sizes.argmax()] += num_nodes - sizes.sum()
    first = np.concatenate([[0], np.cumsum(sizes)])
    class_of = np.sort(
        np.concatenate([np.arange(num_classes), rng.integers(0, num_classes, num_communities - num_classes)])
    )
    class_first = first[np.searchsorted(class_of, np.arange(num_classes + 1))]
    community = np.repeat(np.arange(num_communities), sizes)
    mass = np.concatenate([[0.0], np.cumsum(np.minimum(rng.pareto(1.6, num_nodes) + 1, 3000))])
    name = rng.permutation(num_nodes).astype(np.int32)
    src, dst = np.empty(num_draws, np.int32), np.empty(num_draws, np.int32)
    for low in range(0, num_draws, 1 << 20):
        count = min(1 << 20, num_draws - low)
        u = np.searchsorted(mass, rng.random(count) * mass[-1], side="right") - 1
        c = community[u]
        kind = rng.random(count)
        start = np.where(kind < 0.65, first[c], np.where(kind < 0.8, class_first[class_of[c]], 0))
        end = np.where(kind < 0.65, first[c + 1], np.where(kind < 0.8, class_first[class_of[c] + 1], num_nodes))
        v = np.searchsorted(mass, mass[start] + rng.random(count) * (mass[end] - mass[start]), side="right") - 1
        src[low : low + count], dst[low : low + count] = name[u], name[np.minimum(v, num_nodes - 1)]
    return undirected(src, dst, num_nodes)


def undirected(src: np.ndarray, dst: np.ndarray, num_nodes: int) -> sp.csr_matrix:
    keep = src != dst
    src, dst = src[keep], dst[keep]
    ones = np.ones(len(src), bool)
    matrix = sp.csr_matrix((ones, (src, dst)), shape=(num_nodes, num_nodes))
    matrix = (matrix + matrix.T).tocsr()
    matrix.sort_indices()
    return matrix


def debdeps() -> sp.csr_matrix:
    import pandas as pd

    raw = DATA / "ogb" / "ogbn_debdeps" / "raw"
    edges = pd.read_csv(raw / "edge.csv.gz", header=None).to_numpy()
    with gzip.open(raw / "num-node-list.csv.gz") as file:
        return undirected(edges[:, 0], edges[:, 1], int(file.read()))


def mdual() -> sp.csr_matrix:
    return metis_graph("mdual")


def metis_graph(name: str) -> sp.csr_matrix:
    """Read a file of METIS' format."""
    with lzma.open(DATA / "partition" / f"{name}.graph.xz") as file:
        num_nodes = int(file.readline().split()[0])
        rows = [np.array(line.split(), np.int64) - 1 for line in file]
    return undirected(np.repeat(np.arange(num_nodes), [len(row) for row in rows]), np.concatenate(rows), num_nodes)


def large() -> sp.csr_matrix:
    import pyarrow.parquet as pq

    folder = DATA / "large"
    annotations, ontology = pq.read_table(folder / "annotations.parquet"), pq.read_table(folder / "ontology.parquet")
    num_proteins = pq.read_metadata(folder / "proteins.parquet").num_rows
    num_terms = pq.read_metadata(folder / "terms.parquet").num_rows
    src = [annotations["protein"].to_numpy(), ontology["child_or_src"].to_numpy() + num_proteins]
    dst = [annotations["term"].to_numpy() + num_proteins, ontology["parent_or_dst"].to_numpy() + num_proteins]
    return undirected(np.concatenate(src), np.concatenate(dst), num_proteins + num_terms)


SOURCES = {"synthetic": synthetic, "debdeps": debdeps, "mdual": mdual, "large": large}


def prepare(name: str) -> None:
    """Write the graph as two .npy files, once."""
    GRAPHS.mkdir(parents=True, exist_ok=True)
    if (GRAPHS / f"{name}-indices.npy").exists():
        return
    print(f"making {name} ...", file=sys.stderr, flush=True)
    matrix = SOURCES[name]()
    np.save(GRAPHS / f"{name}-indptr.npy", matrix.indptr.astype(np.int64))
    np.save(GRAPHS / f"{name}-indices.npy", matrix.indices.astype(np.int32))


def status(field: str) -> int:
    """Return a memory field of this process in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(field)


def partition(method: str, indptr: np.ndarray, indices: np.ndarray, num_parts: int, seed: int) -> np.ndarray:
    if method == "pymetis":  # as its users call it, with the same imbalance as all others
        import pymetis

        graph = pymetis.CSRAdjacency(indptr, indices.astype(np.int64))
        options = pymetis.Options(ufactor=round(1000 * IMBALANCE), seed=seed)
        return np.asarray(pymetis.part_graph(num_parts, graph, options=options, recursive=False).vertex_part, np.int32)
    from configs.registry import PARTITIONERS
    from tasks.partition.base import Csr, PartitionContext

    config = PARTITIONERS.config({"name": method, "num_parts": num_parts, "imbalance": IMBALANCE, "seed": seed})
    part: np.ndarray = PARTITIONERS.create(config).partition(
        Csr(indptr, indices), num_parts, PartitionContext(scratch=GRAPHS)
    )
    return part


def warm_up(method: str) -> None:
    """Compile or load the kernels on graphs that take every path; the arrays are read-only as memory maps are."""
    rng = np.random.default_rng(0)
    for degree in (3, 12):
        src, dst = rng.integers(0, 20_000, (2, 20_000 * degree // 2))
        matrix = undirected(src, dst, 20_000)
        indptr, indices = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)
        for array in (indptr, indices):
            array.setflags(write=False)
        # auto would take METIS for graphs as small as these
        partition("coarsened" if method == "auto" else method, indptr, indices, 4, 0)


def run_one(graph: str, method: str, num_parts: int, seed: int) -> dict[str, Any]:
    """Partition in this process; returns cut, CPU and wall seconds, peak memory beyond the graph, balance."""
    indptr = np.asarray(np.load(GRAPHS / f"{graph}-indptr.npy", mmap_mode="r"))
    indices = np.asarray(np.load(GRAPHS / f"{graph}-indices.npy", mmap_mode="r"))
    warm_up(method)
    for array in (indptr, indices):
        array.max()  # the graph's pages count as there before
    Path("/proc/self/clear_refs").write_text("5")
    before, cpu, wall = status("VmRSS"), time.process_time(), time.perf_counter()
    part = partition(method, indptr, indices, num_parts, seed)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    peak = status("VmHWM") - before
    from tasks.partition.kernels.graphs import count_cut

    size = np.bincount(part, minlength=num_parts)
    return {
        "graph": graph,
        "method": method,
        "num_parts": num_parts,
        "seed": seed,
        "cut": count_cut(indptr, indices, part) / len(indices),
        "cpu_seconds": cpu,
        "wall_seconds": wall,
        "peak_bytes": peak,
        "balance": float(size.max() / size.mean()),
        "num_nodes": len(indptr) - 1,
        "num_edges": len(indices),
    }


def print_table(records: list[dict[str, Any]]) -> None:
    head = f"{'graph':10} {'nodes':>9} {'edges':>10} {'parts':>5} {'method':17} {'cut %':>7} {'vs METIS':>8} "
    print(head + f"{'CPU s':>7} {'faster':>7} {'peak MB':>8} {'smaller':>8} {'balance':>7}")
    groups: dict[tuple[str, int, str], list[dict[str, Any]]] = {}
    for record in records:
        groups.setdefault((record["graph"], record["num_parts"], record["method"]), []).append(record)
    for (graph, num_parts, method), runs in groups.items():

        def median(field: str, runs: list[dict[str, Any]] = runs) -> float:
            return statistics.median(run[field] for run in runs)

        cut, cpu, peak = median("cut"), median("cpu_seconds"), median("peak_bytes")
        base = groups.get((graph, num_parts, "pymetis"), runs)
        base_cut, base_cpu, base_peak = (
            statistics.median(run[field] for run in base) for field in ("cut", "cpu_seconds", "peak_bytes")
        )
        nodes, edges = runs[0]["num_nodes"], runs[0]["num_edges"] // 2
        print(
            f"{graph:10} {nodes:9,} {edges:10,} {num_parts:5} {method:17} {100 * cut:7.2f} "
            f"{100 * (cut / base_cut - 1):+7.1f}% "
            f"{cpu:7.2f} {base_cpu / max(cpu, 1e-2):6.1f}x {peak / 1e6:8.0f} {base_peak / max(peak, 1e6):7.1f}x "
            f"{max(run['balance'] for run in runs):7.3f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", default=",".join(SOURCES))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--parts", default="16", help="comma-separated")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--one", nargs=4, metavar=("GRAPH", "METHOD", "PARTS", "SEED"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        graph, method, parts, seed = args.one
        print(json.dumps(run_one(graph, method, int(parts), int(seed))))
        return
    facts = machine()
    print_machine(facts)
    records = []
    for graph in args.graphs.split(","):
        prepare(graph)
        for num_parts in args.parts.split(","):
            for repeat in range(args.repeats):
                for method in args.methods.split(","):
                    # METIS treats seeds 0 and 1 alike; counting starts at 1
                    command = [sys.executable, __file__, "--one", graph, method, num_parts, str(repeat + 1)]
                    done = subprocess.run(command, capture_output=True, text=True, check=False)
                    if done.returncode:
                        raise SystemExit(f"{graph} {method}: {done.stderr[-2000:]}")
                    records.append(json.loads(done.stdout.splitlines()[-1]))
        print_table([record for record in records if record["graph"] == graph])
        sys.stdout.flush()
    RESULTS.mkdir(parents=True, exist_ok=True)
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S")
    path = RESULTS / f"partition-{stamp}.json"
    path.write_text(json.dumps({"machine": facts, "runs": records}, indent=1))
    print(f"written to {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
