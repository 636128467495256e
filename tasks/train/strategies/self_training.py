"""Training nodes that an earlier training has found: its confident predictions stand in for labels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from configs.errors import RecipeError
from configs.registry import STRATEGIES
from configs.schema import TrainConfig
from tasks.evaluators.scores import probabilities
from tasks.inference.predictor import Predictor
from tasks.storage.graph_store import Array, GraphStore
from tasks.storage.manifests import PartitionManifest
from tasks.train.checkpoint import load_model
from tasks.train.job import BEST, Job
from tasks.train.strategies.base import Strategy
from tasks.train.strategies.configs import SelfTrainingConfig


@STRATEGIES.register("self_training")
class SelfTraining(Strategy):
    """As data_parallel, several trainings in a row: each learns from what the one before it is sure of as well.

    Nodes outside the training split on which the last model is confident join it, with that model's predictions as
    targets; their own labels, where they have any, are not looked at. So the model gets to know nodes that differ from
    the training split, as later ones do. Source: Sun, Gu, Hu, "Scalable and adaptive graph neural networks with
    self-label-enhanced training" (https://arxiv.org/abs/2104.09376), section 4.3. Validation and evaluation read the
    graph itself.
    """

    Config = SelfTrainingConfig

    def check(self, train: TrainConfig, loader: str, manifest: PartitionManifest) -> None:
        """Refuse other tasks than classes of nodes, and a teacher of the user's own."""
        if (manifest.task, manifest.task_type, manifest.num_tasks) != ("node", "multiclass", 1):
            raise RecipeError(
                f"train.strategy=self_training is for one class a node, and {manifest.dataset} is a {manifest.task} "
                f"task ({manifest.task_type}); take train.strategy=data_parallel"
            )
        if self.config.teacher is not None:
            raise RecipeError("train.strategy.teacher is what a run tells its own rounds; remove it")

    def jobs(self, job: Job) -> list[Job]:
        """Return the first training, the rounds between, and the last one, which is the job itself."""
        jobs = [_with_strategy(job, {"name": "data_parallel"})]
        for _ in range(self.config.rounds):
            teacher = job.work / f"round-{len(jobs) - 1}" / BEST
            options = {"name": "self_training", "least": self.config.least, "teacher": str(teacher)}
            jobs.append(_with_strategy(job, options))
        before = [
            replace(round_, work=job.work / f"round-{number}", digest=f"{job.digest}-{number}")
            for number, round_ in enumerate(jobs[:-1])
        ]
        return [*before, jobs[-1]]

    def open(self, store: GraphStore) -> GraphStore:
        """Return the graph with the teacher's nodes in the training split."""
        return with_guesses(store, Path(self.config.teacher), self.config.least)


def _with_strategy(job: Job, options: dict[str, Any]) -> Job:
    return replace(job, train=TrainConfig.model_validate({**job.train.model_dump(mode="json"), "strategy": options}))


def with_guesses(store: GraphStore, teacher: Path, least: float) -> GraphStore:
    """Return the same graph with more training nodes.

    Args:
        store: the graph; single-class nodes, of one type where there are several.
        teacher: checkpoint of a model for this graph.
        least: least probability of a prediction that counts.

    Returns:
        a store in which `label` holds predictions for the nodes that `train_idx` now has besides, and -1 for all other
        nodes outside the training split: of their labels nothing can be read.
    """
    model, manifest = load_model(teacher), store.manifest
    train = np.asarray(store["train_idx"])
    others = np.setdiff1d(_of_target_type(store), train, assume_unique=True)
    likely = probabilities(Predictor(store).node_scores(model, others))
    sure = likely.max(1) >= least
    label = np.full(manifest.num_nodes, -1, np.int64)
    label[train] = store["label"][train]
    label[others[sure]] = likely.argmax(1)[sure]
    return _Overlay(store, {"label": label, "train_idx": np.union1d(train, others[sure]).astype(train.dtype)})


def _of_target_type(store: GraphStore) -> Array:
    """Return the nodes that may have a class at all, ascending."""
    manifest = store.manifest
    types = store.get("node_type")
    if types is None:
        return np.arange(manifest.num_nodes)
    return np.flatnonzero(types == manifest.node_types.index(manifest.target_type))


class _Overlay(GraphStore):
    """A graph some of whose arrays are replaced by others in memory."""

    def __init__(self, store: GraphStore, arrays: dict[str, Array]) -> None:
        super().__init__(store.folder, store.manifest)
        self._open: dict[str, Any] = dict(arrays)
