"""What a batch of a graph in parts would cost on machines that one does not have, from what it cost on some.

    python -m benchmarks.cost_model [--results FOLDER] [--gigabits 25]

Fitted to partitioned.json of `python -m benchmarks.partitioned`. What the graph's parts add to a batch's CPU time is
taken as a sum of three: for every row that the batch reads (finding where it is, merging), for every row that travels
(asking for it, reading it for others) and for every byte that is sent and received. The rest:

- Remote rows. A walk that crosses parts with chance c (the edge cut) is after h hops on another of M machines with
  chance (1 - 1/M) (1 - (1 - c / (1 - 1/M))^h); nearly all rows are read h = L hops away.
- Rows that several of k batches in one exchange want travel once: of n remote nodes k batches that read r each want
  n (1 - (1 - r/n)^k), all nodes being equally likely. Real graphs have nodes that most batches read: an upper bound.
- Bytes. A row's, and 4 for its id; the sampled neighbours' ids, 4 each, and 8 for each node that was asked about.
- Wall seconds. The larger of CPU seconds and bytes over the network's rate, since both run while the other does.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Cost:
    """CPU milliseconds."""

    whole: float
    """A row that a batch reads, where one process holds the graph."""
    read: float
    """Besides, a row that a batch reads of a graph in parts."""
    fetched: float
    """A row that travels."""
    megabyte: float
    """A million bytes sent, and as many received."""


@dataclass(frozen=True)
class Cluster:
    """A graph and machines for it."""

    name: str
    nodes: float
    edges: float
    """Directed."""
    row_bytes: int
    machines: int
    cut: float
    fanout: tuple[int, ...] = (15, 10, 5)
    batch_size: int = 1024
    together: int = 16
    """Batches an exchange."""


CLUSTERS = [
    Cluster("papers100M, 4 machines", 111e6, 3.2e9, 512, 4, 0.10),
    Cluster("papers100M, 4 machines, parts at random", 111e6, 3.2e9, 512, 4, 0.75),
    Cluster("papers100M, 4 machines, float16 rows", 111e6, 3.2e9, 256, 4, 0.10),
    Cluster("1 B nodes, 10 B edges, 16 machines", 1e9, 10e9, 512, 16, 0.25),
    Cluster("1 B nodes, 10 B edges, 16 machines, float16 rows", 1e9, 10e9, 256, 16, 0.25),
    Cluster("1 B nodes, 10 B edges, 16 machines, int8 rows", 1e9, 10e9, 132, 16, 0.25),
]


def fit(results: list[dict[str, Any]]) -> tuple[Cost, float]:
    """Return the costs, and the median error of a batch's CPU time as a share of it. Costs are never negative."""
    from scipy.optimize import nnls

    points = [one for one in results if "steps" not in one["variant"]]
    facts = np.array([[one["wanted_rows"], one["fetched_rows"], one["sent_mb"]] for one in points])
    taken = np.array([one["parts_cpu_ms"] for one in points])
    whole = np.array([one["whole_cpu_ms"] for one in points])
    scale = facts.max(0)
    costs = nnls(facts / scale, taken - whole)[0] / scale
    error = np.abs(whole + facts @ costs - taken) / taken
    plain = [one for one in points if "bfloat16" not in one["variant"]]
    row = float(np.median([one["whole_cpu_ms"] / one["wanted_rows"] for one in plain]))
    return Cost(row, *map(float, costs)), float(np.median(error))


def remote_share(cluster: Cluster) -> float:
    """Return which share of the rows that a batch reads other machines hold."""
    most = 1 - 1 / cluster.machines
    return most * (1 - max(0.0, 1 - cluster.cut / most) ** len(cluster.fanout))


def predict(cluster: Cluster, cost: Cost, gigabits: float) -> dict[str, float]:
    """Return what a batch takes on each machine: rows, megabytes, milliseconds; and what a machine holds."""
    hops = [cluster.batch_size * prod(cluster.fanout[:hop]) for hop in range(len(cluster.fanout) + 1)]
    share = remote_share(cluster)
    remote = share * sum(hops)
    others = cluster.nodes * (1 - 1 / cluster.machines)
    fetched = others * -np.expm1(cluster.together * np.log1p(-remote / others)) / cluster.together
    structure = share * (4 * sum(hops[1:]) + 12 * sum(hops[:-1]))
    sent = (fetched * (cluster.row_bytes + 4) + structure) / 1e6
    whole = cost.whole * sum(hops)
    cpu = whole + cost.read * sum(hops) + cost.fetched * fetched + cost.megabyte * sent
    network = sent / (gigabits / 8)
    held = (4 * cluster.edges + (8 + cluster.row_bytes) * cluster.nodes) / cluster.machines
    return {
        "rows": sum(hops),
        "remote": share,
        "fetched": fetched,
        "sent_mb": sent,
        "cpu_ms": cpu,
        "ratio": cpu / whole,
        "network_ms": network,
        "wall_ms": max(cpu, network),
        "held_gb": held / 1e9,
        "fetched_gb": fetched * cluster.together * cluster.row_bytes / 1e9,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder with partitioned.json")
    parser.add_argument("--gigabits", type=float, default=25.0, help="a second and machine, each way")
    args = parser.parse_args()
    results = json.loads((args.results / "partitioned.json").read_text())["results"]
    cost, error = fit(results)
    print(
        f"CPU: {1e6 * cost.whole:.0f} ns a row read, {1e6 * cost.read:.0f} more of a graph in parts, "
        f"{1e6 * cost.fetched:.0f} a row that travels, {cost.megabyte:.2f} ms a megabyte; "
        f"median error of {len(results)} batches' CPU time {error:.1%}"
    )
    print(
        "| graph, machines | remote | rows that travel | MB | CPU ms | to whole | network ms | GB held | exchange GB |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for cluster in CLUSTERS:
        at = predict(cluster, cost, args.gigabits)
        print(
            f"| {cluster.name} | {at['remote']:.0%} | {at['fetched']:,.0f} of {at['rows']:,.0f} | "
            f"{at['sent_mb']:.0f} | {at['cpu_ms']:.0f} | {at['ratio']:.2f} | "
            f"{at['network_ms']:.0f} | {at['held_gb']:.0f} | {at['fetched_gb']:.1f} |"
        )


if __name__ == "__main__":
    main()
