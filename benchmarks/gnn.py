"""How fast the training engine is: graphmill against DGL, PyG and plain torch, on the same graphs.

    python -m benchmarks.gnn [--graphs debdeps,synthetic] [--parts minibatch,operators,accuracy] [--rounds 7] [--quick]

GraphSAGE with 3 layers, hidden 256, fan-out 15,10,5, batch 1024. Every contender is a process of its own, so that
environment, allocator, threads and peak memory are its own; they run chunks of steps in turn (A B C, then C B A, ...)
and a ratio is the median over rounds of seconds by the same round's seconds. Wall-clock ratios are what a user sees on
an idle machine; on a busy one trust the CPU ratios. graphmill's steps are those of `graphmill run` (loop, pipeline and
journal included). Idle OpenMP threads sleep soon, for all contenders alike: nobody's spinning counts as another's work.

Graphs are prepared once and kept in --home (default GRAPHMILL_HOME, else .graphmill). Raw data of debdeps is read from
GRAPHMILL_DATA (default ../shared/data). PyG is optional: `pip install -e .[bench]`; its loader needs pyg-lib or
torch-sparse besides. The table, gnn.json and gnn.png go to --out.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil

from benchmarks.gnn_children import Child, ContenderError, Entry, Side, Timing, interleave
from benchmarks.gnn_graphs import GRAPHS, graph_recipe, prepare
from benchmarks.gnn_plan import (
    MEMORY,
    MINI_BATCH,
    OPERATORS,
    Comparison,
    mini_batch_entries,
    operator_bytes,
    operator_entries,
)
from benchmarks.gnn_report import Head, Line, machine, markdown, memory_line, print_machine, timing_line, write
from benchmarks.gnn_worker import Arrays, Settings
from tasks.storage.home import Home

PARTS = ("minibatch", "operators", "accuracy")
_LEAD_IN = 5  # graphmill's look-ahead and the step that a chunk begins in


class Benchmark:
    """One run: what was asked, and the lines so far."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.out: Path = args.out
        self.out.mkdir(parents=True, exist_ok=True)
        self.home = Home.open(args.home)
        self.lines: list[Line] = []
        self.facts = machine()
        self.raw: dict[str, Any] = {}

    def settings(self, folder: Path, entry: Entry, **changes: Any) -> Settings:
        values: dict[str, Any] = {
            "threads": self.args.threads,
            "fanout": tuple(self.args.fanout),
            "batch_size": self.args.batch_size,
            "hidden_dim": self.args.hidden,
        }
        return Settings(graph=str(folder), options=entry.options, **{**values, **changes})

    def start(
        self, stack: ExitStack, graph: str, entries: list[Entry], folder: Path, **changes: Any
    ) -> dict[str, Child]:
        """Start contenders; one that does not come up is left out, and said so."""
        children = {}
        for entry in entries:
            if self.args.contenders and not any(word in entry.name.lower() for word in self.args.contenders):
                continue
            log = self.out / "logs" / f"{graph} {entry.name} {entry.kind.rpartition(':')[2]}.log"
            log.parent.mkdir(exist_ok=True)
            try:
                child = Child(entry, self.settings(folder, entry, **changes), log)
            except ContenderError as error:
                print(f"  left out: {error}", file=sys.stderr, flush=True)
                continue
            self.facts["versions"].update(child.versions)
            children[entry.name] = stack.enter_context(child)
        return children

    def keep(self) -> None:
        """Write what there is: an interrupted run has its lines so far."""
        options = {name: str(value) if isinstance(value, Path) else value for name, value in vars(self.args).items()}
        write(self.out, self.facts, {**options, "raw": self.raw}, self.lines)

    # ---- mini-batches

    def mini_batches(self, graph: str, folder: Path) -> None:
        """Sampling, gathering, training steps, peak memory: against DGL, then against PyG, whose graphs are large."""
        for library in ("DGL", "PyG"):
            comparisons = [c for c in MINI_BATCH if c.peer[0].startswith(library)]
            sides = list(dict.fromkeys(side for c in comparisons for side in (c.ours, c.peer)))
            entries = [entry for entry in mini_batch_entries(graph) if entry.name in {name for name, _ in sides}]
            with ExitStack() as stack:
                children = self.start(stack, graph, entries, folder)
                timings: dict[Side, Timing] = {}
                for job in ("sample", "gather", "train"):
                    present = [(children[n], what) for n, what in sides if n in children and what.startswith(job)]
                    print(f"  {job}: {', '.join(f'{child.entry.name} {what}' for child, what in present)}", flush=True)
                    lead_in = {name: _LEAD_IN for name in children if name.startswith("graphmill") and job == "train"}
                    timings |= interleave(present, self.args.rounds, self.args.chunk_seconds, lead_in)
                alive = {name for name, job in timings if job.startswith("train")}
                memory = {name: children[name].ask("memory") for name in alive}
            self.raw[f"{graph} minibatch {library}"] = {
                "timings": {" ".join(side): timing.as_json() for side, timing in timings.items()},
                "memory": memory,
            }
            self._mini_batch_lines(graph, folder, comparisons, timings)
            self._memory_lines(graph, library, memory)

    def _mini_batch_lines(
        self, graph: str, folder: Path, comparisons: list[Comparison], timings: dict[Side, Timing]
    ) -> None:
        steps = -(-Arrays(str(folder)).manifest["splits"]["train"] // self.args.batch_size)
        for c in comparisons:
            if c.ours in timings and c.peer in timings:
                head = Head(graph, c.measure, c.ours[0], c.peer[0], c.target)
                line = timing_line(head, timings[c.ours], timings[c.peer])
                if c.ours[1] == "train":
                    line.details["steps_an_epoch"] = steps
                self.lines.append(line)

    def _memory_lines(self, graph: str, library: str, memory: dict[str, dict[str, int]]) -> None:
        for c in MEMORY:
            if c.peer[0].startswith(library) and c.ours[0] in memory and c.peer[0] in memory:
                head = Head(graph, c.measure, c.ours[0], c.peer[0], c.target)
                self.lines.append(memory_line(head, memory[c.ours[0]], memory[c.peer[0]], "beyond_imports"))

    # ---- operators on the whole graph

    def operators(self, graph: str, folder: Path) -> None:
        """GCN's aggregation, GAT's operator and epoch: seconds, and memory beyond graph and inputs."""
        arrays = Arrays(str(folder))
        width = self.args.width
        for job, entries in operator_entries(width, graph, self.args.device).items():
            fitting = []
            for entry in entries:
                need = operator_bytes(job, entry.name, arrays.num_nodes, arrays.manifest["num_edges"], width)
                if need > 0.6 * psutil.virtual_memory().available:
                    print(f"  {job}: {entry.name} left out, needs about {need / 1e9:.0f} GB", flush=True)
                else:
                    fitting.append(entry)
            self._operator(graph, folder, job, fitting)
            self.keep()

    def _operator(self, graph: str, folder: Path, job: str, entries: list[Entry]) -> None:
        with ExitStack() as stack:
            children = self.start(stack, graph, entries, folder, device=self.args.device)
            print(f"  {job}: {', '.join(children)}", flush=True)
            memory = {}
            # The training's thread has begun before a child is ready: its first step is what memory is taken of.
            for name, child in list(children.items()):
                try:
                    child.ask("reset_memory")
                    child.run("train" if "train" in child.jobs else job, 1)
                    memory[name] = child.ask("memory")
                except ContenderError as error:
                    print(f"  left out: {error}", file=sys.stderr, flush=True)
                    del children[name]
            sides = [(child, "train" if "train" in child.jobs else job) for child in children.values()]
            measured = interleave(sides, self.args.rounds, self.args.chunk_seconds)
            timings = {name: timing for (name, _), timing in measured.items()}
            extra = {}
            if self.args.device == "cuda" and job == "aggregate":
                extra = self._bandwidth(children, timings)
        self.raw[f"{graph} {job}"] = {
            "timings": {name: timing.as_json() for name, timing in timings.items()},
            "memory": memory,
            **extra,
        }
        what = "beyond_imports" if job == "epoch" else "beyond_reset"
        if self.args.device == "cuda":
            what = "device_peak"
        for c in OPERATORS:
            if c.job != job or c.ours not in timings or c.peer not in timings:
                continue
            head = Head(graph, c.measure, c.ours, c.peer, c.faster)
            self.lines.append(timing_line(head, timings[c.ours], timings[c.peer]))
            if c.smaller is not None:
                head = Head(graph, f"{c.measure}, memory", c.ours, c.peer, c.smaller)
                self.lines.append(memory_line(head, memory[c.ours], memory[c.peer], what))

    def _bandwidth(self, children: dict[str, Child], timings: dict[str, Timing]) -> dict[str, Any]:
        """Which share of the device's copy bandwidth our product reached, rows counted once for each edge."""
        copy = children["torch.sparse"].ask("bandwidth")["bytes_per_second"]
        shares = {}
        for name, child in children.items():
            if name.startswith("graphmill"):
                moved = child.ask("traffic")["bytes"]
                shares[name] = moved / statistics.median(timings[name].wall) / copy
                print(f"  {name}: {100 * shares[name]:.0f} % of the copy bandwidth ({copy / 1e9:.0f} GB/s)", flush=True)
        return {"copy_bytes_per_second": copy, "bandwidth_share": shares}

    # ---- accuracy

    def accuracy(self, graph: str, folder: Path) -> None:
        """Test accuracy after the same number of epochs, graphmill's variants against DGL; means over seeds."""
        epochs, found = self.args.epochs, {}
        for entry in mini_batch_entries(graph):
            if entry.name in ("PyG", "DGL tuned"):
                continue
            if entry.name.startswith("graphmill"):
                entry = Entry(entry.name, entry.kind, {**entry.options, "epochs": epochs}, entry.environment)
            values = []
            for seed in range(self.args.seeds):
                with ExitStack() as stack:
                    children = self.start(stack, graph, [entry], folder, seed=seed)
                    values += [child.ask("fit", epochs=epochs)["accuracy"] for child in children.values()]
            if values:
                found[entry.name] = values
                print(f"  {entry.name}: {', '.join(f'{value:.4f}' for value in values)}", flush=True)
        self.raw[f"{graph} accuracy"] = found
        peer = statistics.mean(found.get("DGL", [0.0]))
        for name, values in found.items():
            if peer and name != "DGL":
                mine = statistics.mean(values)
                head = Head(graph, f"test accuracy after {epochs} epochs", name, "DGL", 1 - 0.005 / peer)
                details = {"ours": values, "peer": found["DGL"]}
                self.lines.append(Line(head, mine / peer, None, mine, peer, "", details))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ", ".join(GRAPHS)
    parser.add_argument("--graphs", default=",".join(GRAPHS), help=f"of {names}, or YAML files of recipes")
    parser.add_argument("--parts", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--contenders", default="", help="only those whose names hold one of these words")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--chunk-seconds", type=float, default=2.0, help="about how long each runs in a round")
    parser.add_argument("--threads", type=int, default=2, help="cores and threads of each contender")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--fanout", default="15,10,5", help="from the seeds outwards, one a layer")
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--width", type=int, default=128, help="columns of the operators' input (GAT: twice as many)")
    parser.add_argument("--epochs", type=int, default=7, help="of the accuracy part")
    parser.add_argument("--seeds", type=int, default=3, help="of the accuracy part")
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cpu", help="of the operators; not yet run on cuda"
    )
    parser.add_argument("--home", type=Path, default=None, help="where prepared graphs are kept")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "gnn")
    parser.add_argument(
        "--quick", action="store_true", help="debdeps only, 3 rounds of half a second, no accuracy part"
    )
    args = parser.parse_args()
    if args.quick:
        args.graphs, args.parts, args.rounds, args.chunk_seconds = "debdeps", "minibatch,operators", 3, 0.5
    args.graphs, args.parts = args.graphs.split(","), args.parts.split(",")
    args.contenders = [word for word in args.contenders.lower().split(",") if word]
    args.fanout = [int(number) for number in args.fanout.split(",")]
    unknown = set(args.parts) - set(PARTS)
    if unknown:
        parser.error(f"no parts {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    return args


def main() -> None:
    benchmark = Benchmark(parse())
    args = benchmark.args
    print_machine(benchmark.facts)
    for graph in args.graphs:
        began = time.perf_counter()
        folder = prepare(graph_recipe(graph), benchmark.home)
        manifest = Arrays(str(folder)).manifest
        print(
            f"{graph}: {manifest['num_nodes']:,} nodes, {manifest['num_edges'] // 2:,} undirected edges, "
            f"{manifest['feature_dim']} features (ready after {time.perf_counter() - began:.0f} s)",
            flush=True,
        )
        if "minibatch" in args.parts and args.device == "cpu":
            benchmark.mini_batches(graph, folder)
            benchmark.keep()
        if "operators" in args.parts:
            benchmark.operators(graph, folder)
            benchmark.keep()
        if "accuracy" in args.parts and graph != "synthetic" and args.device == "cpu":
            benchmark.accuracy(graph, folder)
            benchmark.keep()
    print(markdown(benchmark.lines))
    print(f"written to {args.out}")


if __name__ == "__main__":
    main()
