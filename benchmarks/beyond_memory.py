"""A graph of which no machine holds half: trained, evaluated and predicted over machines with a memory limit.

    python -m benchmarks.beyond_memory [--machines 4] [--nodes 8] [--edges 100] [--features 128] [--home FOLDER]

A generated graph (millions of nodes and undirected edges) is prepared once, on this machine. Then `graphmill run --only
train,evaluate` with `train.strategy=partitioned` uses a Ray cluster of machines that are network namespaces of this one
(root and control groups are needed). The run begins on one more, which alone sees the home and has no ranks: flow,
Prefect's server and Ray's head take there what the kernel's cache of a rank's files would need. Each has a memory limit
of 1/--times of the graph's edges and features, that cache included. Half of the nodes are predicted.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.gnn_graphs import prepare
from benchmarks.gnn_report import keep, machine, print_machine
from benchmarks.machines import Cluster, Machines
from configs.load import build_recipe, dump_recipe
from configs.schema import Recipe
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home

RESULTS = Path(__file__).parent / "results"


def recipe_of(args: argparse.Namespace) -> Recipe:
    """The graph and what is done with it; 2 % of the nodes train."""
    sections = {
        "name": "beyond-memory",
        "dataset": {
            "name": "synthetic",
            "num_nodes": int(args.nodes * 1e6),
            "num_edges": int(args.edges * 1e6),
            "num_classes": 16,
            "feature_dim": args.features,
            "valid_share": 0.48,
            "test_share": 0.5,
        },
        "partition": {"name": "auto", "num_parts": args.machines, "machines": args.machines},
        "evaluate": {"splits": ["test"]},
        "model": {"name": "graphsage", "hidden_dim": 64, "num_layers": 2},
        "train": {
            "strategy": {"name": "partitioned", "exchange_batches": 4},
            "prefetch": 1,
            "loader": {"name": "neighbor", "fanout": [10, 5], "batch_size": 1024},
            "epochs": 1,
            "num_ranks": args.machines,
            "threads": 1,
        },
        "cluster": {"address": "auto"},
    }
    return build_recipe(sections, [])


def run(cluster: Cluster, recipe: Path) -> str:
    """Train, evaluate and predict on all machines; returns what the command said. Raises SystemExit where it fails."""
    log = cluster.home / "said.log"
    with log.open("w") as file:
        code = cluster.run(["run", str(recipe), "--only", "train,evaluate"], file).wait()
    if code:
        raise SystemExit(f"the run failed:\n{log.read_text()[-3000:]}")
    return log.read_text()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", type=int, default=4)
    parser.add_argument("--nodes", type=float, default=8.0, help="millions")
    parser.add_argument("--edges", type=float, default=100.0, help="millions, undirected")
    parser.add_argument("--features", type=int, default=128, help="numbers a node, float32")
    parser.add_argument("--times", type=float, default=2.0, help="the graph's size in units of a machine's memory")
    parser.add_argument("--keep", action="store_true", help="evaluate what was trained before")
    parser.add_argument(
        "--home", type=Path, default=RESULTS / "beyond-memory" / "home", help="a folder called home, with room"
    )
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    facts = machine()
    print_machine(facts)
    recipe = recipe_of(args)
    store = GraphStore.open(prepare(recipe, Home.open(args.home)))
    graph_bytes = sum(store[name].nbytes for name in ("csc_indptr", "csc_indices", "feat"))
    limit = int(graph_bytes / args.times)
    path = args.home / "beyond-memory.yaml"
    path.write_text(json.dumps(dump_recipe(recipe)))  # JSON is YAML
    for stage in ("train", "evaluate"):
        if not args.keep:
            shutil.rmtree(args.home / "artifacts" / stage, ignore_errors=True)
    began = time.monotonic()
    with Machines(1 + args.machines, memory_bytes=limit) as machines:
        cluster = Cluster(machines, args.home.parent, apart=True, head_cpus=0)
        said = run(cluster, path)
        peaks = [each.peak_bytes for each in machines.machines]
        cluster.close()
    [report] = (args.home / "artifacts" / "evaluate").glob("*/manifest.json")
    manifest = json.loads(report.read_bytes())
    rows = pq.read_metadata(report.parent / manifest["predictions"]).num_rows
    found = {
        "graph_bytes": graph_bytes,
        "limit_bytes": limit,
        "peak_bytes": peaks,
        "seconds": time.monotonic() - began,
        "metrics": manifest["metrics"],
        "predictions": rows,
    }
    print(said)
    print(
        f"{store.manifest.num_nodes:,} nodes, {store.manifest.num_edges:,} edges; edges and features "
        f"{graph_bytes / 1e9:.2f} GB; 1 + {args.machines} machines of {limit / 1e9:.2f} GB; peaks without the kernel's "
        f"cache {', '.join(f'{peak / 1e9:.2f}' for peak in peaks)} GB; {rows:,} predictions; {found['seconds']:.0f} s"
    )
    keep(args, "beyond-memory", facts, **found)


if __name__ == "__main__":
    main()
