"""How fast rows of knowledge graphs are trained on one CPU thread, against PyKEEN.

    python -m benchmarks.knowledge [--peers DIR] [--graph fb15k-237] [--models RotatE] [--negatives 64,256] [--rounds 5]
        [--quick]

TransE (l1, --width columns), ComplEx and RotatE (as many complex ones): training triples a CPU second, with so many
drawn entities each; drawing, scores, gradients and steps of Adagrad count, validation does not. Both sides are
processes of their own with one thread, try out sizes of batches, and train for some seconds in turn with the fastest; a
ratio is the median over rounds. graphmill draws for both ends of a triple and shares what it draws, PyKEEN draws for
each triple by itself and replaces either end: README.md says what that means for the lines of the table.

How fast trained models are ranked, in `benchmarks.ranking`, is the other half of this comparison. Triples are read from
GRAPHMILL_DATA (default ../shared/data). PyKEEN is optional: `pip install --target DIR --no-deps pykeen` and what it
asks for, without torch. The table, knowledge.json and knowledge.png go to --out.
"""

from __future__ import annotations

import argparse
import json
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
from benchmarks.knowledge_sides import BATCHES, PEER_NEGATIVES, PEERS, VARIANTS, job_name, make_recipe
from benchmarks.side_processes import Side, measure, names_of, own_command, rates, raw_rounds, side_lines, start_sides
from benchmarks.triple_models import DATA, MODELS
from tasks.storage.home import Home

TARGET = 30.0
COMPARISONS: tuple[tuple[str, str, float | None], ...] = (
    ("a triple", "PyKEEN", TARGET),
    ("a triple", "PyKEEN tuned", TARGET),
    *((variant, "PyKEEN tuned", None) for variant in VARIANTS if variant != "a triple"),
)
"""graphmill's variant, the peer and the target, which is that of as many negatives on both sides."""


def compare(graph: str, found: dict[Side, list[Done]], negatives: list[int], batches: dict[str, Any]) -> list[Line]:
    """Lines of the table; `batches`: the sizes that each side took."""
    lines: list[Line] = []
    for model, count, (variant, name, target) in product(MODELS, negatives, COMPARISONS):
        ours, peer = ("graphmill", job_name(model, count, variant)), (name, job_name(model, count))
        head = Head(graph, ours[1], "graphmill", name, target)
        taken = {"batch": batches["graphmill"].get(ours[1]), "peer_batch": batches.get(name, {}).get(peer[1])}
        lines += side_lines(found, ours, peer, head, "k/s", **taken)
    return lines


def side_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return what sides have to know."""
    options = {name: getattr(args, name) for name in ("graph", "width", "negatives")}
    options["triples"] = str(DATA / "knowledge" / args.graph)
    options["peers"] = None if args.peers is None else str(args.peers.absolute())
    options["batches"] = BATCHES[:1] if args.quick else BATCHES
    options["tried"] = PEER_NEGATIVES[:1] if args.quick else PEER_NEGATIVES
    return options


def run(args: argparse.Namespace, work: Path, facts: dict[str, Any]) -> tuple[list[Line], dict[str, Any]]:
    """Prepare the graph and measure all."""
    options = {**side_options(args), "work": str(work)}
    folder = prepare(make_recipe(options, "TransE"), Home.open(args.home))
    found: dict[Side, list[Done]] = {}
    with ExitStack() as stack:
        names = ("graphmill", *PEERS) if args.peers is not None else ("graphmill",)
        commands = {name: own_command("benchmarks.knowledge_sides", name, folder, options) for name in names}
        sides = start_sides(stack, commands, facts, as_usual="PyKEEN")
        for model, count in product(args.models, args.negatives):
            jobs = [("graphmill", job_name(model, count, variant)) for variant in VARIANTS]
            jobs += [(name, job_name(model, count)) for name in PEERS]
            some = measure(sides, [job for job in jobs if job[0] in sides], args.rounds, args.seconds)
            for (name, job), timings in some.items():
                cpu, wall = (statistics.median(rates(timings, clock, 1e3)) for clock in ("cpu", "wall"))
                print(f"  {name}, {job}: {cpu:.4g} k triples a CPU second, {wall:.4g} k a second", flush=True)
            found |= some
    written = {name: work / f"{name}.json" for name in ("graphmill", *PEERS)}
    batches = {name: json.loads(path.read_text()) for name, path in written.items() if path.exists()}
    return compare(args.graph, found, args.negatives, batches), {"batches": batches, "raw": raw_rounds(found)}


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", default="fb15k-237", help="a folder of GRAPHMILL_DATA/knowledge")
    parser.add_argument("--peers", type=Path, help="a folder that has pykeen")
    parser.add_argument("--models", type=names_of(MODELS), default=MODELS, help="of TransE,ComplEx,RotatE")
    parser.add_argument("--negatives", type=even_numbers, default="64,256", help="drawn entities of a triple")
    parser.add_argument("--width", type=int, default=200, help="columns, real or complex")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="of a round")
    parser.add_argument("--home", type=Path, default=RESULTS / "home", help="where prepared graphs are kept")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument(
        "--quick", action="store_true", help="64 negatives, 2 rounds of 0.3 seconds, one size of batches"
    )
    args = parser.parse_args(arguments)
    if args.quick:
        args.negatives, args.rounds, args.seconds = [64], 2, 0.3
    return args


def even_numbers(text: str) -> list[int]:
    """Read `64,256`."""
    try:
        found = [int(count) for count in text.split(",")]
    except ValueError:
        found = []
    if not found or any(count < 2 or count % 2 for count in found):
        raise argparse.ArgumentTypeError(f"{text!r} are not even numbers as in 64,256; half is drawn for each end")
    return found


def main(arguments: list[str] | None = None) -> None:
    args = parse(arguments)
    facts = machine()
    print_machine(facts)
    if args.peers is None:
        print("no --peers: left out")
    with tempfile.TemporaryDirectory(prefix="graphmill-knowledge-") as work:
        lines, raw = run(args, Path(work), facts)
    keep(args, "knowledge", facts, lines, **raw)
    print(markdown(lines))
    print(f"versions: {facts['versions']}; written to {args.out}")


if __name__ == "__main__":
    main()
