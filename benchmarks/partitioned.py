"""What it costs that no machine holds the graph: batches of a graph in parts against those of the whole graph.

    python -m benchmarks.partitioned [--graph synthetic] [--machines 2,4] [--delay 1] [--gigabits 1]

Machines are network namespaces of this one (root, `ip` and control groups are needed), each with one rank of one
thread. Every rank makes batches of GraphSAGE (fan-out 15,10,5 of 1,024 seeds: sampling, features, the first layer's
means) over the parts and over the whole graph in turn; the ratio of CPU times is the median of the rounds'. Parts are
those of METIS or of `coarsened`, which splits large graphs nearly as well, and nodes dealt at random for comparison.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.gnn_graphs import graph_recipe, prepare
from benchmarks.gnn_report import keep, machine, print_machine
from benchmarks.machines import Machines
from benchmarks.network_relay import DEVICE
from benchmarks.partitioned_rank import Options
from tasks.storage.home import Home

RESULTS = Path(__file__).parent / "results"
VARIANTS = {
    "cache, 16 batches an exchange": Options(),
    "no cache, 16 batches": Options(cache=0.0),
    "no cache, 1 batch": Options(cache=0.0, exchange_batches=1),
    "bfloat16": Options(precision="bfloat16"),
    "int8 rows": Options(rows="int8"),
    "cache, 8 batches": Options(exchange_batches=8),
    "cache, 16 batches, with training steps": Options(steps=True),
}


def measure(folder: Path, count: int, options: Options, network: list[str]) -> dict[str, float]:
    """Return what rank 0 has to say of all ranks."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    with Machines(count) as machines:
        machines.tell_network(*network)
        environment = {
            **threads,
            "MASTER_ADDR": machines.address(0),
            "MASTER_PORT": "29400",
            "WORLD_SIZE": str(count),
            "GLOO_SOCKET_IFNAME": DEVICE,
        }
        command = [sys.executable, "-m", "benchmarks.partitioned_rank", str(folder), json.dumps(asdict(options))]
        ranks = [machines.start(rank, command, {**environment, "RANK": str(rank)}) for rank in range(count)]
        said = [rank.communicate()[0] for rank in ranks]
        if any(rank.returncode for rank in ranks):
            raise RuntimeError("a rank failed:\n" + "\n".join(said))
        lines = [line for line in said[0].splitlines() if line.startswith("{")]
        found: dict[str, float] = json.loads(lines[-1])
        return {**found, "peak_mb": max(each.peak_bytes for each in machines.machines) / 1e6}


def show(name: str, found: dict[str, float]) -> None:
    print(
        f"{name:52s} {found['parts_cpu_ms']:7.1f} {found['whole_cpu_ms']:7.1f} {found['cpu_ratio']:6.2f} "
        f"{found['parts_wall_ms']:8.1f} {found['sent_mb']:7.1f} {found['messages']:8.1f} {found['remote_share']:7.1%} "
        f"{found['fetched_rows']:9,.0f} {found['peak_mb']:8,.0f}",
        flush=True,
    )


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", default="synthetic", help="debdeps, synthetic or a recipe's file")
    parser.add_argument("--machines", default="2,4")
    parser.add_argument("--parts", default="coarsened,random", help="partitioners")
    parser.add_argument("--only", default="", help="variants whose names have this")
    parser.add_argument("--delay", type=float, default=0.0, help="milliseconds on the way")
    parser.add_argument("--gigabits", type=float, default=0.0, help="a second and machine; 0: no limit")
    parser.add_argument("--home", type=Path, default=Home.open().root)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args(arguments)
    network = [f"delay {args.delay / 1000}"] + ([f"rate {args.gigabits * 1.25e8}"] if args.gigabits else [])
    counts = [int(count) for count in args.machines.split(",")]
    facts = machine()
    print_machine(facts)
    print(f"{'':52s} parts   whole   ratio  wall ms  MB sent messages  remote      rows  peak MB   (CPU ms a batch)")
    results: list[dict[str, Any]] = []
    for partitioner in args.parts.split(","):
        recipe = graph_recipe(args.graph, (f"partition={partitioner}", f"partition.num_parts={max(counts)}"))
        folder = prepare(recipe, Home.open(args.home))
        for count, (name, options) in itertools.product(counts, VARIANTS.items()):
            if args.only in name:
                found = measure(folder, count, options, network)
                results.append({"parts": partitioner, "machines": count, "variant": name, **found})
                show(f"{partitioner}, {count} machines, {name}", found)
                keep(args, "partitioned", facts, results=results)


if __name__ == "__main__":
    main(sys.argv[1:])
