"""How fast tables are trained on a GPU: steps alone, and a whole training against this machine's CPU.

    python -m benchmarks.tables [--nodes 1000000] [--edges 10000000] [--dim 128] [--samples 2e8] [--device cuda]

Not yet run on a GPU. `steps`: millions of pairs trained a second with steps that are added or written, in both
precisions, with negatives of a pair's own and shared ones; and how much of the memory's traffic that would be if no row
were met twice. `whole`: both sides train the same samples, drawn by the CPU: millions of pairs a second, and the loss
of fresh pairs before and after, which should be as low on both. Figures go to benchmarks/results/tables.json too, each
as it comes; one that fails costs itself only.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.embeddings_ours import training_job
from benchmarks.gnn_graphs import prepare
from benchmarks.gnn_report import machine, print_machine
from benchmarks.items import Items, add_options, check_parts, run_items
from configs.load import build_recipe
from configs.schema import Recipe
from models.kernels.tables.device_tables import DeviceTable
from models.kernels.tables.row_tables import RowTable
from models.vectors.base import Meeting
from tasks.processes.memory import available_bytes
from tasks.storage.home import Home
from tasks.train.strategies.base import Ranks
from tasks.train.tables.block_engine import PairEngine
from tasks.train.tables.device import RankDevice

RESULTS = Path(__file__).parent / "results"
LOSS_PAIRS = 20_000
PARTS = ("steps", "whole")


def make_recipe(args: argparse.Namespace) -> Recipe:
    walks = {"name": "walks", "length": args.length, "window": 5, "p": args.p, "q": args.q}
    strategy = {"name": "block_grid", "blocks": args.blocks}
    return build_recipe(
        {
            "name": "tables",
            "dataset": {"name": "synthetic", "num_nodes": args.nodes, "num_edges": args.edges, "feature_dim": 0},
            "model": {"name": "skipgram", "dim": args.dim, "shared_negatives": args.shared_negatives},
            "train": {"samples": args.samples, "loader": walks, "strategy": strategy, "precision": args.precision},
        }
    )


class Contest:
    """A engine on the CPU, and the same training on a device."""

    def __init__(self, recipe: Recipe, folder: Path, work: Path, device: torch.device) -> None:
        job = training_job(recipe, folder, work)
        place = RankDevice.on_gpu(device) if device.type == "cuda" else RankDevice(device, available_bytes())
        self.cpu, self.other = PairEngine(job, Ranks()), PairEngine(job, Ranks(), place)
        self.device, self.loader = device, self.other.loader
        self.chunks = range(min(self.other.settings.total_chunks, max(1, (1 << 22) // self.loader.room)))

    def seconds(self, run: Callable[[], Any], rounds: int) -> float:
        """The fewest seconds of a call, after one that compiles."""
        run()
        found = math.inf
        for _ in range(rounds):
            self.wait()
            began = time.perf_counter()
            run()
            self.wait()
            found = min(found, time.perf_counter() - began)
        return found

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def steps(self, dim: int, rounds: int, precision: str, adds: bool, negatives: int, group: int) -> dict[str, float]:
        """Millions of pairs trained a second, and GB/s of rows read and written."""
        from models.kernels.skipgram.train_pairs_triton import Concurrency, train_pairs

        chunks = len(self.chunks)
        ends, counts = np.zeros((2, chunks, self.loader.room), self.cpu.id_type), np.zeros(chunks, np.int64)
        for number, chunk in enumerate(self.chunks):
            counts[number] = self.loader.fill(chunk, *ends[:, number])
        centres, contexts, num_pairs = (torch.from_numpy(part).to(self.device) for part in (*ends, counts))
        num_nodes, pairs = self.cpu.grid.tables.num_nodes, int(counts.sum())
        made = [RowTable.zeros(num_nodes, dim, precision) for _ in range(2)]  # type: ignore[arg-type]
        tables = [DeviceTable.of(table, self.device) for table in made]
        tables[0].values.uniform_(-0.5 / dim, 0.5 / dim)
        shape = len(centres), -(-centres.shape[1] // group), negatives
        drawn = torch.randint(num_nodes, shape, device=self.device).to(centres.dtype)
        concurrency = Concurrency(Concurrency.of(tables[1], negatives).programs, adds)
        options: dict[str, Any] = {"rate": 0.01, "counts": num_pairs, "group": group, "concurrency": concurrency}
        seconds = self.seconds(lambda: train_pairs(*tables, centres, contexts, drawn, **options), rounds)
        row = tables[0].values.shape[1] * tables[0].values.element_size()
        traffic = 2 * row * pairs * (2 + negatives / group)
        rate, bytes_per_second = pairs / seconds / 1e6, traffic / seconds / 1e9
        return {"M pairs/s": rate, "GB/s": bytes_per_second, "programs at most": concurrency.programs}

    def whole(self, engine: PairEngine) -> dict[str, Any]:
        """Train all samples on one side."""
        settings, before = self.other.settings, self.loss(engine)
        train = engine.train_chunks if settings.num_blocks == 1 else engine.train_pool
        began, pairs = time.perf_counter(), 0
        for first in range(0, settings.total_chunks, settings.chunks_a_pool):
            pairs += train(range(first, min(first + settings.chunks_a_pool, settings.total_chunks)))[1]
        self.wait()
        rate = pairs / (time.perf_counter() - began) / 1e6
        rows = [table.read(slice(0, 1000)) for pair in self.block(engine).values() for table in pair]
        finite = all(bool(np.isfinite(row).all()) for row in rows)
        return {"M pairs/s": rate, "loss before": before, "loss after": self.loss(engine), "finite": finite}

    def block(self, engine: PairEngine) -> Meeting:
        """The blocks that pairs of block 0 with itself meet in, as they are now."""
        engine.grid.load(engine.grid.keys(0, 0))
        return engine.grid.meeting(0, 0)

    def loss(self, engine: PairEngine) -> float:
        """Of fresh pairs whose ends both lie in block 0."""
        ends = np.empty((2, self.loader.room), self.cpu.id_type)
        count = min(self.loader.fill(10**9, *ends), LOSS_PAIRS)
        blocks = engine.settings.num_blocks
        centres, contexts = ends[:, :count][:, (ends[:, :count] % blocks == 0).all(0)] // blocks
        samples = engine.stepper.objective.samples(centres, contexts, (10**9, 0, 0), 0)
        return engine.model.loss(engine.options, self.block(engine), samples)


def all_items(args: argparse.Namespace, contest: Callable[[], Contest]) -> Items:
    """What is measured, by part and name."""
    items: Items = {}
    for precision, adds in (("float32", True), ("float32", False), ("bfloat16", False)):
        for negatives, group in ((1, 1), (5, 1), (5, 16)):
            name = f"{precision}, {'added' if adds else 'written'}, {negatives} negatives of {group} pairs"
            way = (precision, adds, negatives, group)
            items["steps", name] = lambda way=way: contest().steps(args.dim, args.rounds, *way)
    if args.samples:
        items["whole", "device"] = lambda: contest().whole(contest().other)
        items["whole", "CPU"] = lambda: contest().whole(contest().cpu)
    return items


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=10_000_000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--length", type=int, default=40, help="nodes of a walk")
    parser.add_argument("--p", type=float, default=1.0)
    parser.add_argument("--q", type=float, default=1.0)
    parser.add_argument("--blocks", type=int, default=1, help="of the whole training")
    parser.add_argument("--shared-negatives", type=int, default=1, help="of the whole training")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32", help="likewise")
    parser.add_argument("--samples", type=float, default=2e8, help="likewise; 0: not measured")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cuda", help="cpu: Triton's interpreter, where TRITON_INTERPRET=1 is set")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--home", type=Path, default=RESULTS / "home", help="where the prepared graph is kept")
    add_options(parser, PARTS, limit=120)
    args = parser.parse_args(arguments)
    check_parts(parser, args, PARTS)
    head = {"machine": machine(), "options": {name: str(value) for name, value in vars(args).items()}}
    if args.answers is None:
        print_machine(head["machine"])
    recipe = make_recipe(args)
    folder = prepare(recipe, Home.open(args.home))
    contest = cache(lambda: Contest(recipe, folder, args.out / "tables", torch.device(args.device)))
    return run_items("benchmarks.tables", arguments, args, all_items(args, contest), args.out / "tables.json", head)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
