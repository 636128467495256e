"""How fast importance neighbourhoods are sampled on one CPU thread, against DGL's PinSAGESampler.

    python -m benchmarks.importance [--scale 1] [--rounds 9]

Customers and the products that they view, 1.5 M edges and their reverses, degrees by a power law
(`relational_graph`). Batches of 1,024 products: 64 walks each, of three traversals at most with a restart after each in
one of two cases, and the 16 products that are visited most. DGL knows no times; graphmill's batches as of a moment of
its own for each product are put beside. Each side is a process of its own with one thread; a ratio is the median over
rounds, of CPU time. Before that the number of neighbours and their shares are told. The table and importance.json go to
--out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.embeddings import RESULTS
from benchmarks.embeddings_peers import Done, Paced, serve_side
from benchmarks.gnn_report import Head, keep, machine, markdown, print_machine
from benchmarks.relational_graph import NODES, SPAN_SECONDS, Array, load, save, shop
from benchmarks.relational_peers import timed_batches
from benchmarks.relational_sides import as_store, dgl_graph
from benchmarks.side_processes import measure, own_command, rates, raw_rounds, side_lines, start_sides
from models.dgl.adapter import load_dgl
from models.relational.configs import ImportanceWalksConfig
from tasks.processes.children import die_with_parent
from tasks.sampling.relational.edges import RelationalEdges
from tasks.sampling.relational.importance import ImportanceSampler
from tasks.sampling.relational.walks import paths_back

WALKS = ImportanceWalksConfig(neighbors=16, count=64, length=3, restart=0.5)
BATCH_SIZE = 1024
ANY, AS_OF = "without times", "as of each product's moment"
_CHECKED = 4


def products(number: int) -> tuple[Array, Array]:
    """Products of a batch, int64 (1024,), and a moment of its own for each."""
    rng = np.random.default_rng(1000 + number)
    seeds = np.sort(rng.choice(NODES["product"], BATCH_SIZE, replace=False))
    return seeds, rng.integers(SPAN_SECONDS // 3, SPAN_SECONDS, BATCH_SIZE)


class Batches:
    """Jobs of a side: `sample(seeds, cuts, number)` -> how many neighbours there are, and the sum of squared shares."""

    def __init__(self, name: str, folder: Path, kinds: dict[str, Any]) -> None:
        work = timed_batches(products)

        def check(seconds: float) -> Done:
            found = np.zeros(2)
            for i in range(_CHECKED):
                weights, indptr = shares(kinds[ANY](*products(i), i))
                found += len(weights), (weights**2).sum()
                assert len(indptr) == BATCH_SIZE + 1
            (folder / f"{name}.json").write_text(json.dumps((found / _CHECKED / BATCH_SIZE).tolist()))
            return Done(0.0, 0.0, 0.0)

        self.jobs = {"check": check} | {kind: Paced(partial(work, sample)) for kind, sample in kinds.items()}


def shares(sampled: Any) -> tuple[Array, Array]:
    """Return the shares of visits of each product's neighbours, and where each product's begin."""
    if isinstance(sampled, tuple):
        indptr, _, weights = sampled
        return weights, indptr
    seeds, graph = sampled
    _, target = graph.edges()
    visits = graph.edata["weights"].double()
    total = torch.zeros(graph.num_nodes(), dtype=torch.float64).index_add(0, target, visits)
    return (visits / total[target]).numpy(), np.arange(len(seeds) + 1)


class Ours(Batches):
    """`ImportanceSampler.visits`."""

    def __init__(self, folder: Path, options: dict[str, Any]) -> None:
        edges = RelationalEdges(*as_store(load(folder / "shop.npz")))
        kind = edges.node_types.index("product")
        first = sum(list(NODES.values())[:kind])
        sampler = ImportanceSampler(edges, WALKS, 1, kind, paths_back(edges, kind), {})

        def sample(cut: bool, seeds: Array, cuts: Array, number: int) -> Any:
            return sampler.visits(first + seeds, cuts if cut else None, number, WALKS.neighbors)

        super().__init__("graphmill", folder, {ANY: partial(sample, False), AS_OF: partial(sample, True)})


class Dgl(Batches):
    """DGL's PinSAGESampler. It counts a product among its own neighbours where walks return to it."""

    def __init__(self, folder: Path, options: dict[str, Any]) -> None:
        dgl, graph = load_dgl(), dgl_graph(folder)
        sampler = dgl.sampling.PinSAGESampler(
            graph, "product", "customer", WALKS.length, WALKS.restart, WALKS.count, WALKS.neighbors
        )

        def sample(seeds: Array, cuts: Array, number: int) -> Any:
            return [seeds, sampler(torch.from_numpy(seeds))]

        super().__init__("DGL", folder, {ANY: sample})


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of edges")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a round")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args(arguments)
    facts = machine()
    print_machine(facts)
    with tempfile.TemporaryDirectory(prefix="graphmill-importance-") as work, ExitStack() as stack:
        folder = Path(work)
        save(folder / "shop.npz", [one for one in shop(args.scale) if one.name in ("views", "rev_views")])
        commands = {name: own_command("benchmarks.importance", name, folder, {}) for name in ("graphmill", "DGL")}
        sides = start_sides(stack, commands, facts)
        for side in sides.values():
            side.run("check", 0.0)
        if "graphmill" not in sides:
            sys.exit("graphmill's own side did not come up")
        checked = {name: json.loads((folder / f"{name}.json").read_text()) for name in sides}
        jobs = [("graphmill", ANY), ("graphmill", AS_OF), *([("DGL", ANY)] if "DGL" in sides else [])]
        found = measure(sides, jobs, args.rounds, args.seconds)
    head = Head("shop", ANY, "graphmill", "DGL", None)
    lines = [*side_lines(found, ("graphmill", ANY), ("DGL", ANY), head, "ms")]
    keep(args, "importance", facts, lines, raw=raw_rounds(found), checked=checked)
    for name, (count, squares) in checked.items():
        print(f"{name}: {count:.2f} neighbours a product, sum of squared shares {squares:.4f}")
    print(markdown(lines))
    for kind in (ANY, AS_OF):
        milliseconds = 1000 / statistics.median(rates(found["graphmill", kind], "cpu", 1.0))
        print(f"graphmill, {kind}: {milliseconds:.2f} ms of CPU a batch")


def serve() -> None:
    die_with_parent()
    torch.set_num_threads(1)
    serve_side({"graphmill": Ours, "DGL": Dgl})


if __name__ == "__main__":
    serve() if len(sys.argv) > 1 and sys.argv[1] in ("graphmill", "DGL") else main()
