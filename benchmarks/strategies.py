"""Does sharing the work cost accuracy? Every strategy on several ranks against one rank, at as many sampled seeds.

    python -m benchmarks.strategies [--graph debdeps] [--ranks 2,4] [--seeds 3] [--epochs 12] [--only parallel]

All runs go through the same number of epochs of the data. Where a contender says "same batches", W ranks take a W-th of
the batch each, so that a step sees as many seeds as one rank's; "larger batches" keeps each rank's batch, takes a W-th
of the steps, and scales the learning rate by sqrt(W) after a warm-up. Ranks are processes on this machine (gloo). For
each contender the mean accuracy over seeds and its spread (standard deviation), and how far that is from one rank's, in
points and in standard errors of the difference: beyond about 2 (some 3 with three seeds) is more than noise. Memory is
that of the rank that takes most: its own, and the pages of the graph's files that it has mapped. What is there so far
is written to strategies.json in --out after every run; the same command goes on from there, and with more seeds or
other contenders it adds theirs.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import math
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from benchmarks.gnn_graphs import graph_recipe, prepare
from benchmarks.gnn_report import machine, print_machine
from configs.load import build_recipe, dump_recipe
from configs.schema import Recipe
from tasks.kinds.of import predict
from tasks.processes.memory import Watch, process_bytes
from tasks.stage import Parent, run_stage
from tasks.storage.artifacts import write_atomic
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home
from tasks.storage.manifests import PartitionManifest
from tasks.train.stage import STAGE

RESULTS = Path(__file__).parent / "results"
# Small enough for a test; `--graph` takes its name, debdeps, synthetic or a recipe's file.
GENERATED = {
    "name": "generated",
    "dataset": {"name": "synthetic", "num_nodes": 20_000, "num_edges": 150_000},
    "model": {"name": "graphsage"},
}
Options = Callable[[int, argparse.Namespace], tuple[str, ...]]


def same(ranks: int, args: argparse.Namespace) -> tuple[str, ...]:
    return (f"train.loader.batch_size={args.batch_size // ranks}",)


def larger(ranks: int, args: argparse.Namespace) -> tuple[str, ...]:
    return ("train.lr_scaling=sqrt", f"train.schedule.warmup_steps={args.warmup_steps}")


def int8_rows(ranks: int, args: argparse.Namespace) -> tuple[str, ...]:
    return (*same(ranks, args), "train.strategy.rows=int8")


def contender(strategy: str, options: Options) -> Options:
    return lambda ranks, args: (f"train.strategy.name={strategy}", *options(ranks, args))


# One rank does the same whichever strategy: contenders are compared with the one rank of their loader. Names
# begin with the loader.
CONTENDERS: dict[str, Options] = {
    "neighbor, data_parallel, same batches": contender("data_parallel", same),
    "neighbor, data_parallel, larger batches": contender("data_parallel", larger),
    "neighbor, parallel_epochs, same batches": contender("parallel_epochs", same),
    "neighbor, parallel_epochs, larger batches": contender("parallel_epochs", larger),
    "neighbor, partition_parallel, same batches": contender("partition_parallel", same),
    "neighbor, partitioned, same batches": contender("partitioned", same),
    "neighbor, partitioned with int8 rows, same batches": contender("partitioned", int8_rows),
    "random_partition, data_parallel, larger batches": contender("data_parallel", larger),
    "random_partition, parallel_epochs, larger batches": contender("parallel_epochs", larger),
}
ALONE = {
    f"{loader}, one rank": contender("data_parallel", lambda *_: ()) for loader in ("neighbor", "random_partition")
}


def make_recipe(args: argparse.Namespace, *overrides: str, loader: str = "neighbor") -> Recipe:
    own = {
        "neighbor": ("train.loader.fanout=10,5", f"train.loader.batch_size={args.batch_size}"),
        "random_partition": (f"train.loader.num_clusters={args.clusters}",),
    }
    fixed = (
        f"train.loader={loader}",
        *own[loader],
        "partition.name=auto",
        f"partition.num_parts={max(args.ranks)}",
        f"model.hidden_dim={args.hidden}",
        "model.num_layers=2",
        f"train.epochs={args.epochs}",
        f"train.eval_every={max(args.ranks)}",
        f"train.learning_rate={args.learning_rate}",
        "train.schedule=cosine",
        "train.checkpoint_every=1000000",
    )
    if args.graph == "generated":
        return build_recipe(copy.deepcopy(GENERATED), [*fixed, *overrides])
    return build_recipe(dump_recipe(graph_recipe(args.graph)), [*fixed, *overrides])


class RankMemory(Watch):
    """Looks at this process's descendants; afterwards it holds the most that one of them took."""

    seconds = 0.5

    def __init__(self, folder: Path) -> None:
        """`folder`: whose files count as mapped."""
        super().__init__()
        self.own_bytes = 0
        """Anonymous and shared memory."""
        self.mapped_bytes = 0
        """Pages of the folder's files, which the kernel could take back."""
        self._folder = f"{folder.resolve()}/"

    def look(self) -> None:
        """Measure each."""
        for child in psutil.Process().children(recursive=True):
            self.own_bytes = max(self.own_bytes, process_bytes(child.pid))
            self.mapped_bytes = max(self.mapped_bytes, mapped_bytes(child.pid, self._folder))


def mapped_bytes(pid: int, folder: str) -> int:
    """Return how many bytes of files below `folder` a process has mapped and read; 0 if it is gone."""
    found: dict[str, int] = defaultdict(int)
    path = ""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
            name, _, value = line.partition(":")
            if " " in name:  # the first line of a mapping: addresses, rights, place in the file, file
                path = line.split(maxsplit=5)[5] if len(line.split(maxsplit=5)) > 5 else ""
            elif name == "Rss" and path.startswith(folder):
                found[path] += 1024 * int(value.split()[0])
    return sum(found.values())


def run(
    args: argparse.Namespace, graph: Parent, loader: str, options: tuple[str, ...], ranks: int, seed: int
) -> dict[str, float]:
    """Train and measure; returns accuracies in percent."""
    from tasks.evaluators.several import make_evaluator
    from tasks.inference.predictor import Predictor
    from tasks.train.state.checkpoint import load_model

    recipe = make_recipe(args, *options, f"train.num_ranks={ranks}", f"seed={seed}", loader=loader)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="graphmill-benchmark-") as home:
        with RankMemory(graph.folder) as memory:
            outcome = run_stage(STAGE, recipe, {"partition": graph}, Home.open(Path(home)))
        model = load_model(outcome.folder / outcome.manifest.best_checkpoint)
    evaluate = make_evaluator(recipe.evaluate.evaluator, graph.manifest)
    measured = evaluate(predict(Predictor(GraphStore(graph.folder, graph.manifest)), model, "test"))
    return {
        "valid": 100 * outcome.manifest.best_metric,
        "test": 100 * measured[evaluate.metric],
        "seeds": outcome.manifest.rows,
        "own_mb": memory.own_bytes / 1e6,
        "mapped_mb": memory.mapped_bytes / 1e6,
        "seconds": time.monotonic() - began,
    }


def runs_so_far(path: Path, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what an earlier command with the same options measured."""
    if not path.exists():
        return []
    content = json.loads(path.read_text())
    if content["options"] != options:
        raise SystemExit(
            f"{path}: holds runs with other options, {content['options']}; give another --out, or remove it"
        )
    runs: list[dict[str, Any]] = content["runs"]
    return runs


def table(runs: list[dict[str, Any]]) -> list[str]:
    """Means, spreads, and distances from one rank."""
    by_name: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for one in runs:
        by_name[one["name"], one["ranks"]].append(one)
    lines = [
        "| contender | ranks | valid | test | from one rank (valid) | seeds | a rank's own MB | MB of the graph | s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (name, ranks), made in by_name.items():
        alone = by_name[f"{name.split(',')[0]}, one rank", 1]
        cells = [f"{mean(made, split):.2f} ± {spread(made, split):.2f}" for split in ("valid", "test")]
        difference = mean(made, "valid") - mean(alone, "valid") if alone else math.nan
        error = math.hypot(*(spread(some, "valid") / math.sqrt(len(some)) for some in (made, alone))) if alone else 0.0
        several = min(len(made), len(alone)) > 1  # one run has no spread to compare with
        far = f"{difference:+.2f} ({difference / error:+.1f} se)" if ranks > 1 and error and several else ""
        lines.append(
            f"| {name} | {ranks} | {' | '.join(cells)} | {far} | {mean(made, 'seeds'):,.0f} | "
            f"{mean(made, 'own_mb'):.0f} | {mean(made, 'mapped_mb'):.0f} | {mean(made, 'seconds'):.0f} |"
        )
    return lines


def mean(made: list[dict[str, Any]], what: str) -> float:
    return statistics.fmean(one[what] for one in made)


def spread(made: list[dict[str, Any]], what: str) -> float:
    return statistics.stdev([one[what] for one in made]) if len(made) > 1 else 0.0


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--graph", default="debdeps", help="debdeps, synthetic, generated, or a recipe's YAML file")
    parser.add_argument("--ranks", default="2,4", type=lambda text: [int(part) for part in text.split(",")])
    parser.add_argument("--seeds", default=3, type=int)
    parser.add_argument("--epochs", default=12, type=int, help="a multiple of all numbers of ranks")
    parser.add_argument("--hidden", default=128, type=int)
    parser.add_argument("--batch-size", default=1024, type=int, help="of one rank")
    parser.add_argument("--clusters", default=10, type=int, help="of random_partition")
    parser.add_argument("--learning-rate", default=0.003, type=float)
    parser.add_argument("--warmup-steps", default=20, type=int)
    parser.add_argument("--only", default="", help="contenders whose names hold this; one rank runs anyway")
    parser.add_argument("--out", default=RESULTS, type=Path)
    parser.add_argument("--home", default=RESULTS / "home", type=Path, help="where the prepared graph is kept")
    args = parser.parse_args(arguments)
    facts = machine()
    print_machine(facts)
    folder = prepare(make_recipe(args), Home.open(args.home))
    graph = Parent(PartitionManifest.model_validate_json((folder / "manifest.json").read_text()), folder)
    chosen = {name: options for name, options in CONTENDERS.items() if args.only in name}
    loaders = {name.split(",")[0] for name in chosen}
    todo = [(name, options, 1) for name, options in ALONE.items() if name.split(",")[0] in loaders]
    todo += [(name, options, ranks) for name, options in chosen.items() for ranks in args.ranks]
    options_used = {name: value for name, value in vars(args).items() if name not in ("out", "home", "seeds", "only")}
    runs = runs_so_far(args.out / "strategies.json", options_used)
    done = {(made["name"], made["ranks"], made["seed"]) for made in runs}
    args.out.mkdir(parents=True, exist_ok=True)
    for seed in range(args.seeds):  # seeds outermost: a slow hour of the machine hits all contenders
        for name, options, ranks in todo:
            if (name, ranks, seed) in done:
                continue
            outcome = run(args, graph, name.split(",")[0], options(ranks, args), ranks, seed)
            runs.append({"name": name, "ranks": ranks, "seed": seed, **outcome})
            print(
                f"seed {seed}, {ranks} ranks, {name}: valid {outcome['valid']:.2f}, test {outcome['test']:.2f}, "
                f"{outcome['seconds']:.0f} s",
                flush=True,
            )
            content = {"machine": facts, "options": options_used, "runs": runs, "table": table(runs)}
            write_atomic(args.out / "strategies.json", json.dumps(content, indent=1).encode())
    print("\n".join(table(runs)))


if __name__ == "__main__":
    main()
