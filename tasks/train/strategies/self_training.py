"""Training nodes that an earlier run has found: confident predictions of a teacher stand in for labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from configs.base import ComponentConfig
from configs.errors import RecipeError
from configs.registry import STRATEGIES
from configs.schema import TrainConfig
from tasks.evaluate.diagnostics import probabilities
from tasks.graph_store import Array, GraphStore
from tasks.manifests import PartitionManifest
from tasks.train.checkpoint import load_model
from tasks.train.inference import Predictor
from tasks.train.strategies.base import Ranks, Strategy


@STRATEGIES.register("self_training")
class SelfTraining(Strategy):
    """As data_parallel, on more nodes: those outside the training split of which an earlier run is sure.

    Their targets are the earlier run's predictions; their own labels, where they have any, are not looked at. So the
    model gets to know nodes that differ from the training split, as later ones do. Source: Sun, Gu, Hu, "Scalable and
    adaptive graph neural networks with self-label-enhanced training" (https://arxiv.org/abs/2104.09376), section 4.3.
    Validation and evaluation read the graph itself.
    """

    class Config(ComponentConfig):
        """Options of self_training."""

        teacher: str
        """`best.pt` of a finished run on the same graph: artifacts/train/KEY/best.pt under the home."""
        least: float = Field(default=0.9, gt=0, lt=1)
        """Least probability of the teacher's prediction."""

    def __init__(self, config: ComponentConfig, ranks: Ranks) -> None:
        super().__init__(config, ranks)
        self.teacher = Path(self.config.teacher).expanduser()

    def check(self, train: TrainConfig, loader: str, manifest: PartitionManifest) -> None:
        """Refuse other tasks than classes of nodes, and a teacher that is not there."""
        if (manifest.task, manifest.task_type, manifest.num_tasks) != ("node", "multiclass", 1):
            raise RecipeError(
                f"train.strategy=self_training is for one class a node, and {manifest.dataset} is a {manifest.task} "
                f"task ({manifest.task_type}); take train.strategy=data_parallel"
            )
        if not self.teacher.is_file():
            raise RecipeError(
                f"train.strategy.teacher={self.config.teacher} is no file; run the recipe with data_parallel first and "
                "name its best.pt (`run --json` says where its artifacts are)"
            )

    def open(self, store: GraphStore) -> GraphStore:
        """Return the graph with the teacher's nodes in the training split."""
        return with_guesses(store, self.teacher, self.config.least)


def with_guesses(store: GraphStore, teacher: Path, least: float) -> GraphStore:
    """Return the same graph with more training nodes.

    Args:
        store: the graph; single-class nodes.
        teacher: checkpoint of a model for this graph.
        least: least probability of a prediction that counts.

    Returns:
        a store in which `label` holds predictions for the nodes that `train_idx` now has besides, and -1 for all other
        nodes outside the training split: of their labels nothing can be read.

    Raises:
        RecipeError: the teacher is a model of another graph.
    """
    model = load_model(teacher)
    manifest = store.manifest
    if (model.facts.num_nodes, model.facts.feature_dim, model.facts.out_dim) != (
        manifest.num_nodes,
        manifest.feature_dim,
        manifest.num_classes,
    ):
        raise RecipeError(
            f"train.strategy.teacher={teacher} was trained on another graph ({model.facts.num_nodes:,} nodes, "
            f"{model.facts.feature_dim} features, {model.facts.out_dim} classes); name a run on this one"
        )
    train = np.asarray(store["train_idx"])
    others = np.setdiff1d(np.arange(manifest.num_nodes), train, assume_unique=True)
    likely = probabilities(Predictor(store).node_scores(model, others))
    sure = likely.max(1) >= least
    label = np.full(manifest.num_nodes, -1, np.int64)
    label[train] = store["label"][train]
    label[others[sure]] = likely.argmax(1)[sure]
    return _Overlay(store, {"label": label, "train_idx": np.union1d(train, others[sure]).astype(train.dtype)})


class _Overlay(GraphStore):
    """A graph some of whose arrays are replaced by others in memory."""

    def __init__(self, store: GraphStore, arrays: dict[str, Array]) -> None:
        super().__init__(store.folder, store.manifest)
        self._open: dict[str, Any] = dict(arrays)
