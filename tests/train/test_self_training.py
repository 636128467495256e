"""Self-training: which nodes a teacher adds, with which labels, and that nothing else of the graph's labels is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from configs.errors import RecipeError
from configs.registry import MODELS, STRATEGIES
from configs.schema import TrainConfig
from models.base import GraphModel
from tasks.graph_store import GraphStore
from tasks.manifests import PartitionManifest
from tasks.train import checkpoint
from tasks.train.inference import Predictor
from tasks.train.loaders.base import graph_facts
from tasks.train.strategies.base import Ranks
from tasks.train.strategies.self_training import with_guesses
from tests.support import as_partition, molecule_graph, node_graph

LEAST = 0.5


@pytest.fixture
def graph(tmp_path: Path) -> tuple[GraphStore, GraphModel, Path]:
    """Return a graph, a teacher with opinions, and its checkpoint."""
    parent = as_partition(node_graph(tmp_path / "g"))
    store = GraphStore(parent.folder, parent.manifest)
    torch.manual_seed(0)
    model: GraphModel = MODELS.create(
        MODELS.config({"name": "graphsage", "hidden_dim": 8, "num_layers": 2}), graph_facts(store.manifest)
    )
    path = tmp_path / "best.pt"
    checkpoint.save_atomic(checkpoint.best_state(model, "digest", 1, 0.5), path)
    return store, model, path


def test_sure_nodes_join_the_training_split(graph: tuple[GraphStore, GraphModel, Path]) -> None:
    store, model, path = graph
    more = with_guesses(store, path, LEAST)
    train = np.asarray(store["train_idx"])
    others = np.setdiff1d(np.arange(store.manifest.num_nodes), train)
    likely = torch.from_numpy(Predictor(store).node_scores(model, others)).softmax(1).numpy()
    sure = likely.max(1) >= LEAST
    assert 0 < sure.sum() < len(others), "the limit is not tried"
    assert sorted(more["train_idx"]) == sorted([*train, *others[sure]])
    np.testing.assert_array_equal(more["label"][train], store["label"][train])
    np.testing.assert_array_equal(more["label"][others[sure]], likely.argmax(1)[sure])
    assert (more["label"][others[~sure]] == -1).all()
    np.testing.assert_array_equal(more["feat"], store["feat"])
    assert len(store["train_idx"]) == len(train), "the graph itself stays as it is"


def test_labels_of_other_splits_change_nothing(graph: tuple[GraphStore, GraphModel, Path], tmp_path: Path) -> None:
    store, _, path = graph
    label = np.array(store["label"])
    others = np.setdiff1d(np.arange(len(label)), store["train_idx"])
    label[others] = 0
    np.save(store.folder / "label.npy", label)
    changed = GraphStore(store.folder, store.manifest)
    assert (changed["label"][others] == 0).all()
    np.testing.assert_array_equal(
        with_guesses(store, path, LEAST)["label"], with_guesses(changed, path, LEAST)["label"]
    )


def make(teacher: Path) -> Any:
    return STRATEGIES.create(STRATEGIES.config({"name": "self_training", "teacher": str(teacher)}), Ranks())


def test_refusals(graph: tuple[GraphStore, GraphModel, Path], tmp_path: Path) -> None:
    store, _, path = graph
    assert isinstance(store.manifest, PartitionManifest)
    make(path).check(TrainConfig(), "neighbor", store.manifest)
    with pytest.raises(RecipeError, match="is no file"):
        make(tmp_path / "none.pt").check(TrainConfig(), "neighbor", store.manifest)
    molecules = as_partition(molecule_graph(tmp_path / "m")).manifest
    assert isinstance(molecules, PartitionManifest)
    with pytest.raises(RecipeError, match="one class a node"):
        make(path).check(TrainConfig(), "graph", molecules)
    other = GraphStore(store.folder, store.manifest.model_copy(update={"num_nodes": store.manifest.num_nodes + 1}))
    with pytest.raises(RecipeError, match="another graph"):
        make(path).open(other)
