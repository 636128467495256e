"""The sides of `benchmarks.knowledge`, each in a process of its own.

    python -m benchmarks.knowledge_sides graphmill|PyKEEN|"PyKEEN tuned" FOLDER OPTIONS

A parent asks as in `embeddings_peers`. FOLDER is that of a prepared graph; each side leaves the sizes of batches that
it takes in NAME.json of the folder `work`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.embeddings_ours import train_chunks, training_job
from benchmarks.embeddings_peers import Done, Job, Paced, serve_side, timed
from benchmarks.triple_models import MODELS, columns, import_pykeen, pykeen_model
from configs.load import build_recipe
from configs.schema import Recipe
from tasks.processes.children import die_with_parent
from tasks.storage.graph_store import GraphStore
from tasks.train.knowledge.engine import TripleEngine
from tasks.train.strategies.base import Ranks

OPTIONS: dict[str, tuple[dict[str, Any], Any]] = {
    "TransE": ({"name": "transe", "norm": "l1"}, {"name": "logistic", "margin": 9.0, "adversarial": 1.0}),
    "ComplEx": ({"name": "complex"}, "softmax"),
    "RotatE": ({"name": "rotate"}, {"name": "logistic", "margin": 9.0, "adversarial": 1.0}),
}
"""The model's, and its loss."""
VARIANTS: dict[str, tuple[int, int | None]] = {
    "a triple": (2, None),
    "an end": (1, None),
    "a triple, shared by 64": (2, 64),
    "a triple, not shared": (2, 1),
}
"""How graphmill draws: what the number of negatives is divided by for each end of a triple, and how many triples share
them (None: all of a batch)."""
BATCHES = (512, 1024, 2048)
"""Triples of a batch of graphmill that are tried."""
PEER_NEGATIVES = (1 << 14, 1 << 15, 1 << 16, 1 << 17)
"""What all triples of a batch of PyKEEN have together, in the batches that are tried; twice as many take 6 GB and gain
up to 5 % (Sapphire Rapids, November 2026)."""
PEER_TUNED = {"TransE": {"entity_constrainer": None}, "ComplEx": {"regularizer": None}, "RotatE": {}}
"""What graphmill's training has not either: TransE's constraint reads all entities after each step, and ComplEx's
penalty takes longer than all else together."""
PEERS = ("PyKEEN", "PyKEEN tuned")
_TRIAL_SECONDS = 1.0


def job_name(model: str, negatives: int, variant: str = "a triple") -> str:
    return f"{model}, {negatives} negatives {variant}"


def make_recipe(
    options: dict[str, Any], model: str, negatives: int = 64, variant: str = "an end", batch: int = BATCHES[0]
) -> Recipe:
    """Return the recipe of a training without end."""
    (scorer, loss), (divisor, share) = OPTIONS[model], VARIANTS[variant]
    loader = {"batch_size": batch, "negatives": negatives // divisor, "share": share}
    return build_recipe(
        {
            "name": f"knowledge-{options['graph']}",
            "dataset": {"name": "triples", "path": options["triples"]},
            "model": {**scorer, "dim": columns(model, options["width"])},
            "train": {
                "loader": {"name": "triples", **loader},
                "loss": loss,
                "optimizer": "adagrad",
                "epochs": 1_000_000,
                "threads": 1,
                "device": "cpu",
            },
        }
    )


class Fastest:
    """A job that can be done in several ways: tries all at first, and then takes the one that is fastest."""

    def __init__(self, ways: dict[int, Job], note: Callable[[int], None]) -> None:
        """`note` is told which it was."""
        self.ways, self.note = ways, note
        self.best: Job | None = None

    def __call__(self, seconds: float) -> Done:
        if self.best is None:
            way = next(iter(self.ways))
            if len(self.ways) > 1:
                found = {way: job(_TRIAL_SECONDS) for way, job in self.ways.items()}
                way = max(found, key=lambda way: found[way].done / found[way].cpu)
            self.best = self.ways[way]
            self.note(way)
        return self.best(seconds)


class Choices:
    """The batches that a side has found to be the fastest, by job, in a file for the parent."""

    def __init__(self, work: Path, name: str) -> None:
        self.path = work / f"{name}.json"
        self.batches: dict[str, int] = {}

    def job(self, name: str, ways: dict[int, Job]) -> Job:
        """Return a job that takes the fastest way; see `Fastest`."""

        def note(batch: int) -> None:
            self.batches[name] = batch
            self.path.write_text(json.dumps(self.batches))

        return Fastest(ways, note)


class Ours:
    """The batches of `graphmill run`, drawn and learnt from, without validation."""

    def __init__(self, folder: Path, options: dict[str, Any]) -> None:
        self.folder, self.options = folder, options
        choices, tried = Choices(Path(options["work"]), "graphmill"), options["batches"]
        names = {
            job_name(model, negatives, variant): (model, negatives, variant)
            for model in MODELS
            for negatives in options["negatives"]
            for variant in VARIANTS
        }
        self.jobs = {
            name: choices.job(name, {batch: Paced(self._training(*words, batch)) for batch in tried})
            for name, words in names.items()
        }

    def _training(self, model: str, negatives: int, variant: str, batch: int) -> Callable[[int], Done]:
        trainers: list[TripleEngine] = []
        first = 0

        def train(chunks: int) -> Done:
            nonlocal first
            if not trainers:
                recipe = make_recipe(self.options, model, negatives, variant, batch)
                name = job_name(model, negatives, variant).replace(", ", "-")
                work = Path(self.options["work"]) / f"{name}-{batch}"
                trainers.append(TripleEngine(training_job(recipe, self.folder, work), Ranks()))
            some = range(first, first + chunks)
            first = some.stop
            return timed(lambda: train_chunks(trainers[0], some))

        return train


class Pykeen:
    """PyKEEN's own training loop: negatives drawn for each triple, dense tables, Adam, the models as they come.

    Tuned: Adagrad, as graphmill has it, which reads and writes less of the tables at each step, and `PEER_TUNED`.
    """

    def __init__(self, folder: Path, options: dict[str, Any], name: str) -> None:
        self.work, self.width, self.name = Path(options["work"]), options["width"], name
        self.tuned, self.tried = name == "PyKEEN tuned", options["tried"]
        import_pykeen(options["peers"], self.work / "pykeen")
        store = GraphStore.open(folder)
        edges, relations = np.asarray(store["train_edges"], np.int64), np.asarray(store["train_relation"], np.int64)
        triples = np.stack([edges[:, 0], relations, edges[:, 1]], 1)
        self.triples = torch.from_numpy(np.random.default_rng(1).permutation(triples))
        self.counts = {"num_entities": store.manifest.num_nodes, "num_relations": store.manifest.num_relations}
        self.choices = Choices(self.work, name)
        self.jobs: dict[str, Job] = {
            job_name(model, negatives): self._training(model, negatives)
            for model in MODELS
            for negatives in options["negatives"]
        }

    def _training(self, model: str, negatives: int) -> Job:
        loops: list[Any] = []

        def train(batch: int, batches: int) -> Done:
            if not loops:
                loops.append(self._loop(model, negatives))
            return self._train(loops[0], batch, batches)

        sizes = {max(1, min(count // negatives, len(self.triples) // 2)) for count in self.tried}
        ways = {size: Paced(lambda n, size=size: train(size, n), first=1) for size in sorted(sizes)}  # type: ignore[misc]
        return self.choices.job(job_name(model, negatives), ways)

    def _loop(self, model: str, negatives: int) -> Any:
        from pykeen.losses import NSSALoss, SoftplusLoss
        from pykeen.training import SLCWATrainingLoop

        loss = SoftplusLoss() if model == "ComplEx" else NSSALoss(margin=9.0, adversarial_temperature=1.0)
        factory = self._factory(self.triples)
        made = pykeen_model(model, factory, self.width, loss=loss, **(PEER_TUNED[model] if self.tuned else {}))
        kind = torch.optim.Adagrad if self.tuned else torch.optim.Adam
        return SLCWATrainingLoop(
            model=made,
            triples_factory=factory,
            optimizer=kind(made.parameters()),
            negative_sampler_kwargs={"num_negs_per_pos": negatives},
            automatic_memory_optimization=False,  # it would train two batches more, to see what has room
        )

    def _factory(self, triples: torch.Tensor) -> Any:
        from pykeen.triples import CoreTriplesFactory

        return CoreTriplesFactory(triples, **self.counts)

    def _train(self, loop: Any, batch: int, batches: int) -> Done:
        count = min(batches, len(self.triples) // batch - 1)
        return train_batches(loop, self._factory(self.triples[: batch * (count + 1)]), batch, count)


def train_batches(loop: Any, factory: Any, batch: int, count: int) -> Done:
    """Have a loop of PyKEEN train an epoch; all but its first batch count, and nothing of what is around them.

    Args:
        loop: of PyKEEN.
        factory: of as many triples as one batch more has.
        batch: triples of a batch.
        count: batches.
    """
    from pykeen.training import TrainingCallback

    class Clock(TrainingCallback):  # type: ignore[misc]
        batches = -1

        def post_batch(self, **_: Any) -> None:
            self.batches += 1
            if not self.batches:
                self.began = time.process_time(), time.perf_counter()
            if self.batches == count:
                self.cpu, self.wall = time.process_time() - self.began[0], time.perf_counter() - self.began[1]

    clock, epochs = Clock(), len(loop.losses_per_epochs)
    loop.train(
        factory,
        num_epochs=epochs + 1,  # with those that the loop has had: 1 has it train once and then never again
        continue_training=epochs > 0,
        batch_size=batch,
        use_tqdm=False,
        callbacks=clock,
    )
    if clock.batches != count:
        raise RuntimeError(f"PyKEEN trained {clock.batches + 1} batches of {count + 1}")
    return Done(batch * count, clock.cpu, clock.wall)


def main() -> None:
    die_with_parent()
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    peers = {name: partial(Pykeen, name=name) for name in PEERS}
    serve_side({"graphmill": Ours, **peers})


if __name__ == "__main__":
    main()
