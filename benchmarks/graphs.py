"""How fast models of whole graphs train on one CPU thread, against PyG.

    python -m benchmarks.graphs [--peers DIR] [--graphs ogbg-molhiv] [--models GIN,DeeperGCN] [--rounds 7] [--quick]

Molecules in batches of 32: GIN with five layers of 300 columns, dropout 0.5, Adam at 0.001, without and with virtual
nodes, as in OGB's examples, and DeeperGCN with seven res+ layers of 256 and softmax aggregation, as its authors train
it. Making batches, forward and backward passes and the optimizer's steps count. Each side is a process of its own with
one thread and takes steps for some seconds in turn; a ratio is the median over rounds, of CPU time.

`PyG` is what comes of its defaults; `PyG tuned` has memory that malloc keeps, as graphmill's workers do, and autocast
for bfloat16. Both shares of graphmill are compared with `PyG`'s float32. PyG is optional: `pip install --target DIR
--no-deps torch-geometric xxhash`. The table, graphs.json and graphs.png go to --out.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.embeddings import RESULTS
from benchmarks.embeddings_peers import Done
from benchmarks.gnn_graphs import prepare
from benchmarks.gnn_report import Head, Line, keep, machine, markdown, print_machine
from benchmarks.graphs_sides import MODELS, PEERS, PRECISIONS, job_name, make_recipe
from benchmarks.side_processes import Side, measure, names_of, own_command, rates, raw_rounds, side_lines, start_sides
from tasks.storage.home import Home

COMPARISONS: tuple[tuple[str, str, str, float | None], ...] = (
    ("float32", "PyG", "float32", 1.4),
    ("float32", "PyG tuned", "float32", None),
    ("bfloat16", "PyG", "float32", 2.2),
    ("bfloat16", "PyG tuned", "bfloat16", None),
)
"""graphmill's precision, the peer, its precision, the target."""


def compare(graphs: str, found: dict[Side, list[Done]], models: list[str]) -> list[Line]:
    """Lines of the table."""
    lines: list[Line] = []
    for model, (precision, name, theirs, target) in product(models, COMPARISONS):
        ours, peer = ("graphmill", job_name(model, precision)), (name, job_name(model, theirs))
        head = Head(graphs, ours[1], "graphmill", f"{name}, {theirs}", target)
        lines += side_lines(found, ours, peer, head, "ms")
    return lines


def run(args: argparse.Namespace, work: Path, facts: dict[str, Any]) -> tuple[list[Line], dict[str, Any]]:
    """Prepare the graphs and measure all."""
    options = {"graphs": args.graphs, "models": args.models, "work": str(work)}
    options["peers"] = None if args.peers is None else str(args.peers.absolute())
    folder = prepare(make_recipe(args.graphs, "GIN", "float32"), Home.open(args.home))
    found: dict[Side, list[Done]] = {}
    with ExitStack() as stack:
        names = ("graphmill", *PEERS) if args.peers is not None else ("graphmill",)
        commands = {name: own_command("benchmarks.graphs_sides", name, folder, options) for name in names}
        sides = start_sides(stack, commands, facts, as_usual="PyG")
        for model in args.models:
            jobs = [(name, job_name(model, kind)) for kind in PRECISIONS for name in ("graphmill", *PEERS)]
            jobs = [job for job in jobs if job[0] in sides and job != ("PyG", job_name(model, "bfloat16"))]
            some = measure(sides, jobs, args.rounds, args.seconds)
            for (name, job), timings in some.items():
                cpu, wall = (1000 / statistics.median(rates(timings, clock, 1.0)) for clock in ("cpu", "wall"))
                print(f"  {name}, {job}: {cpu:.4g} ms a step of CPU time, {wall:.4g} ms", flush=True)
            found |= some
    return compare(args.graphs, found, args.models), {"raw": raw_rounds(found)}


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", default="ogbg-molhiv", help="a set of OGB's molecules in GRAPHMILL_DATA/ogb")
    parser.add_argument("--peers", type=Path, help="a folder that has torch_geometric")
    parser.add_argument("--models", type=names_of(MODELS), default=list(MODELS), help=f"of {','.join(MODELS)}")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3.0, help="of a round")
    parser.add_argument("--home", type=Path, default=RESULTS / "home", help="where prepared graphs are kept")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--quick", action="store_true", help="2 rounds of 0.3 seconds")
    args = parser.parse_args(arguments)
    if args.quick:
        args.rounds, args.seconds = 2, 0.3
    return args


def main(arguments: list[str] | None = None) -> None:
    args = parse(arguments)
    facts = machine()
    print_machine(facts)
    if args.peers is None:
        print("no --peers: left out")
    with tempfile.TemporaryDirectory(prefix="graphmill-graphs-") as work:
        lines, raw = run(args, Path(work), facts)
    keep(args, "graphs", facts, lines, **raw)
    print(markdown(lines))
    print(f"versions: {facts['versions']}; written to {args.out}")


if __name__ == "__main__":
    main()
