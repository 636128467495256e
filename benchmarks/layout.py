"""How fast points of a layout are moved on one thread: against LargeVis' own program, in C++.

    python -m benchmarks.layout [--largevis PROGRAM] [--nodes 20000] [--rounds 5] [--millions 5] [--out DIR]

A graph of --nodes nodes with 15 neighbours each is laid out in two dimensions with 5 negatives a sample: millions of
samples a CPU second, draws of edges and negatives and all steps together. The program is run twice in each round, with
the samples and with twice as many, so that what it does beside them (reading the graph, similarities, its table of
negatives) falls out of the difference. Both take turns, and a ratio is the median over rounds of the rates of one
round. Losses are those of the finished layouts over the same samples: as good where they are alike.

The program is optional: built from its authors' Linux folder (github.com/lferry007/LargeVis) by `g++ -w -Ofast
-march=native -ffast-math LargeVis.cpp main.cpp -o LargeVis -lm -pthread -lgsl -lgslcblas`. layout.json goes to --out.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from models.kernels.layout.move_points import Points, move_points
from models.kernels.layout.objectives import Objective
from models.kernels.layout.reference import layout_loss
from models.kernels.layout.umap_curve import umap_curve
from tasks.arrays import Array
from tasks.sampling.walks.alias import alias_table, draw_many

RESULTS = Path(__file__).parent / "results"
NEIGHBORS, NEGATIVES, CHUNK, MILLION = 15, 5, 1 << 14, 1_000_000
OBJECTIVES = {
    "largevis": Objective("largevis", gamma=7.0, epsilon=0.1),
    "umap": Objective("umap", 1.0, 1e-3, *umap_curve(0.1)),
    "tsne": Objective("tsne", odds=0.01),
}


@dataclass(frozen=True)
class Graph:
    """Neighbours, both ways, and tables to draw them and negatives from."""

    heads: Array
    tails: Array
    edges: Array
    negatives: Array
    num_nodes: int

    @classmethod
    def drawn(cls, num_nodes: int) -> Graph:
        """Return nodes on a ring in groups of 50, each with neighbours among the next 200."""
        rng = np.random.default_rng(0)
        sources = np.repeat(np.arange(num_nodes, dtype=np.int32), NEIGHBORS)
        targets = (sources // 50 * 50 + rng.integers(200, size=len(sources), dtype=np.int32)) % np.int32(num_nodes)
        sources, targets = sources[sources != targets], targets[sources != targets]
        heads, tails = np.concatenate([sources, targets]), np.concatenate([targets, sources])
        degree = np.bincount(heads, minlength=num_nodes)
        return cls(heads, tails, alias_table(np.ones(len(heads))), alias_table(degree**0.75), num_nodes)

    def write(self, file: Path) -> None:
        """Write the edges as the program reads them."""
        half = slice(len(self.heads) // 2)
        columns = [self.heads[half], self.tails[half], np.ones(len(self.heads[half]), np.int32)]
        np.savetxt(file, np.column_stack(columns), fmt="%d")

    def samples(self, state: int) -> tuple[Array, Array, Array, int]:
        """Draw a chunk of samples; return heads, tails, negatives and the last state."""
        drawn, negatives = np.empty(CHUNK, np.int64), np.empty((CHUNK, NEGATIVES), np.int32)
        state = draw_many(self.edges, np.uint64(state), drawn)
        state = draw_many(self.negatives, np.uint64(state), negatives.reshape(-1))
        return self.heads[drawn], self.tails[drawn], negatives, state

    def loss(self, rows: Array) -> float:
        """Return LargeVis' loss of coordinates, over samples that are always the same."""
        points = Points(np.ascontiguousarray(rows, np.float32).reshape(-1), 2, 2)
        heads, tails, negatives, _ = self.samples(99)
        return layout_loss(points, points, heads, tails, negatives, OBJECTIVES["largevis"])


def lay_out(graph: Graph, objective: Objective, count: int) -> tuple[float, Array]:
    """Return samples a CPU second and the coordinates (N, 2)."""
    points = Points.zeros(graph.num_nodes, 2)
    points.rows[:] = (np.random.default_rng(1).random(points.rows.shape) - 0.5) * 1e-4
    state, begin = 12345, time.process_time()
    for low in range(0, count, CHUNK):
        heads, tails, negatives, state = graph.samples(state)
        options = {"most": 4.0, "move_negatives": False} if objective.name == "umap" else {}
        move_points(points, points, heads, tails, negatives, objective, rate=max(1e-4, 1 - low / count), **options)
    return count / (time.process_time() - begin), points.rows


def run_program(program: Path, folder: Path, millions: int) -> tuple[float, Array]:
    """Return the program's CPU seconds for so many samples, and the coordinates (N, 2) in the order of nodes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    options = {"fea": 0, "input": "graph.txt", "output": "out.txt", "threads": 1, "samples": millions}
    words = [str(word) for name, value in options.items() for word in (f"-{name}", value)]
    subprocess.run([program.resolve(), *words], cwd=folder, stdout=subprocess.DEVNULL, check=True)
    rows = np.loadtxt(folder / "out.txt", skiprows=1)
    seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    return seconds, rows[np.argsort(rows[:, 0]), 1:]


def compare(graph: Graph, program: Path | None, rounds: int, millions: int) -> list[dict[str, Any]]:
    """Return a line for the program and each objective: rates by round, and the loss at the end."""
    found: dict[str, list[float]] = {}
    losses: dict[str, float] = {}
    for objective in OBJECTIVES.values():
        lay_out(graph, objective, CHUNK)  # compiles
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        graph.write(folder / "graph.txt")
        for _ in range(rounds):
            if program is not None:
                once, rows = run_program(program, folder, millions)
                twice, _ = run_program(program, folder, 2 * millions)
                found.setdefault("LargeVis C++", []).append(millions * MILLION / (twice - once))
                losses["LargeVis C++"] = graph.loss(rows)
            for side, objective in OBJECTIVES.items():
                rate, rows = lay_out(graph, objective, millions * MILLION)
                found.setdefault(side, []).append(rate)
                losses |= {side: graph.loss(rows)} if side == "largevis" else {}
    peer = found.get("LargeVis C++")
    lines = []
    for side, own in found.items():
        ratio = statistics.median(a / b for a, b in zip(own, peer, strict=True)) if peer else None
        rate = statistics.median(own) / MILLION
        lines.append({"side": side, "millions_a_cpu_second": rate, "ratio": ratio, "loss": losses.get(side)})
    return lines


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largevis", type=Path)
    parser.add_argument("--nodes", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--millions", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.nodes < 1000 or options.rounds < 1 or options.millions < 1:
        parser.error("give --nodes of 1000 or more, and --rounds and --millions of 1 or more")
    if options.largevis is not None and not options.largevis.is_file():
        parser.error(f"--largevis {options.largevis} is no file: leave it out, or build the program as --help says")
    lines = compare(Graph.drawn(options.nodes), options.largevis, options.rounds, options.millions)
    print("| side | M samples a CPU second | ratio | largevis loss |\n|---|---|---|---|")
    for line in lines:
        ratio, loss = (f"{line[name]:.2f}" if line[name] is not None else "" for name in ("ratio", "loss"))
        print(f"| {line['side']} | {line['millions_a_cpu_second']:.2f} | {ratio} | {loss} |")
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "layout.json").write_text(json.dumps({"nodes": options.nodes, "lines": lines}, indent=1) + "\n")


if __name__ == "__main__":
    main()
