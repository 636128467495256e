"""How fast batches of a graph of several node types are sampled on one CPU thread, against DGL, PyG and GraphBolt.

    python -m benchmarks.relational_sampling [--peers DIR] [--graphbolt PYTHON] [--scale 1] [--rounds 9]

The graph is a generated shop: customers, products, orders and reviews, five relations and their reverses, 10.6 M edges,
in-degrees by a power law, a time on each edge. Batches of 1,024 customers, fan-out 15,10 of each relation, without
times, as of a moment of its own for each seed, and the newest edges as of it. Each side is a process of its own with
one thread and samples for about a second in turn; a ratio is the median over rounds, of CPU time. Before that, the
numbers of edges of each relation and hop are compared.

DIR has torch_geometric, its dependency xxhash and pyg-lib, for the Python that runs this. PYTHON has dgl and a torch
that its graphbolt was made for (2.0 to 2.2). Both are optional. The table and relational.json go to --out.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.embeddings import RESULTS
from benchmarks.embeddings_peers import Done
from benchmarks.gnn_report import Head, Line, keep, machine, markdown, print_machine
from benchmarks.relational_graph import save, shop
from benchmarks.relational_peers import ANY, AS_OF, RECENT
from benchmarks.side_processes import Side, measure, own_command, raw_rounds, side_lines, start_sides

COMPARISONS: tuple[tuple[str, str, float | None], ...] = (
    (ANY, "DGL", 4.0),
    (ANY, "PyG", 6.0),
    (ANY, "GraphBolt", None),
    (AS_OF, "PyG", 6.0),
    (AS_OF, "GraphBolt", None),
    (RECENT, "PyG", 6.0),
)
"""What is sampled, the peer, the target."""
_FEW = 2000


def commands(args: argparse.Namespace, folder: Path) -> dict[str, list[str]]:
    """What starts each side."""
    found = {name: own_command("benchmarks.relational_sides", name, folder, {}) for name in ("graphmill", "DGL")}
    if args.peers is not None:
        options = {"peers": str(args.peers.absolute())}
        found["PyG"] = own_command("benchmarks.relational_peers", "PyG", folder, options)
    if args.graphbolt is not None:
        command = own_command("benchmarks.relational_peers", "GraphBolt", folder, {})
        found["GraphBolt"] = [str(args.graphbolt.absolute()), *command[1:]]
    return found


def compare_counts(folder: Path, sides: dict[str, Any]) -> dict[str, dict[str, list[float]]]:
    """Return each peer's edges over graphmill's, by kind and hop. Raises ValueError where hop 1 or a relation differs.

    The first hop is the same work for all: each relation has as many edges, but for what is drawn.
    """
    for side in sides.values():
        side.run("check", 0.0)
    found = {name: json.loads((folder / f"{name}.json").read_text()) for name in sides}
    shares: dict[str, dict[str, list[float]]] = {}
    for name, kinds in found.items():
        for kind, counts in kinds.items():
            mine = found["graphmill"][kind]
            sums = [[sum(hops) for hops in zip(*one.values(), strict=True)] for one in (counts, mine)]
            shares.setdefault(kind, {})[name] = [theirs / ours for theirs, ours in zip(*sums, strict=True)]
            for relation, hops in counts.items():
                ours = mine[relation][0]
                if hops[0] != ours:
                    raise ValueError(f"{name}, {kind}: {hops[0]} edges of {relation} at the seeds, graphmill {ours}")
                if ours > _FEW and abs(hops[1] / max(1, mine[relation][1]) - 1) > 0.1:
                    print(f"  {name}, {kind}: {hops[1]} edges of {relation} at hop 2, graphmill {mine[relation][1]}")
    return shares


def compare(found: dict[Side, list[Done]], shares: dict[str, dict[str, list[float]]]) -> list[Line]:
    """Lines of the table."""
    lines: list[Line] = []
    for kind, name, target in COMPARISONS:
        head, edges = Head("shop", kind, "graphmill", name, target), shares[kind].get(name)
        lines += side_lines(found, ("graphmill", kind), (name, kind), head, "ms", edges=edges)
    return lines


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, help="a folder that has torch_geometric and pyg_lib")
    parser.add_argument("--graphbolt", type=Path, help="a Python that has dgl and a torch of its time")
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of edges")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a round")
    parser.add_argument("--out", type=Path, default=RESULTS)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    args = parse(arguments)
    facts = machine()
    print_machine(facts)
    lines: list[Line] = []
    raw: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="graphmill-relational-") as work, ExitStack() as stack:
        folder = Path(work)
        save(folder / "shop.npz", shop(args.scale))
        sides = start_sides(stack, commands(args, folder), facts, keep="graphmill")
        if "graphmill" not in sides:
            sys.exit("graphmill's own side did not come up")
        shares = compare_counts(folder, sides)
        for kind in (ANY, AS_OF, RECENT):
            jobs = [(name, kind) for name in sides if name in shares[kind]]
            found = measure(sides, jobs, args.rounds, args.seconds)
            lines += compare(found, shares)
            raw |= raw_rounds(found)
    keep(args, "relational", facts, lines, raw=raw)
    for kind, peers in shares.items():
        for name, hops in peers.items():
            if name != "graphmill":
                print(f"{kind}: {name} has {', '.join(f'{share:.3f}' for share in hops)} of graphmill's edges by hop")
    print(markdown(lines))
    print(f"written to {args.out}")


if __name__ == "__main__":
    main()
