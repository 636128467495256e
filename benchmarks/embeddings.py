"""How fast vectors of nodes are trained on CPUs, and walks drawn: against LINE, gensim, GRAPE (ensmallen) and pecanpy.

    python -m benchmarks.embeddings [--peers DIR] [--line PATH] [--graphs blogcatalog,100k,1.1m] [--rounds 5] [--quick]

Skip-gram of width 128 with 5 negatives a pair: millions of positive pairs a CPU second; walks of 40 nodes: millions of
nodes. Every contender is a process of its own with one thread; all do a piece of each job in turn, round after round
(A B C, then C B A), and a ratio is the median over rounds of the rates of one round. So other work on the machine slows
all of them alike. Beside that: what a second thread gives (wall-clock, so only an idle machine shows it), and the roof:
how many random rows of 512 bytes a loop that does nothing else reads and writes a second.

BlogCatalog is read from GRAPHMILL_DATA (default ../shared/data); the other graphs are generated and kept in --home.
Peers are optional: `python3 -m venv DIR && DIR/bin/pip install gensim pecanpy ensmallen numpy scipy`; LINE is built
from its authors' linux/line.cpp: `g++ -Ofast -march=native line.cpp -o line -lgsl -lgslcblas -lm -pthread`. The table,
embeddings.json and embeddings.png go to --out.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import csv

from benchmarks.embeddings_ours import GENERATED, make_recipe
from benchmarks.embeddings_peers import Done
from benchmarks.gnn_children import ContenderError
from benchmarks.gnn_graphs import prepare
from benchmarks.gnn_report import Head, Line, keep, machine, markdown, print_machine
from benchmarks.side_processes import Child, Side, measure, rates, ratio, raw_rounds, start_side
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home
from tasks.storage.manifests import PartitionManifest

RESULTS = Path(__file__).parent / "results"
LARGE = 500_000
"""Nodes of a graph on which peers' walks are left out, as they take minutes, and GRAPE trains on shorter ones."""


class Comparison(NamedTuple):
    measure: str
    ours: str
    peer: Side
    target: float | None = None
    """On graphs that are not large."""
    large_target: float | None = None


TRAINING = (
    Comparison("pairs of edges", "edges", ("LINE", "train"), 6, 5),
    Comparison("pairs of walks", "walks", ("gensim", "train"), 6, 5),
    Comparison("pairs of walks", "walks", ("ensmallen", "negatives of a pair"), 2.5, 2.5),
    Comparison("pairs of walks, 5 negatives a centre", "negatives shared", ("ensmallen", "negatives of a centre")),
)
WALKS = (
    Comparison("first-order walks", "first-order", ("pecanpy", "first-order"), 30),
    Comparison("first-order walks", "first-order", ("pecanpy", "first-order, loop alone")),
    Comparison("first-order walks", "first-order", ("ensmallen", "first-order"), 8),
    Comparison("node2vec walks", "node2vec", ("pecanpy", "node2vec"), 30),
    Comparison("node2vec walks", "node2vec", ("pecanpy", "node2vec, loop alone")),
    Comparison("node2vec walks", "node2vec", ("ensmallen", "node2vec"), 15),
)
ALONE = ("walks", "walks, 2 threads", "edges", "first-order", "node2vec", "roof")
"""Jobs of ours that are measured without peers too."""


class LineProgram:
    """LINE's own program. It says how many CPU seconds its training took, without what it reads and sets up."""

    def __init__(self, program: Path, folder: Path, options: dict[str, Any], millions: int) -> None:
        self.name, self.folder, self.millions = "LINE", folder, millions
        values = {"train": "edges.tsv", "output": os.devnull, "binary": 1, "size": options["dim"], "order": 2}
        values |= {"negative": options["negatives"], "samples": millions, "threads": 1}
        words = [word for name, value in values.items() for word in (f"-{name}", str(value))]
        self.command = [str(program.resolve()), *words]

    def run(self, job: str, seconds: float) -> Done:
        ended = subprocess.run(self.command, cwd=self.folder, capture_output=True, text=True)
        found = re.search(r"Total time: ([\d.]+)", ended.stdout)
        if found is None:
            raise ContenderError(f"LINE: it ended with {ended.returncode}: {ended.stderr[-200:]}")
        return Done(1e6 * self.millions, float(found[1]), float(found[1]))


class Graph:
    """A prepared graph, and files of it that peers read."""

    def __init__(self, name: str, options: dict[str, Any], home: Home, work: Path) -> None:
        self.name, self.folder, self.files = name, prepare(make_recipe(name, options), home), work / name
        self.files.mkdir()
        manifest = PartitionManifest.model_validate_json((self.folder / "manifest.json").read_text())
        store = GraphStore.open(self.folder)
        self.indptr, self.indices = np.asarray(store["csr_indptr"]), np.asarray(store["csr_indices"])
        self.num_nodes = manifest.num_nodes

    def write_files(self) -> None:
        """Write graph.npz and edges.tsv: see `embeddings_peers`."""
        weights = np.ones(len(self.indices), np.float32)
        np.savez(self.files / "graph.npz", indptr=self.indptr, indices=self.indices, data=weights)
        sources = np.repeat(np.arange(self.num_nodes), np.diff(self.indptr))
        edges = pa.table({"u": sources, "v": self.indices, "w": np.ones(len(sources), np.int8)})
        csv.write_csv(edges, self.files / "edges.tsv", csv.WriteOptions(include_header=False, delimiter="\t"))


def start(stack: ExitStack, graph: Graph, args: argparse.Namespace, facts: dict[str, Any]) -> dict[str, Any]:
    """Start contenders; those that are not there are left out."""
    options = {name: getattr(args, name) for name in ("dim", "negatives", "length", "window", "p", "q")}
    is_large = graph.num_nodes >= LARGE
    words = [sys.executable, "-m", "benchmarks.embeddings_ours", graph.name, str(graph.folder)]
    ours = Child("graphmill", [*words, str(graph.files / "work"), json.dumps(options)], threads=2)
    found: dict[str, Any] = {"graphmill": stack.enter_context(ours)}
    if args.line is not None:
        found["LINE"] = LineProgram(args.line, graph.files, options, args.line_millions)
    if args.peers is not None:
        told = json.dumps({**options, "fit_length": min(args.length, 6 if is_large else 16)})
        script = Path(__file__).with_name("embeddings_peers.py")
        for name in ("gensim", "ensmallen") if is_large else ("gensim", "ensmallen", "pecanpy"):
            command = [str(args.peers.absolute() / "bin" / "python"), str(script), name, str(graph.files), told]
            side = start_side(stack, name, command)
            if side is not None:
                found[name] = side
                facts["versions"].update(side.versions)
    return found


def compare(graph: Graph, found: dict[Side, list[Done]], args: argparse.Namespace) -> list[Line]:
    """Lines of the table: peers, the second thread, the roof."""
    lines = []
    for c in (*TRAINING, *WALKS):
        ours = ("graphmill", c.ours)
        if ours not in found or c.peer not in found:
            continue
        target = c.large_target if graph.num_nodes >= LARGE else c.target
        mine, theirs = rates(found[ours]), rates(found[c.peer])
        head = Head(graph.name, c.measure, "graphmill", f"{c.peer[0]}, {c.peer[1]}".removesuffix(", train"), target)
        middle = statistics.median(mine), statistics.median(theirs)
        lines.append(Line(head, ratio(mine, theirs), None, *middle, "M/s", {"ours": mine, "peer": theirs}))
    own = {job: timings for (name, job), timings in found.items() if name == "graphmill"}
    one, two = own["walks"], own["walks, 2 threads"]
    head = Head(graph.name, "pairs of walks, wall-clock", "graphmill on 2 threads", "graphmill on 1", None)
    walls = rates(two, "wall"), rates(one, "wall")
    details = {"cpu_ratio": ratio(rates(two), rates(one))}
    lines.append(Line(head, ratio(*walls), None, *map(statistics.median, walls), "M/s", details))
    for job in ("edges", "walks"):
        rows = [rate * (args.negatives + 2) for rate in rates(own[job])]
        roof = rates(own["roof"])
        head = Head(graph.name, f"rows of pairs of {job}", "graphmill", "the roof of random rows", None)
        lines.append(Line(head, ratio(rows, roof), None, statistics.median(rows), statistics.median(roof), "M/s"))
    return lines


def run(name: str, args: argparse.Namespace, facts: dict[str, Any]) -> tuple[list[Line], dict[str, Any]]:
    """Measure all on one graph."""
    options = vars(args)
    with tempfile.TemporaryDirectory(prefix="graphmill-embeddings-") as work, ExitStack() as stack:
        graph = Graph(name, options, Home.open(args.home), Path(work))
        print(f"{name}: {graph.num_nodes:,} nodes, {len(graph.indices) // 2:,} undirected edges", flush=True)
        if args.line is not None or args.peers is not None:
            graph.write_files()
        contenders = start(stack, graph, args, facts)
        # A walk's loop is short: peers take turns with ours, whose caches the last one emptied.
        plans = (TRAINING, ("walks", "walks, 2 threads", "edges", "roof")), (WALKS, ("first-order", "node2vec"))
        found: dict[Side, list[Done]] = {}
        for comparisons, alone in plans:
            asked = [("graphmill", job) for job in alone]
            for c in comparisons:
                if c.peer[0] in contenders and not (comparisons is WALKS and graph.num_nodes >= LARGE):
                    asked += [("graphmill", c.ours), c.peer]
            found |= measure(contenders, list(dict.fromkeys(asked)), args.rounds, args.seconds)
    for (contender, job), timings in found.items():
        print(f"  {contender}, {job}: {statistics.median(rates(timings)):.3g} M a CPU second", flush=True)
    return compare(graph, found, args), raw_rounds(found)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", default="blogcatalog,100k,1.1m", help=f"of blogcatalog, {', '.join(GENERATED)}")
    parser.add_argument("--peers", type=Path, help="a Python environment that has gensim, pecanpy, ensmallen")
    parser.add_argument("--line", type=Path, help="LINE's program")
    parser.add_argument("--line-millions", type=int, default=2, help="samples of a round of LINE")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of a round of what can be cut as one likes")
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--negatives", type=int, default=5)
    parser.add_argument("--window", type=int, default=5)
    parser.add_argument("--length", type=int, default=40, help="nodes of a walk")
    parser.add_argument("--p", type=float, default=4.0, help="of node2vec's walks")
    parser.add_argument("--q", type=float, default=2.0, help="likewise")
    parser.add_argument("--home", type=Path, default=RESULTS / "home", help="where prepared graphs are kept")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--quick", action="store_true", help="a graph of 10 k nodes, 2 rounds of 0.3 seconds")
    args = parser.parse_args(arguments)
    if args.quick:
        args.graphs, args.rounds, args.seconds, args.line_millions = "10k", 2, 0.3, 1
    return args


def main(arguments: list[str] | None = None) -> None:
    args = parse(arguments)
    facts = machine()
    print_machine(facts)
    for missing in [name for name in ("peers", "line") if getattr(args, name) is None]:
        print(f"no --{missing}: left out")
    lines: list[Line] = []
    raw: dict[str, Any] = {}
    for name in args.graphs.split(","):
        found, raw[name] = run(name, args, facts)
        lines += found
        keep(args, "embeddings", facts, lines, raw=raw)
    print(markdown(lines))
    missed = [f"{line.head.graph}, {line.head.measure}, {line.head.peer}" for line in lines if line.verdict == "below"]
    print(f"below their targets: {'; '.join(missed)}" if missed else "every target is reached")
    print(f"versions: {facts['versions']}; written to {args.out}")


if __name__ == "__main__":
    main()
