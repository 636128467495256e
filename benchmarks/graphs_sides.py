"""The sides of `benchmarks.graphs`, each in a process of its own.

    python -m benchmarks.graphs_sides graphmill|PyG|"PyG tuned" FOLDER OPTIONS

A parent asks as in `embeddings_peers`. FOLDER is that of a prepared set of graphs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch

from benchmarks.embeddings_ours import training_job
from benchmarks.embeddings_peers import Job, Paced, serve_side, timed
from benchmarks.gnn_graphs import graph_recipe
from configs.schema import Recipe
from tasks.processes.children import die_with_parent
from tasks.train.gradients.engine import GradientEngine
from tasks.train.gradients.pipeline import Pipeline, pipeline_sizes
from tasks.train.strategies.base import Ranks

MODELS: dict[str, tuple[str, tuple[str, ...]]] = {
    "GIN": ("molhiv-gin-virtual", ("model.virtual_node=false",)),
    "GIN-virtual": ("molhiv-gin-virtual", ()),
    "DeeperGCN": ("molhiv-deepergcn", ("train.learning_rate=0.01", "model.dropout=0.2", "model.mlp_layers=1")),
}
"""Recipe and what is set in it."""
PRECISIONS = ("float32", "bfloat16")
PEERS = ("PyG", "PyG tuned")
BATCH = 32
_NEVER = 1_000_000


def job_name(model: str, precision: str) -> str:
    return f"{model}, {precision}"


def make_recipe(graphs: str, model: str, precision: str) -> Recipe:
    """Return the recipe of a training without end; `graphs`: OGB's name."""
    base, own = MODELS[model]
    never = ("train.epochs", "train.eval_every", "train.checkpoint_every", "train.checkpoint_minutes")
    return graph_recipe(
        f"{Path(__file__).parent}/recipes/{base}.yaml",
        (
            f"dataset.dataset={graphs}",
            f"train.loader.batch_size={BATCH}",
            f"train.precision={precision}",
            "train.schedule=constant",
            "train.threads=1",
            "train.device=cpu",
            *(f"{option}={_NEVER}" for option in never),
            *own,
        ),
    )


class Ours:
    """The loop of `graphmill run`, batches made ahead in its thread."""

    def __init__(self, folder: Path, options: dict[str, Any]) -> None:
        self.folder, self.options = folder, options
        self.jobs: dict[str, Job] = {
            job_name(*words): Paced(self._training(*words)) for words in product(options["models"], PRECISIONS)
        }

    def _training(self, model: str, precision: str) -> Callable[[int], Any]:
        made: list[Any] = []

        def train(steps: int) -> Any:
            if not made:
                recipe = make_recipe(self.options["graphs"], model, precision)
                work = Path(self.options["work"]) / f"{model}-{precision}"
                engine = GradientEngine(training_job(recipe, self.folder, work), Ranks(), torch.device("cpu"))
                engine.model.train()
                engine.pipeline = start_pipeline(engine)
                made.append(engine)
            return timed(lambda: take_steps(*made, steps))

        return train


def start_pipeline(engine: GradientEngine) -> Pipeline:
    """Return what makes the engine's batches, as its `running` does."""
    batches, config = engine.batches, engine.config
    ahead, threads = pipeline_sizes(config, engine.device)
    options: dict[str, Any] = {"ahead": ahead, "threads": threads, "device": engine.device}
    return Pipeline(batches.make, 0, batches.total, **options)


def take_steps(engine: Any, steps: int) -> float:
    for _ in range(steps):
        engine.step()
    engine.meter.read()
    return steps


class Pyg:
    """PyG's layers in the plain loop of OGB's examples: see `graphs_pyg`."""

    def __init__(self, folder: Path, options: dict[str, Any], precisions: tuple[str, ...]) -> None:
        sys.path.append(options["peers"])
        from benchmarks import graphs_pyg

        data = graphs_pyg.read_graphs(folder)
        self.jobs: dict[str, Job] = {}
        for model, precision in product(options["models"], precisions):
            rate = make_recipe(options["graphs"], model, precision).train.learning_rate  # type: ignore[union-attr]
            loop = partial(
                graphs_pyg.Loop, data, model, batch=BATCH, learning_rate=rate, autocast=precision != "float32"
            )
            self.jobs[job_name(model, precision)] = Paced(_lazily(loop))


def _lazily(make: Callable[[], Any]) -> Callable[[int], Any]:
    """Return a job that makes its loop when it is first asked for steps."""
    made: list[Any] = []

    def train(steps: int) -> Any:
        if not made:
            made.append(make())
        return timed(lambda: made[0].take(steps))

    return train


def main() -> None:
    die_with_parent()
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    serve_side(
        {
            "graphmill": Ours,
            "PyG": partial(Pyg, precisions=PRECISIONS[:1]),
            "PyG tuned": partial(Pyg, precisions=PRECISIONS),
        }
    )


if __name__ == "__main__":
    main()
