"""How fast knowledge graphs are trained on a CPU thread, against PyKEEN.

    python -m benchmarks.knowledge [--peers DIR] [--graph fb15k-237] [--negatives 64,256] [--rounds 5] [--quick]

TransE (l1, --width columns), ComplEx and RotatE (as many complex ones): triples a second, negatives drawn, scored and
learnt from, every step of the optimizer taken. graphmill asks for both ends of a triple, with so many negatives each,
which a batch shares; PyKEEN replaces one end of a triple, so many times. Both run on one thread, in turn, each in a
process of its own; a ratio is the median over rounds. Lines without a target are graphmill against itself: products in
bfloat16, and negatives that 64 triples share.

How fast trained models are ranked is in `benchmarks.ranking`. Triples are read from GRAPHMILL_DATA (default
../shared/data). PyKEEN is optional: `pip install --target DIR --no-deps pykeen` and what it asks for, without torch.
The table, knowledge.json and knowledge.png go to --out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.embeddings import RESULTS, Child, LeftOutError, Side, measure, ratio
from benchmarks.embeddings_peers import Done
from benchmarks.gnn_graphs import prepare
from benchmarks.gnn_report import Head, Line, draw, machine, markdown, print_machine
from benchmarks.knowledge_sides import KINDS, MODELS, make_recipe
from tasks.storage.home import Home

TARGET = 30.0


def rates(timings: list[Done], clock: str) -> list[float]:
    """Triples a second, by round."""
    return [timing.done / max(getattr(timing, clock), 1e-9) for timing in timings]


def start(stack: ExitStack, folder: Path, options: dict[str, Any], peers: Path | None) -> dict[str, Child]:
    """Start both sides; PyKEEN only where it is."""
    found: dict[str, Child] = {}
    for name in ("graphmill", "pykeen"):
        if name == "pykeen" and peers is None:
            print("no --peers: left out")
            continue
        told = {**options, "peers": None if peers is None else str(peers.absolute())}
        command = [sys.executable, "-m", "benchmarks.knowledge_sides", name, str(folder), json.dumps(told)]
        try:
            found[name] = stack.enter_context(Child(name, command))
        except LeftOutError as error:
            print(f"  left out: {error}", flush=True)
    return found


def compare(graph: str, found: dict[Side, list[Done]], negatives: list[int]) -> list[Line]:
    """Lines of the table."""

    def line(measure: str, mine: Side, theirs: Side, peer: str, target: float | None) -> Line:
        walls, cpus = ([rates(found[side], clock) for side in (mine, theirs)] for clock in ("wall", "cpu"))
        head = Head(graph, measure, "graphmill", peer, target)
        middle = statistics.median(cpus[0]), statistics.median(cpus[1])
        # Cores are shared: the CPU's time decides.
        return Line(head, ratio(*cpus), ratio(*cpus), *middle, "/s", {"wall_ratio": ratio(*walls)})

    lines = []
    for model in MODELS:
        for count in negatives:
            job = f"{model}, {count}"
            ours = "graphmill", job
            if ("pykeen", job) in found:
                lines.append(line(f"{job} negatives", ours, ("pykeen", job), "PyKEEN", TARGET))
            for kind in KINDS:
                if kind and ("graphmill", job + kind) in found:
                    lines.append(line(f"{job} negatives{kind}", ("graphmill", job + kind), ours, "as it is", None))
    return lines


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", default="fb15k-237", help="a folder of GRAPHMILL_DATA/knowledge")
    parser.add_argument("--peers", type=Path, help="a folder that has pykeen")
    parser.add_argument("--negatives", default="64,256", help="entities that a true one is compared with")
    parser.add_argument("--width", type=int, default=200, help="columns, real or complex")
    parser.add_argument("--batch", type=int, default=512, help="triples of graphmill's batches")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="of a round")
    parser.add_argument("--home", type=Path, default=RESULTS / "home", help="where prepared graphs are kept")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--quick", action="store_true", help="one number of negatives, 2 rounds of 0.3 seconds")
    args = parser.parse_args(arguments)
    if args.quick:
        args.negatives, args.rounds, args.seconds = "64", 2, 0.3
    args.negatives = [int(count) for count in args.negatives.split(",")]
    return args


def main(arguments: list[str] | None = None) -> None:
    args = parse(arguments)
    facts = machine()
    print_machine(facts)
    args.out.mkdir(parents=True, exist_ok=True)
    options = {name: getattr(args, name) for name in ("graph", "width", "batch", "negatives")}
    folder = prepare(make_recipe(args.graph, "ComplEx", options), Home.open(args.home))
    with tempfile.TemporaryDirectory(prefix="graphmill-knowledge-") as work, ExitStack() as stack:
        sides = start(stack, folder, {**options, "work": work}, args.peers)
        for side in sides.values():
            facts["versions"].update(side.versions)
        found: dict[Side, list[Done]] = {}
        for model in MODELS:
            for count in args.negatives:
                job = f"{model}, {count}"
                kinds = [kind for kind in KINDS if "bfloat16" not in kind or model == "ComplEx"]
                asked = [("graphmill", job + kind) for kind in kinds]
                asked += [("pykeen", job)] if "pykeen" in sides else []
                found |= measure(sides, asked, args.rounds, args.seconds)
    for (name, job), timings in found.items():
        print(f"  {name}, {job}: {statistics.median(rates(timings, 'cpu')):,.0f} triples a CPU second", flush=True)
    lines = compare(args.graph, found, args.negatives)
    raw = {f"{name}, {job}": [done._asdict() for done in timings] for (name, job), timings in found.items()}
    told = {name: str(value) for name, value in vars(args).items()}
    content = {"machine": facts, "options": told, "lines": [line.as_json() for line in lines], "raw": raw}
    (args.out / "knowledge.json").write_text(json.dumps(content, indent=1))
    draw(args.out / "knowledge.png", lines)
    print(markdown(lines))
    print(f"written to {args.out}")


if __name__ == "__main__":
    main()
