"""How deep one can go: DeeperGCN plain against res+, and RevGNN's memory against depth.

    python -m benchmarks.depth [--depths 7,28,112] [--steps 100] [--parts training,memory]

`training` trains DeeperGCN (softmax aggregation, layer norm) on a whole generated graph in every step, for each depth
with plain and with res+ blocks: training accuracy by step, and the norm of each layer's gradient at the first and at
the last step (https://arxiv.org/abs/2006.07739, section 4). `memory` takes one step of res+ as it is, with checkpoints,
and reversible (https://arxiv.org/abs/2106.07476), each in a process of its own, and reports the peak beyond graph and
weights. depth.json, depth.png and memory.png go to --out.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.gnn_children import ROOT
from benchmarks.gnn_graphs import graph_recipe, prepare
from benchmarks.gnn_report import machine, print_machine
from benchmarks.gnn_worker import Memory
from tasks.storage.home import Home

RECIPE = "quickstart"
SMALL = ("dataset.num_nodes=5000", "dataset.num_edges=40000")
DEEP = (
    *SMALL,
    "model=deepgcn",
    "model.norm=layer",
    "model.dropout=0.0",
    "train.loader=full",
    "train.schedule=constant",
)
BLOCKS = {"plain": ("model.block=plain",), "res+": ("model.block=res+",)}
MEMORY = {
    "res+": ("model.block=res+",),
    "res+, checkpoints": ("model.block=res+", "model.checkpoint=true"),
    "reversible": ("model.block=res+", "model.reversible=true", "model.groups=2"),
}


class Deep:
    """A model on a whole graph: one step at a time."""

    def __init__(self, graph: str, folder: str, overrides: list[str]) -> None:
        from configs.registry import MODELS
        from models.losses.chosen import loss_of
        from tasks.sampling.rows.features import FeatureSource
        from tasks.storage.graph_facts import graph_facts
        from tasks.storage.graph_store import GraphStore
        from tasks.storage.manifests import PartitionManifest
        from tasks.train.gradients.steps import make_optimizer
        from tasks.train.loaders.base import TrainingData
        from tasks.train.loaders.configs import FullConfig
        from tasks.train.loaders.full import FullLoader

        recipe = graph_recipe(graph, tuple(overrides))
        torch.set_num_threads(recipe.train.threads or 2)
        torch.manual_seed(recipe.seed)
        manifest = PartitionManifest.model_validate_json((Path(folder) / "manifest.json").read_text())
        store = GraphStore(Path(folder), manifest)
        self.model = MODELS.create(recipe.model, graph_facts(manifest)).train()
        features = FeatureSource.open(store, edges=self.model.uses_edge_features)
        loader = FullLoader(FullConfig(name="full"), TrainingData(store, features))
        self.batch = loader.batch(torch.arange(loader.num_seeds).numpy(), 0)
        self.loss = loss_of(manifest.task_type)
        self.optimizer = make_optimizer(recipe.train, self.model.parameters(), 1)

    def step(self) -> dict[str, float]:
        """Train once; returns loss and accuracy of the training nodes before it."""
        self.optimizer.zero_grad(set_to_none=True)
        scores = self.model(self.batch)
        loss = self.loss(scores, self.batch.target, self.batch.num_seeds)
        loss.backward()
        self.optimizer.step()
        right = scores.detach().argmax(1) == self.batch.target
        return {"loss": float(loss.detach()), "accuracy": float(right.float().mean())}

    def gradient_norms(self) -> list[float]:
        """Norm of each layer's gradient, from the input on."""
        norms = []
        for layer in self.model.layers:
            squares = [float(p.grad.square().sum()) for p in layer.parameters() if p.grad is not None]
            norms.append(sum(squares) ** 0.5)
        return norms


def train(graph: str, folder: str, overrides: list[str], steps: int) -> dict[str, Any]:
    """Training accuracy by step, and gradient norms of the first and the last one."""
    deep = Deep(graph, folder, overrides)
    began, curve, first = time.process_time(), [], []
    for number in range(steps):
        curve.append(deep.step())
        if number == 0:
            first = deep.gradient_norms()
    seconds = (time.process_time() - began) / steps
    return {"curve": curve, "first_norms": first, "last_norms": deep.gradient_norms(), "cpu_seconds_a_step": seconds}


def measure(graph: str, folder: str, overrides: list[str]) -> dict[str, Any]:
    """Peak memory of a step beyond what is there before it. The first one compiles kernels and makes Adam's state."""
    deep, memory = Deep(graph, folder, overrides), Memory()
    deep.step()
    deep.optimizer.zero_grad(set_to_none=True)
    memory.reset()
    began = time.process_time()
    deep.step()
    report = memory.report("cpu")
    return {"peak_bytes": report["beyond_reset"], "cpu_seconds": time.process_time() - began}


def in_child(what: str, graph: str, folder: Path, overrides: tuple[str, ...], *more: Any) -> dict[str, Any]:
    """Call `train` or `measure` in a process of its own; in the latter freed memory goes back to the kernel at once."""
    request = json.dumps([what, graph, str(folder), list(overrides), *more])
    environment = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"}
    command = ["env", *(f"{name}={value}" for name, value in environment.items())] if what == "measure" else []
    done = subprocess.run(
        [*command, sys.executable, "-m", "benchmarks.depth", "--one", request], cwd=ROOT, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{what} {' '.join(overrides)}: {done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def draw_training(path: Path, runs: list[dict[str, Any]]) -> None:
    """Accuracy by step, and gradient norms by layer."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2))
    colours = {depth: f"C{i}" for i, depth in enumerate(dict.fromkeys(run["depth"] for run in runs))}
    for run in runs:
        style = {"color": colours[run["depth"]], "linestyle": "--" if run["block"] == "plain" else "-"}
        label = f"{run['depth']} layers, {run['block']}"
        left.plot([point["accuracy"] for point in run["curve"]], label=label, **style)
        layers = [i / max(1, len(run["first_norms"]) - 1) for i in range(len(run["first_norms"]))]
        right.plot(layers, [max(norm, 1e-30) for norm in run["first_norms"]], label=label, **style)
    left.set_xlabel("step")
    left.set_ylabel("training accuracy")
    left.legend(fontsize=7)
    right.set_xlabel("depth, from the input (0) to the output (1)")
    right.set_ylabel("norm of the gradient at the first step")
    right.set_yscale("log")
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def draw_memory(path: Path, runs: list[dict[str, Any]]) -> None:
    """Peak memory over depth."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4.2))
    for name in dict.fromkeys(run["name"] for run in runs):
        points = [(run["depth"], run["peak_bytes"] / 1e6) for run in runs if run["name"] == name]
        axes.plot(*zip(*points, strict=True), marker="o", label=name)
    axes.set_xlabel("layers")
    axes.set_ylabel("peak memory of a step, MB")
    axes.set_ylim(bottom=0)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depths", default="7,28,112")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--parts", default="training,memory")
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=0.001)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--home", type=Path, default=None, help="where prepared graphs are kept")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "depth")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        what, *values = json.loads(args.one)
        print(json.dumps({"train": train, "measure": measure}[what](*values)))
        return
    facts = machine()
    print_machine(facts)
    args.out.mkdir(parents=True, exist_ok=True)
    folder = prepare(graph_recipe(RECIPE, SMALL), Home.open(args.home))
    content: dict[str, Any] = {"machine": facts, "training": [], "memory": []}
    fixed = (
        *DEEP,
        f"model.hidden_dim={args.hidden}",
        f"train.learning_rate={args.learning_rate}",
        f"train.threads={args.threads}",
    )
    for depth in map(int, args.depths.split(",")):
        for block, chosen in BLOCKS.items() if "training" in args.parts else ():
            overrides = (*fixed, f"model.num_layers={depth}", *chosen)
            run = {"depth": depth, "block": block, **in_child("train", RECIPE, folder, overrides, args.steps)}
            content["training"].append(run)
            norms = run["first_norms"]
            print(
                f"{depth} layers, {block}: training accuracy {run['curve'][-1]['accuracy']:.3f} at step {args.steps}; "
                f"first gradient norms {norms[0]:.2e} (first layer) .. {norms[-1]:.2e} (last); "
                f"{run['cpu_seconds_a_step']:.2f} CPU s a step",
                flush=True,
            )
        for name, chosen in MEMORY.items() if "memory" in args.parts else ():
            overrides = (*fixed, f"model.num_layers={depth}", *chosen)
            run = {"depth": depth, "name": name, **in_child("measure", RECIPE, folder, overrides)}
            content["memory"].append(run)
            print(
                f"{depth} layers, {name}: {run['peak_bytes'] / 1e6:.0f} MB, {run['cpu_seconds']:.2f} CPU s", flush=True
            )
        (args.out / "depth.json").write_text(json.dumps(content, indent=1))
    if content["training"]:
        draw_training(args.out / "depth.png", content["training"])
    if content["memory"]:
        draw_memory(args.out / "memory.png", content["memory"])
    print(f"written to {args.out}")


if __name__ == "__main__":
    main()
