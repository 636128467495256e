"""How fast triples are ranked among all entities: filtered, heads and tails, against PyKEEN's RankBasedEvaluator.

    python -m benchmarks.ranking [--peers DIR] [--triples 512] [--rounds 3] [--large 5000000] [--quick]

Vectors of TransE (l1, 200 columns), ComplEx and RotatE (200 complex ones) for the entities of --graph, drawn and then
moved towards what their triples say, so that no two are alike. Both sides rank the first --triples of the test split,
on one thread and on two, in turn, each in a process of its own, filter and queries included; a ratio is the median
over rounds. Their MRR must be the same to 1e-6. Then all of the test split, by graphmill alone; ranks among 500
candidates of a triple's own, as OGB gives; and 5,000 queries among --large entities of 200 columns that are read from
a file (4 GB for 5 million, made in --work): seconds, and the most memory that the process had.

Triples are read from GRAPHMILL_DATA (default ../shared/data). PyKEEN is optional: `pip install --target DIR --no-deps
pykeen` and what it asks for, without torch. The table, ranking.json and ranking.png go to --out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from scipy import sparse

from benchmarks.embeddings import RESULTS
from benchmarks.embeddings_peers import Done
from benchmarks.gnn_report import Head, Line, keep, machine, markdown, print_machine
from benchmarks.ranking_sides import CANDIDATES, LARGE_QUERIES, LARGE_WIDTH, SPLITS, compose
from benchmarks.side_processes import Child, own_command, ratio, start_side
from benchmarks.triple_models import DATA, MODELS, columns

TARGET = 10.0
_SIDES = "benchmarks.ranking_sides"


def write_tables(folder: Path, graph: str, width: int) -> None:
    """Write graph.npz: see `ranking_sides.Tables`."""
    read = {split: pq.read_table(DATA / "knowledge" / graph / f"{split}.parquet") for split in SPLITS}
    triples = {
        split: np.stack([found[name].to_numpy() for name in "hrt"], 1).astype(np.int64) for split, found in read.items()
    }
    heads, relations, tails = np.concatenate(list(triples.values())).T
    num_entities, num_relations = int(max(heads.max(), tails.max())) + 1, int(relations.max()) + 1
    degree = np.maximum(np.bincount(tails, minlength=num_entities), 1)
    means = sparse.csr_matrix((1 / degree[tails], (tails, np.arange(len(tails)))), (num_entities, len(tails)))
    rng, arrays = np.random.default_rng(0), dict[str, Any](triples)
    for model in MODELS:
        size = columns(model, width)
        entity, relation = (rng.standard_normal((count, size)) for count in (num_entities, num_relations))
        if model != "TransE":
            angle = relation[:, :width] * np.pi
            relation = np.concatenate([np.cos(angle), np.sin(angle)], 1)
        for _ in range(3):
            moved = compose(model, torch.from_numpy(entity[heads]), torch.from_numpy(relation[relations]), "tail")
            entity = 0.3 * entity + means @ moved.numpy()
            entity /= entity.std()
        arrays[f"{model}_entities"], arrays[f"{model}_relations"] = entity.astype("f4"), relation.astype("f4")
    np.savez(folder / "graph.npz", **arrays)


def measure(
    sides: dict[tuple[str, int], Child], jobs: list[str], rounds: int
) -> dict[tuple[str, int, str], list[Done]]:
    """Have all do each job in turn, forwards and backwards."""
    found: dict[tuple[str, int, str], list[Done]] = {}
    for job in jobs:
        for number in range(-1, rounds):
            for (name, threads), side in sides.items() if number % 2 else reversed(sides.items()):
                if number < 0 and name != "graphmill":
                    continue  # only numba compiles
                done = side.run(job, 0)
                if number >= 0:
                    found.setdefault((name, threads, job), []).append(done)
                    print(f"  {job}, {name} on {threads}: {done.wall:.3g} s, CPU {done.cpu:.3g} s", flush=True)
    return found


def against_peer(folder: Path, graph: str, args: argparse.Namespace) -> tuple[list[Line], dict[str, Any]]:
    lines: list[Line] = []
    options = {"triples": args.triples, "peers": None if args.peers is None else str(args.peers.absolute())}
    with ExitStack() as stack:
        sides: dict[tuple[str, int], Child] = {}
        for threads in (1, 2):
            for name in ("graphmill", "pykeen") if args.peers is not None else ("graphmill",):
                side = start_side(stack, name, own_command(_SIDES, name, folder, options), threads)
                if side is not None:
                    sides[name, threads] = side
        found = measure(sides, list(MODELS), args.rounds)
        mrr = {
            model: {name: json.loads((folder / f"{name}-{model}.json").read_text())["mrr"] for name, _ in sides}
            for model in MODELS
        }
        ours = {key: side for key, side in sides.items() if key[0] == "graphmill"}
        found |= measure(ours, [*(f"{model}, all" for model in MODELS), "candidates"], 1)
    for model in MODELS:
        for threads in (1, 2):
            if ("pykeen", threads, model) not in found:
                continue
            mine, theirs = found["graphmill", threads, model], found["pykeen", threads, model]
            head = Head(graph, f"{model}, {threads} threads", "graphmill", "PyKEEN", TARGET)
            walls = [[done.wall for done in side] for side in (theirs, mine)]
            cpus = [[done.cpu for done in side] for side in (theirs, mine)]
            middle = statistics.median(walls[1]), statistics.median(walls[0])
            lines.append(Line(head, ratio(*walls), ratio(*cpus), *middle, "s", {"mrr": mrr[model]}))
    for model, values in mrr.items():
        print(f"  MRR of {model}: {values}, apart by {max(values.values()) - min(values.values()):.1e}", flush=True)
    raw = {
        f"{name} on {threads}, {job}": [done._asdict() for done in timings]
        for (name, threads, job), timings in found.items()
    }
    return lines, {"mrr": mrr, "raw": raw}


def among_many(work: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Rank among entities of a file on two threads."""
    path = work / "entities.bin"
    rng = np.random.default_rng(1)
    with path.open("wb") as file:
        for first in range(0, args.large, 1 << 16):
            rows = min(1 << 16, args.large - first)
            rng.standard_normal((rows, LARGE_WIDTH), dtype=np.float32).tofile(file)
    found: dict[str, Any] = {}
    try:
        with Child("large", own_command(_SIDES, "large", work, {"memory": args.memory}), 2) as side:
            for job, name in (("l1", "ranks"), ("dot", "ranks"), ("top 10", "top")):
                done = side.run(job, 0)
                peak = json.loads((work / f"large-{name}.json").read_text())
                found[job] = {**done._asdict(), **peak}
                what = "100 queries" if name == "top" else f"{LARGE_QUERIES:,} queries"
                grown = f"{peak['peak_bytes'] / 1e9:.2f} GB, {peak['before_bytes'] / 1e9:.2f} GB before"
                print(
                    f"  {job} among {args.large:,}, {what}: {done.wall:.1f} s, CPU {done.cpu:.1f} s, {grown}",
                    flush=True,
                )
    finally:
        path.unlink()
    return found


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", default="fb15k-237", help="a folder of GRAPHMILL_DATA/knowledge")
    parser.add_argument("--peers", type=Path, help="a folder that has pykeen")
    parser.add_argument("--triples", type=int, default=512, help="of the test split, that both sides rank")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--width", type=int, default=200, help="columns, real or complex")
    parser.add_argument("--large", type=int, default=5_000_000, help="entities that are read from a file; 0: none")
    parser.add_argument("--memory", type=int, default=1 << 28, help="bytes for ranking among those")
    parser.add_argument("--work", type=Path, help="where the large file lies meanwhile; default: a temporary folder")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--quick", action="store_true", help="16 triples, a round, 20,000 entities")
    args = parser.parse_args(arguments)
    if args.quick:
        args.triples, args.rounds, args.large = 16, 1, 20_000
    return args


def main(arguments: list[str] | None = None) -> None:
    args = parse(arguments)
    facts = machine()
    print_machine(facts)
    if args.peers is None:
        print("no --peers: left out")
    with tempfile.TemporaryDirectory(prefix="graphmill-ranking-", dir=args.work) as work:
        write_tables(Path(work), args.graph, args.width)
        lines, raw = against_peer(Path(work), args.graph, args)
        raw["large"] = among_many(Path(work), args) if args.large else {}
    keep(args, "ranking", facts, lines, **raw)
    for timings in [raw["raw"][key] for key in raw["raw"] if key.endswith("candidates")]:
        print(f"{timings[0]['done'] / timings[0]['wall'] / 1e6:.3g} M candidates a second, {CANDIDATES} a triple")
    print(markdown(lines))
    print(f"written to {args.out}")


if __name__ == "__main__":
    main()
