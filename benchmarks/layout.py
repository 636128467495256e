"""How fast points of a layout are moved, as trainings move them: against LargeVis' own program, in C++.

    python -m benchmarks.layout [--largevis PROGRAM] [--images 10000] [--threads 1] [--rounds 5] [--millions 5]

A graph is laid out in two dimensions by the engine that trains layouts, with each model's own numbers: millions of
samples a CPU second, draws of edges and negatives and all steps together. Each side is run twice in each round, with
the samples and with twice as many, so that what it does beside them (reading the graph, similarities, the order of
edges, tables of negatives) falls out of the difference. Sides take turns, and a ratio is the median over rounds of the
rates of one round.

The graph is that of the nearest neighbours of the first --images of Fashion-MNIST's test images (90 of perplexity 30;
both sides read the same edges and weights), and measures are those of graphmill's evaluation; without --images one of
--nodes drawn nodes with 15 neighbours each, and LargeVis' loss over the same samples. The program begins with points
within 1e-4 of each other, graphmill with the principal components. t-SNE's samples have 50 negatives, the others' 5.

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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.layout_peers import DATA, idx_bytes
from configs.layout_options import NeighborsConfig
from configs.registry import MODELS
from models.kernels.layout.move_points import PointRows, layout_loss
from models.kernels.layout.objectives import LayoutObjective
from tasks.arrays import Array
from tasks.layout.edge_list import EdgeList
from tasks.layout.neighbors.graph import neighbor_graph
from tasks.layout.quality.measure import measure_layout
from tasks.layout.start import pca_start
from tasks.processes.device import use_threads
from tasks.train.layout.engine import lay_out

RESULTS = Path(__file__).parent / "results"
NEIGHBORS, MILLION, LOSS_SAMPLES = 15, 1_000_000, 1 << 14
MODEL_NAMES = ("largevis", "umap", "tsne")
PROGRAM = "LargeVis C++"
MEASURES = ("trustworthiness", "knn_accuracy", "largevis_loss")


@dataclass(frozen=True)
class Graph:
    """What is laid out."""

    edges: EdgeList
    start: Array
    """float32 (N, 2)."""
    vectors: Array | None = None
    labels: Array | None = None

    @classmethod
    def drawn(cls, num_nodes: int) -> Graph:
        """Return nodes on a ring in groups of 50, each with neighbours among the next 200."""
        rng = np.random.default_rng(0)
        sources = np.repeat(np.arange(num_nodes), NEIGHBORS)
        targets = (sources // 50 * 50 + rng.integers(200, size=len(sources))) % num_nodes
        both = np.concatenate([[sources, targets], [targets, sources]], 1)
        both = both[:, both[0] != both[1]]
        both = both[:, np.lexsort(both[::-1])].astype(np.int32)
        indptr = np.concatenate([[0], np.bincount(both[0], minlength=num_nodes).cumsum()])
        return cls(EdgeList(indptr, both[1]), rng.standard_normal((num_nodes, 2)).astype(np.float32))

    @classmethod
    def of_images(cls, count: int) -> Graph:
        """Return the nearest neighbours of test images."""
        images = idx_bytes(DATA / "vectors" / "t10k-images-idx3-ubyte.gz", 16).reshape(-1, 784)[:count]
        labels = idx_bytes(DATA / "vectors" / "t10k-labels-idx1-ubyte.gz", 8)[:count].astype(np.int64)
        vectors = images.astype(np.float32) / 255
        found = neighbor_graph(vectors, NeighborsConfig(k=90, method="exact", weights="perplexity"))
        return cls(EdgeList(found.indptr, found.indices, found.weight), pca_start(vectors, 2, 0), vectors, labels)

    def write(self, file: Path) -> None:
        """Write each edge once, as the program reads them: it adds the reverses."""
        weight = np.ones(len(self.edges.indices)) if self.edges.weight is None else self.edges.weight
        columns = np.column_stack([self.edges.sources, self.edges.indices, weight])
        np.savetxt(file, columns[columns[:, 0] < columns[:, 1]], fmt="%d %d %g")

    def measures(self, rows: Array) -> dict[str, float]:
        """Return what is said of coordinates (N, 2)."""
        if self.vectors is not None:
            found, _ = measure_layout(rows, self.vectors, labels=self.labels)
            return {name: found[name] for name in MEASURES if name in found}
        rng, edges = np.random.default_rng(99), self.edges
        drawn = rng.integers(len(edges.indices), size=LOSS_SAMPLES)
        negatives = rng.integers(edges.num_nodes, size=(LOSS_SAMPLES, 5))
        points = PointRows(np.ascontiguousarray(rows, np.float32).reshape(-1), 2, 2)
        ends = edges.sources[drawn], edges.indices[drawn], negatives
        return {
            "largevis_loss": layout_loss(points, points, *ends, LayoutObjective("largevis", gamma=7.0, epsilon=0.1))
        }


Side = Callable[[int], tuple[float, Array]]
"""Lays out by so many samples; returns CPU seconds, and coordinates (N, 2)."""


def engine_side(graph: Graph, name: str) -> Side:
    """Return a model of graphmill's."""
    options: Any = MODELS.config(name)

    def run(count: int) -> tuple[float, Array]:
        begin = time.process_time()
        rows = lay_out(graph.edges, options, graph.start, samples=count)
        return time.process_time() - begin, rows

    return run


def program_side(program: Path, folder: Path, threads: int) -> Side:
    """Return LargeVis' program over the graph in a folder."""

    def run(count: int) -> tuple[float, Array]:
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        options = {"fea": 0, "input": "graph.txt", "output": "out.txt", "threads": threads, "samples": count // MILLION}
        words = [str(word) for name, value in options.items() for word in (f"-{name}", value)]
        subprocess.run([program.resolve(), *words], cwd=folder, stdout=subprocess.DEVNULL, check=True)
        rows: NDArray[np.float64] = np.loadtxt(folder / "out.txt", skiprows=1)
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before, rows[np.argsort(rows[:, 0]), 1:]

    return run


def compare(sides: dict[str, Side], graph: Graph, rounds: int, samples: int) -> list[dict[str, Any]]:
    """Return a line for each side: its rate, the ratio to the program's, and what its coordinates are."""
    rates: dict[str, list[float]] = {name: [] for name in sides}
    measures: dict[str, dict[str, float]] = {}
    for _ in range(rounds):
        for name, run in sides.items():
            once, rows = run(samples)
            twice, _ = run(2 * samples)
            rates[name].append(samples / max(1e-9, twice - once))
            measures[name] = graph.measures(rows)
    peer = rates.get(PROGRAM)
    lines = []
    for name, own in rates.items():
        ratio = statistics.median(a / b for a, b in zip(own, peer, strict=True)) if peer else None
        rate = statistics.median(own) / MILLION
        lines.append({"side": name, "millions_a_cpu_second": rate, "ratio": ratio, **measures[name]})
    return lines


def print_table(lines: list[dict[str, Any]]) -> None:
    """Print lines for a README."""
    names = ["millions_a_cpu_second", "ratio", *(name for name in MEASURES if name in lines[0])]
    print(f"| side | {' | '.join(names)} |\n|{'---|' * (len(names) + 1)}")
    for line in lines:
        numbers = [f"{line[name]:.4g}" if line[name] is not None else "" for name in names]
        print(f"| {line['side']} | {' | '.join(numbers)} |")


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largevis", type=Path)
    parser.add_argument("--images", type=int)
    parser.add_argument("--nodes", type=int, default=20_000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--millions", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.nodes < 1000 or min(options.rounds, options.millions, options.threads) < 1:
        parser.error("give --nodes of 1000 or more, and --rounds, --millions and --threads of 1 or more")
    if options.images is not None and not 1000 <= options.images <= 10_000:
        parser.error("there are 10,000 test images: give --images from 1000 to 10000")
    if options.largevis is not None and not options.largevis.is_file():
        parser.error(f"--largevis {options.largevis} is no file: leave it out, or build the program as --help says")
    use_threads(options.threads)
    graph = Graph.of_images(options.images) if options.images else Graph.drawn(options.nodes)
    with tempfile.TemporaryDirectory() as name:
        sides: dict[str, Side] = {}
        if options.largevis is not None:
            graph.write(Path(name) / "graph.txt")
            sides[PROGRAM] = program_side(options.largevis, Path(name), options.threads)
        for model in MODEL_NAMES:
            sides[model] = engine_side(graph, model)
            sides[model](LOSS_SAMPLES)  # compiles
        lines = compare(sides, graph, options.rounds, options.millions * MILLION)
    print_table(lines)
    options.out.mkdir(parents=True, exist_ok=True)
    found = {"points": graph.edges.num_nodes, "threads": options.threads, "millions": options.millions, "lines": lines}
    (options.out / "layout.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
