"""The sides of `benchmarks.knowledge`, each in a process of its own.

    python -m benchmarks.knowledge_sides graphmill|pykeen FOLDER OPTIONS

A parent asks as in `embeddings_peers`; FOLDER is that of a prepared graph.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.embeddings_peers import Done, Job, serve, take_stdout, timed
from benchmarks.gnn_graphs import data_folder
from configs.load import build_recipe
from configs.schema import Recipe
from tasks.processes.children import die_with_parent
from tasks.processes.device import use_threads
from tasks.storage.graph_store import GraphStore
from tasks.storage.manifests import PartitionManifest
from tasks.train.job import Job as TrainingJob
from tasks.train.knowledge.trainer import KnowledgeTrainer
from tasks.train.strategies.base import Ranks

_ADVERSARIAL = {"name": "logistic", "margin": 9.0, "adversarial": 1.0}
MODELS: dict[str, tuple[dict[str, Any], Any]] = {
    "TransE": ({"name": "transe", "norm": "l1"}, _ADVERSARIAL),
    "ComplEx": ({"name": "complex"}, "softmax"),
    "RotatE": ({"name": "rotate"}, _ADVERSARIAL),
}
"""The model's options, and its loss."""
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "": ({}, {}),
    ", products in bfloat16": ({}, {"products": "bfloat16"}),
    ", shared by 64": ({"share": 64}, {}),
}
"""What is added to a job's name, to the loader and to the training."""
PEER_BATCHES = (128, 512, 2048)
"""Sizes of batches that PyKEEN tries for each job."""


def numbers(model: str, width: int) -> int:
    """Return the numbers in an entity's row: of complex ones two each."""
    return width * (1 if model == "TransE" else 2)


def make_recipe(graph: str, model: str, options: dict[str, Any], negatives: int = 64, kind: str = "") -> Recipe:
    """Return the recipe of a training without end."""
    scorer, loss = MODELS[model]
    loader, train = KINDS[kind]
    return build_recipe(
        {
            "name": "knowledge-benchmark",
            "dataset": {"name": "triples", "path": str(data_folder() / "knowledge" / graph)},
            "partition": "none",
            "model": {**scorer, "dim": numbers(model, options["width"])},
            "train": {
                "loader": {"name": "triples", "batch_size": options["batch"], "negatives": negatives, **loader},
                "loss": loss,
                "epochs": 1_000_000,
                "threads": 1,
                "device": "cpu",
                **train,
            },
        }
    )


class Ours:
    """graphmill: the batches of `graphmill run`, drawn and learnt, without validation."""

    def __init__(self, folder: Path, options: dict[str, Any]) -> None:
        self.folder, self.options = folder, options
        self.trainers: dict[str, KnowledgeTrainer] = {}
        self.chunks: dict[str, int] = {}
        self.paces: dict[str, float] = {}
        self.jobs: dict[str, Job] = {}
        for model in MODELS:
            for negatives in options["negatives"]:
                for kind in KINDS:
                    job = f"{model}, {negatives}{kind}"
                    recipe = make_recipe(options["graph"], model, options, negatives, kind)
                    self.jobs[job] = lambda seconds, job=job, recipe=recipe: self._run(job, recipe, seconds)  # type: ignore[misc]

    def _run(self, job: str, recipe: Recipe, seconds: float) -> Done:
        if job not in self.trainers:
            manifest = PartitionManifest.model_validate_json((self.folder / "manifest.json").read_text())
            work = Path(self.options["work"]) / job.replace(", ", "-")
            work.mkdir(parents=True)
            made = TrainingJob.make(recipe, self.folder, manifest.digest, work)
            self.trainers[job] = KnowledgeTrainer(made, Ranks())
            self._learn(job, 4)  # compiles
            self.paces[job] = 8 / timed(lambda: self._learn(job, 8)).wall
        chunks = max(1, round(seconds * self.paces[job]))
        found = timed(lambda: self._learn(job, chunks))
        self.paces[job] = chunks / found.wall
        return found

    def _learn(self, job: str, chunks: int) -> float:
        trainer, first = self.trainers[job], self.chunks.get(job, 0)
        self.chunks[job] = first + chunks
        trainer.grid.load(trainer.grid.keys(0, 0), to_change=True)
        with trainer.taking_steps():
            rates = np.full(chunks, trainer.config.learning_rate)
            loss, triples = trainer.engine.train_chunks(range(first, first + chunks), rates)
        assert np.isfinite(loss)
        return triples


class Pykeen:
    """PyKEEN's own training: SLCWA, Adam, dense tables, batches of the size that is fastest for a job."""

    def __init__(self, folder: Path, options: dict[str, Any]) -> None:
        sys.path.append(options["peers"])
        import pykeen  # noqa: F401

        self.options, store = options, GraphStore.open(folder)
        edges, relations = np.asarray(store["train_edges"], np.int64), np.asarray(store["train_relation"], np.int64)
        triples = np.stack([edges[:, 0], relations, edges[:, 1]], 1)
        self.triples = torch.from_numpy(np.random.default_rng(1).permutation(triples))
        self.counts = store.manifest.num_nodes, store.manifest.num_relations
        self.loops: dict[tuple[str, int], Any] = {}
        self.best: dict[str, tuple[int, float]] = {}
        self.jobs: dict[str, Job] = {
            f"{model}, {negatives}": lambda seconds, model=model, negatives=negatives: self._run(
                model, negatives, seconds
            )  # type: ignore[misc]
            for model in MODELS
            for negatives in options["negatives"]
        }

    def _run(self, model: str, negatives: int, seconds: float) -> Done:
        job = f"{model}, {negatives}"
        if job not in self.best:
            paces = {batch: self._pace(model, negatives, batch) for batch in PEER_BATCHES}
            batch = max(paces, key=lambda size: paces[size])
            self.best[job] = batch, paces[batch]
            print(f"PyKEEN, {job}: batches of {batch}, triples a second {paces}", file=sys.stderr, flush=True)
        batch, pace = self.best[job]
        found = self._train(model, negatives, batch, max(1, round(seconds * pace / batch)))
        self.best[job] = batch, found.done / found.wall
        return found

    def _pace(self, model: str, negatives: int, batch: int) -> float:
        self._train(model, negatives, batch, 1)
        found = self._train(model, negatives, batch, max(1, 1024 // batch))
        return found.done / found.wall

    def _train(self, model: str, negatives: int, batch: int, batches: int) -> Done:
        from pykeen.triples import CoreTriplesFactory

        loop, count = self._loop(model, negatives), min(batch * batches, len(self.triples))
        factory = CoreTriplesFactory(self.triples[:count], *self.counts)

        def train() -> float:
            loop.train(factory, num_epochs=1, batch_size=batch, use_tqdm=False, use_tqdm_batch=False)
            return count

        return timed(train)

    def _loop(self, model: str, negatives: int) -> Any:
        from pykeen.losses import NSSALoss, SoftplusLoss
        from pykeen.models import ComplEx, RotatE, TransE
        from pykeen.training import SLCWATrainingLoop
        from pykeen.triples import CoreTriplesFactory

        if (model, negatives) not in self.loops:
            factory = CoreTriplesFactory(self.triples, *self.counts)
            kind, words = {"TransE": (TransE, {"scoring_fct_norm": 1}), "ComplEx": (ComplEx, {})}.get(
                model, (RotatE, {})
            )
            loss = SoftplusLoss() if model == "ComplEx" else NSSALoss()
            width = self.options["width"]
            made = kind(triples_factory=factory, embedding_dim=width, random_seed=0, loss=loss, **words)
            self.loops[model, negatives] = SLCWATrainingLoop(
                model=made,
                triples_factory=factory,
                optimizer=torch.optim.Adam(made.parameters()),
                negative_sampler_kwargs={"num_negs_per_pos": negatives},
            )
        return self.loops[model, negatives]


def main() -> None:
    die_with_parent()
    name, folder, options = sys.argv[1:]
    answers = take_stdout()
    use_threads(int(os.environ["OMP_NUM_THREADS"]))
    kinds: dict[str, Any] = {"graphmill": Ours, "pykeen": Pykeen}
    try:
        side = kinds[name](Path(folder), json.loads(options))
    except Exception as error:
        answers.write(json.dumps({"error": f"{type(error).__name__}: {error}"}) + "\n")
        return
    serve(side.jobs, {} if name == "graphmill" else {name: importlib.metadata.version(name)}, answers)


if __name__ == "__main__":
    main()
