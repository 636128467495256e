"""graphmill's side of `benchmarks.distributed`: one rank of a training with `train.strategy=partitioned`.

`python -m benchmarks.distributed_ours GRAPH FOLDER OPTIONS`, with torchrun's variables set. Batches come through the
training's own pipeline, steps are those of its loop.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.distributed_side import Pace
from benchmarks.gnn_graphs import graph_recipe
from configs.schema import Recipe
from tasks.processes.device import use_threads
from tasks.train.gradients.engine import GradientEngine
from tasks.train.gradients.pipeline import Pipeline, pipeline_sizes
from tasks.train.job import Job
from tasks.train.ranks.collectives import joined, largest
from tasks.train.run import run
from tasks.train.strategies.base import Ranks

_NEVER = 1_000_000


def training_recipe(graph: str, ranks: int, overrides: tuple[str, ...]) -> Recipe:
    """Return the recipe of a training that neither validates nor saves while it is measured."""
    return graph_recipe(
        graph,
        (
            "train.loader={name: neighbor, fanout: [15, 10, 5], batch_size: 1024}",
            "model={name: graphsage, hidden_dim: 256, num_layers: 3, dropout: 0.5, norm: none}",
            "train.strategy=partitioned",
            f"train.num_ranks={ranks}",
            "train.threads=1",
            "train.device=cpu",
            "train.schedule=constant",
            f"train.epochs={_NEVER}",
            f"train.eval_every={_NEVER}",
            f"train.checkpoint_every={_NEVER}",
            f"train.checkpoint_minutes={_NEVER}",
            *overrides,
        ),
    )


def main(graph: str, folder: Path, options: dict[str, Any]) -> None:
    ranks = Ranks.here()
    recipe = training_recipe(graph, ranks.world_size, tuple(options["overrides"]))
    work = Path(options["scratch"]) / f"rank-{ranks.rank}"
    work.mkdir(parents=True, exist_ok=True)
    job: Any = Job.make(recipe, folder, "benchmark", work)
    use_threads(job.train.threads)
    device = torch.device("cpu")
    with joined(ranks, device):
        pace: Pace

        class Paced(GradientEngine):
            """Takes a step when it is asked for one."""

            def _step(self) -> None:
                if not pace.wants("steps"):
                    os._exit(0)
                super()._step()
                pace.took()

        engine = Paced(job, ranks, device)
        pace = Pace(ranks.rank)
        facts = check(engine)
        while pace.wants("check"):
            pace.took(**next(facts))
        ahead, threads = pipeline_sizes(engine.config, device, alone=True)
        batches = engine.batches
        sizes: dict[str, Any] = {"ahead": ahead, "threads": threads, "device": device, "agree": largest}
        with Pipeline(batches.make, 0, batches.total, **sizes) as pipeline:
            while pace.wants("batches"):
                batch = next(pipeline)
                pace.took(seeds=batch.num_seeds, edges=batch.num_edges)
        run(engine)


def check(engine: Any) -> Iterator[dict[str, float]]:
    """Yield what batches hold: seeds, edges of each layer, distinct nodes whose features are read."""
    batches, loader = engine.batches, engine.batches.loader
    together = engine.config.strategy.exchange_batches
    for first in range(0, _NEVER, together):
        _, seeds = loader._seeds([batches.request(number) for number in range(first, first + together)])
        for batch, sampled in zip(seeds, loader.neighborhoods.sampler.sample(seeds), strict=True):
            edges = [len(layer.indices) for layer in sampled.layers]
            named = {f"edges_{layer}": count for layer, count in enumerate(edges)}
            assert len(np.unique(sampled.nodes)) == len(sampled.nodes)
            yield {"seeds": len(batch.nodes), "inputs": len(sampled.nodes), **named}


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]))
