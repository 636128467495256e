"""Time to the same validation accuracy: mini-batches against the whole graph in every step.

    python -m benchmarks.minibatch [--graphs debdeps,synthetic] [--targets 0.815,0.90] [--limit 1800]

Each contender is the training of a recipe (GraphSAGE, 3 layers, hidden 256, batch norm), in the worker process that
`graphmill run` starts. A run ends when its validation accuracy reaches the target or when --limit seconds are over; its
`metrics.jsonl` says how good it was when. Validations count for both sides, at equal cost each; the full graph is
validated every few steps only. Seconds count from when graph and model are there; CPU seconds are the worker's own: on
a shared machine trust those. Curves go to
minibatch.png and minibatch.json in --out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.gnn_children import MALLOC_KEPT, ROOT
from benchmarks.gnn_graphs import GRAPHS, graph_recipe, prepare
from benchmarks.gnn_report import machine, print_machine
from tasks.processes.children import WORKER_ENVIRONMENT, tail
from tasks.storage.home import Home
from tasks.train.job import ERROR, LOGS, METRICS, Job
from tasks.train.worker import PARENT

COMMON = ("model=graphsage", "model.norm=batch", "train.schedule=constant", "train.checkpoint_every=1000000")
MINI = (*COMMON, "train.loader=neighbor", "train.epochs=200", "train.learning_rate=0.003")
FULL = (*COMMON, "train.loader=full", "train.epochs=2000", "train.eval_every=5", "train.learning_rate=0.01")
CONTENDERS = {
    "mini-batch float32": (*MINI, "train.precision=float32"),
    "mini-batch bfloat16": (*MINI, "train.precision=bfloat16"),
    "mini-batch bfloat16, first hop precomputed": (
        *(*MINI, "train.precision=bfloat16", "train.loader.first_hop=precomputed", "train.loader.fanout=15,10,-1"),
    ),
    "full graph float32": (*FULL, "train.precision=float32"),
    "full graph bfloat16": (*FULL, "train.precision=bfloat16"),
}
# Three layers of the large graph in float32 need more than 20 GB.
TOO_LARGE = {("synthetic", "full graph float32")}


@dataclass
class Point:
    """A validation."""

    epoch: float
    wall: float
    cpu: float
    accuracy: float


@contextmanager
def worker(job: Job) -> Iterator[subprocess.Popen[bytes]]:
    """Run a job's worker for the block."""
    threads = str(job.threads())
    environment = {
        **WORKER_ENVIRONMENT,
        **os.environ,
        **MALLOC_KEPT,
        **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), threads),
        PARENT: str(os.getpid()),
    }
    (job.work / LOGS).mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "tasks.train.worker", str(job.save())],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def follow(job: Job, target: float, limit: float) -> list[Point]:
    """Train until the target or the limit is reached; returns the validations, best so far last."""
    points: list[Point] = []
    began, metrics, offset = time.monotonic(), job.work / METRICS, 0
    with worker(job) as process:
        status, ready = psutil.Process(process.pid), 0.0
        while time.monotonic() - began < limit and not (points and points[-1].accuracy >= target):
            ended = process.poll() is not None
            if metrics.exists():
                times = None if ended else status.cpu_times()
                if times is not None and not ready:  # imports and opening the graph are not training
                    ready = times.user + times.system
                with metrics.open() as file:
                    file.seek(offset)
                    lines = [line for line in file if line.endswith("\n")]
                    offset += sum(len(line) for line in lines)
                for record in map(json.loads, lines):
                    if "valid/accuracy" in record and times is not None:
                        cpu = times.user + times.system - ready
                        points.append(Point(record["epoch"], record["seconds"], cpu, record["valid/accuracy"]))
            if ended:
                if process.returncode:
                    said = (job.work / ERROR).read_text() if (job.work / ERROR).exists() else ""
                    raise SystemExit(f"the training failed: {said}\n{tail(job.work / LOGS / 'rank-0.log')}")
                break
            time.sleep(0.1)
    return points


def run(graph: str, name: str, folder: Path, args: argparse.Namespace, target: float) -> dict[str, Any]:
    """One contender's curve."""
    fixed = ("train.threads=" + str(args.threads), f"model.hidden_dim={args.hidden}", "train.num_ranks=1")
    recipe = graph_recipe(graph, (*CONTENDERS[name], *fixed, f"seed={args.seed}"))
    with tempfile.TemporaryDirectory(prefix="graphmill-benchmark-") as work:
        points = follow(Job.make(recipe, folder, "benchmark", Path(work)), target, args.limit)
    reached = bool(points) and points[-1].accuracy >= target
    last = points[-1] if points else Point(0, 0, 0, 0)
    how = f"{target:.3f} after" if reached else f"only {max((p.accuracy for p in points), default=0):.3f} in"
    print(f"  {name}: {how} {last.wall:.1f} s, {last.cpu:.1f} CPU s, epoch {last.epoch:g}", flush=True)
    return {"graph": graph, "name": name, "target": target, "reached": reached, "points": [vars(p) for p in points]}


def compare(graph: str, runs: list[dict[str, Any]]) -> list[str]:
    """Say how much sooner each mini-batch contender was than the fastest full-graph one."""
    full = [r for r in runs if r["graph"] == graph and r["name"].startswith("full") and r["points"]]
    lines = []
    for r in runs:
        if r["graph"] != graph or not r["name"].startswith("mini") or not r["reached"]:
            continue
        for clock in ("wall", "cpu"):
            mine = r["points"][-1][clock]
            times = [f["points"][-1][clock] for f in full if f["reached"]]
            if times:
                lines.append(f"{graph}: {r['name']} {min(times) / mine:.1f}x sooner ({clock})")
            elif full:
                most = max(f["points"][-1][clock] for f in full)
                lines.append(
                    f"{graph}: {r['name']} at least {most / mine:.1f}x sooner ({clock}; the full graph never was)"
                )
    return lines


def draw(path: Path, runs: list[dict[str, Any]]) -> None:
    """Validation accuracy over CPU seconds, a panel a graph."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    graphs = list(dict.fromkeys(r["graph"] for r in runs))
    figure, panels = plt.subplots(1, len(graphs), figsize=(6 * len(graphs), 4.2), squeeze=False)
    for axes, graph in zip(panels[0], graphs, strict=True):
        for r in runs:
            if r["graph"] == graph and r["points"]:
                x, y = ([point[key] for point in r["points"]] for key in ("cpu", "accuracy"))
                axes.plot(x, y, marker=".", linestyle="-" if r["name"].startswith("mini") else "--", label=r["name"])
                axes.axhline(r["target"], color="grey", linewidth=0.6)
        axes.set_xscale("log")
        axes.set_xlabel("CPU seconds (validations included)")
        axes.set_ylabel("validation accuracy")
        axes.set_title(graph)
        axes.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", default=",".join(GRAPHS))
    parser.add_argument("--targets", default="0.815,0.90", help="validation accuracy, one a graph")
    parser.add_argument("--contenders", default="", help="only those whose names hold one of these words")
    parser.add_argument("--limit", type=float, default=1800, help="seconds for each")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--home", type=Path, default=None, help="where prepared graphs are kept")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "minibatch")
    args = parser.parse_args()
    words = [word for word in args.contenders.split(",") if word]
    facts = machine()
    print_machine(facts)
    args.out.mkdir(parents=True, exist_ok=True)
    runs: list[dict[str, Any]] = []
    for graph, target in zip(args.graphs.split(","), map(float, args.targets.split(",")), strict=True):
        folder = prepare(graph_recipe(graph), Home.open(args.home))
        print(f"{graph}: to a validation accuracy of {target}", flush=True)
        for name in CONTENDERS:
            if (graph, name) not in TOO_LARGE and (not words or any(word in name for word in words)):
                runs.append(run(graph, name, folder, args, target))
                (args.out / "minibatch.json").write_text(json.dumps({"machine": facts, "runs": runs}, indent=1))
        print("\n".join(compare(graph, runs)))
    if any(r["points"] for r in runs):
        draw(args.out / "minibatch.png", runs)
    print(f"written to {args.out}")


if __name__ == "__main__":
    main()
