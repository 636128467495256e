"""Self-training: which nodes a teacher adds, with which labels, and that nothing else of the graph's labels is read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from configs.errors import RecipeError
from configs.load import build_recipe
from configs.registry import MODELS
from configs.training import TrainConfig
from models.base import GraphModel
from tasks.inference.predictor import Predictor
from tasks.stage import Listener, run_stage
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home
from tasks.storage.manifests import ArrayEntry, PartitionManifest
from tasks.supervise import Launcher
from tasks.train import stage
from tasks.train.gradients.family import check_self_training, trainings
from tasks.train.job import BEST, RESULT, Job
from tasks.train.labels.predicted import with_predicted_labels
from tasks.train.ranks import launch
from tasks.train.ranks.agreement import STAGE as STAGE_FACT
from tasks.train.stage import STAGE
from tasks.train.state import checkpoint
from tests.support import as_partition, molecule_graph, node_graph

MIN_PROBABILITY = 0.5
SECTIONS = {
    "name": "rounds",
    "dataset": {"name": "synthetic"},
    "model": {"name": "graphsage", "hidden_dim": 8, "num_layers": 2},
    "train": {
        "self_training": {"rounds": 2, "min_probability": MIN_PROBABILITY},
        "loader": "full",
        "epochs": 3,
        "learning_rate": 0.01,
        "device": "cpu",
        "threads": 1,
    },
}


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
    more = with_predicted_labels(store, path, MIN_PROBABILITY)
    train = np.asarray(store["train_idx"])
    others = np.setdiff1d(np.arange(store.manifest.num_nodes), train)
    likely = torch.from_numpy(Predictor(store).node_scores(model, others)).softmax(1).numpy()
    sure = likely.max(1) >= MIN_PROBABILITY
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
        with_predicted_labels(store, path, MIN_PROBABILITY)["label"],
        with_predicted_labels(changed, path, MIN_PROBABILITY)["label"],
    )


def test_nodes_of_other_types_get_no_labels(graph: tuple[GraphStore, GraphModel, Path]) -> None:
    """There is nothing to be sure of: only one type has classes."""
    store, _, path = graph
    types = (np.arange(store.manifest.num_nodes) % 3 == 1).astype(np.int16)
    types[store["train_idx"]] = 1
    np.save(store.folder / "node_type.npy", types)
    entry = ArrayEntry(path="node_type.npy", dtype="int16", shape=types.shape)
    several = {"node_types": ("author", "paper"), "target_type": "paper"}
    arrays = {**store.manifest.arrays, "node_type": entry}
    mixed = GraphStore(store.folder, store.manifest.model_copy(update={**several, "arrays": arrays}))
    plain, more = (
        with_predicted_labels(store, path, MIN_PROBABILITY),
        with_predicted_labels(mixed, path, MIN_PROBABILITY),
    )
    assert (types[plain["train_idx"]] == 0).any(), "nothing would be kept out"
    np.testing.assert_array_equal(more["train_idx"], [v for v in plain["train_idx"] if types[v] == 1])
    assert (more["label"][types == 0] == -1).all()


def test_refusals(graph: tuple[GraphStore, GraphModel, Path], tmp_path: Path) -> None:
    store, _, _ = graph
    train = TrainConfig(self_training={"rounds": 1})
    assert isinstance(store.manifest, PartitionManifest)
    check_self_training(train, store.manifest)
    molecules = as_partition(molecule_graph(tmp_path / "m")).manifest
    assert isinstance(molecules, PartitionManifest)
    check_self_training(TrainConfig(), molecules)
    with pytest.raises(RecipeError, match=r"train\.self_training is for one class a node"):
        check_self_training(train, molecules)


def test_rounds_follow_each_other_and_finished_ones_are_kept(tmp_path: Path, home: Home) -> None:
    parent = as_partition(node_graph(tmp_path / "g"))
    (parent.folder / "manifest.json").write_text(parent.manifest.model_dump_json())
    heard = Heard()
    outcome = run_stage(STAGE, build_recipe(SECTIONS), {"partition": parent}, home, listener=heard)
    assert [text for text in heard.texts if text.startswith("training ")] == [f"training {i} of 3" for i in (1, 2, 3)]
    assert set(outcome.manifest.files) == {"best.pt", "last.pt", "metrics.jsonl"}
    assert outcome.manifest.rows > 3 * len(GraphStore(parent.folder, parent.manifest)["train_idx"])


def test_finished_rounds_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parent = as_partition(node_graph(tmp_path / "g"))
    job = Job.make(build_recipe(SECTIONS), parent.folder, "graph", tmp_path / "work")
    first, second, last = trainings(job)
    assert first.teacher is None
    assert [second.teacher, last.teacher] == [first.work / BEST, second.work / BEST]
    assert last.work == job.work
    assert len({round_.digest for round_ in (first, second, last)}) == 3
    ran: list[Path] = []
    monkeypatch.setattr(stage, "run_training", lambda job, context: ran.append(job.work))
    first.work.mkdir(parents=True)
    (first.work / RESULT).write_text("{}")
    stage._run_all([first, second, last], Heard())  # type: ignore[arg-type]
    assert ran == [second.work, last.work]


def test_trainings_of_one_job_do_not_meet_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of machines with homes of their own one may have finished the first when both are killed."""
    stages: list[str] = []

    def launcher(train: Any, place: Any, waiting: int) -> Launcher:
        stages.append(place.facts[STAGE_FACT])
        return Launcher(["-c", "pass"], dict(os.environ))

    monkeypatch.setattr(launch, "rank_launcher", launcher)
    for job in trainings(Job.make(build_recipe(SECTIONS), tmp_path, "graph", tmp_path)):
        launch.start_ranks(job, tmp_path / "job.json", tmp_path / "log").wait()
    assert stages == ["train-0", "train-1", "train"]


class Heard(Listener):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def message(self, *said: str) -> None:
        self.texts.append(said[-1])
