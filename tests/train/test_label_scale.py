"""Labels of a regression: trained near one, whatever their units, and predicted in these."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from configs.load import build_recipe
from configs.registry import MODELS
from models.base import GraphModel
from models.facts import GraphFacts
from tasks.apply.model.files import load_published, write_model
from tasks.evaluators.metrics import rmse
from tasks.inference.predictor import Predictor
from tasks.kinds.of import predict
from tasks.sampling.rows.moments import label_scale
from tasks.stage import Parent
from tasks.storage.graph_store import GraphStore
from tasks.train.job import BEST
from tasks.train.labels.scale import training_facts
from tasks.train.run import Bookkeeper
from tasks.train.state import checkpoint
from tasks.train.strategies.base import Ranks
from tasks.train.warm import earlier as warm_model
from tasks.train.warm.earlier import DoesNotFitError, _earlier_scale
from tests.support import as_partition, molecule_graph, node_graph
from tests.train.in_process import make_engine, make_job, own_settings, run_engine

FACTS = GraphFacts("node", 2, 4, feature_dim=3, label_mean=(100.0, 0.0), label_scale=(20.0, 1.0))


def regression(folder: Path, task: str = "node", factor: float = 1.0, offset: float = 0.0) -> Parent:
    """A graph whose label follows its nodes' features and neighbours, or how many nodes it has; some lack one."""
    graph = node_graph(folder) if task == "node" else molecule_graph(folder)
    rng = np.random.default_rng(3)
    if task == "node":
        value = np.load(folder / "label.npy") + np.load(folder / "feat.npy")[:, 0] / 4
    else:
        value = np.diff(np.load(folder / "graph_offsets.npy")) / 3
    label = (factor * np.stack([value, rng.standard_normal(len(value))], 1) + offset).astype(np.float32)
    label[rng.random(label.shape) < 0.1] = np.nan
    name = "label" if task == "node" else "graph_label"
    np.save(folder / f"{name}.npy", label)
    entry = graph.manifest.arrays.get(name)
    entry = entry.model_copy(update={"dtype": "float32", "shape": label.shape})
    changes = {"task_type": "regression", "num_classes": 0, "num_tasks": 2, "metric": "rmse"}
    arrays = {**graph.manifest.arrays, name: entry}
    part = as_partition(Parent(graph.manifest.model_copy(update={**changes, "arrays": arrays}), folder))
    (folder / "manifest.json").write_text(part.manifest.model_dump_json())
    return part


def train(graph: Parent, work: Path, *overrides: str) -> GraphModel:
    """The best model of a short training."""
    task = graph.manifest.task
    sections = {
        "name": "test",
        "dataset": {"name": "synthetic"},
        "model": {"name": "graphsage" if task == "node" else "gin", "hidden_dim": 16, "num_layers": 2, "dropout": 0},
        "train": {"epochs": 12, "loader": {"name": "auto", "batch_size": 32}, "threads": 1, "learning_rate": 0.02},
    }
    with own_settings():
        engine = make_engine(make_job(build_recipe(sections, overrides), graph, work))
        run_engine(engine)
    return checkpoint.load_model(work / BEST)


def predicted(model: GraphModel, graph: Parent) -> tuple[np.ndarray, np.ndarray]:
    found = predict(Predictor(GraphStore(graph.folder, graph.manifest)), model, "valid")
    assert found.scores is not None
    assert found.label is not None
    return found.scores, found.label


def test_mean_and_deviation_of_the_labels_that_exist() -> None:
    labels = np.array([[1e6, 5, np.nan], [np.nan, 5, np.nan], [1e6 + 2, 5, np.nan], [77, 7, 7]], np.float32)
    mean, scale = label_scale(labels, np.array([0, 1, 2]))
    assert mean.tolist() == [1e6 + 1, 5, 0]
    assert scale.tolist() == [1, 1, 1]  # a constant label and one that nobody has too
    mean, scale = label_scale(labels, np.array([0, 3]))
    assert scale[0] == pytest.approx((1e6 - 77) / 2)


@pytest.mark.parametrize("task", ["node", "graph"])
def test_the_units_of_labels_change_nothing_but_the_units(tmp_path: Path, task: str) -> None:
    found = {}
    for factor, offset in ((1, 0), (64, 0), (64, 1510)):
        graph = regression(tmp_path / f"{factor}-{offset}", task, factor, offset)
        scores, label = predicted(train(graph, tmp_path / f"work-{factor}-{offset}", "train.epochs=6"), graph)
        assert rmse(label[:, :1], scores[:, :1]) < 1.2 * np.nanstd(label[:, 0])  # about the mean, wherever that is
        found[factor, offset] = scores
    np.testing.assert_array_equal(found[64, 0], 64 * found[1, 0])  # a power of two rounds nothing


def test_the_scale_travels_with_the_model(tmp_path: Path) -> None:
    graph = regression(tmp_path / "graph", factor=50, offset=1510)
    model = train(graph, tmp_path / "work", "train.epochs=1")
    facts = training_facts(GraphStore(graph.folder, graph.manifest))
    assert model.facts == facts
    assert facts.label_scale[0] > 40
    write_model(tmp_path / "files", tmp_path / "work" / BEST, "m", {}, {})
    np.testing.assert_array_equal(predicted(load_published(tmp_path / "files"), graph)[0], predicted(model, graph)[0])
    described = json.loads((tmp_path / "files" / "model.json").read_text())["facts"]
    assert described["label_mean"] == list(facts.label_mean)


def test_a_resumed_training_keeps_its_units(tmp_path: Path) -> None:
    """Those of a warm start are not those of its own labels."""
    graph = regression(tmp_path / "graph")
    recipe: dict[str, Any] = {
        "name": "test",
        "dataset": {"name": "synthetic"},
        "model": {"name": "gcn", "hidden_dim": 8, "num_layers": 1},
        "train": {"epochs": 2, "threads": 1},
    }
    with own_settings():
        job = make_job(build_recipe(recipe), graph, tmp_path / "work")
        engine = make_engine(job)
        engine.model.scale_labels((7.0, 8.0), (2.0, 3.0))
        Bookkeeper(engine).save()
        assert make_engine(job).model.label_units == ([7.0, 8.0], [2.0, 3.0])


@pytest.mark.parametrize(
    ("earlier", "expected"),
    [
        ({"label_mean": [90.0, 0.0], "label_scale": [30.0, 1.0]}, ([90.0, 0.0], [30.0, 1.0])),
        ({"label_mean": [100.0, 0.0], "label_scale": [1.0, 1.0]}, None),
        ({"label_mean": [1000.0, 0.0], "label_scale": [20.0, 1.0]}, None),
    ],
)
def test_a_warm_start_keeps_the_earlier_units_while_they_are_near(
    earlier: dict[str, Any], expected: tuple[list[float], list[float]] | None
) -> None:
    if expected is None:
        with pytest.raises(DoesNotFitError, match=r"it learnt labels of .* and now they are 100 ± 20"):
            _earlier_scale(FACTS, earlier)
    else:
        assert _earlier_scale(FACTS, earlier) == expected
    classes = replace(FACTS, label_mean=(), label_scale=())
    assert _earlier_scale(classes, {}) is None


def test_a_warm_start_answers_as_the_earlier_model_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    earlier = train(regression(tmp_path / "earlier", factor=50, offset=1510), tmp_path / "work", "train.epochs=1")
    graph = regression(tmp_path / "graph", factor=60, offset=1600)
    store = GraphStore(graph.folder, graph.manifest)
    model: GraphModel = MODELS.create(earlier.config, training_facts(store))
    assert model.label_units != earlier.label_units
    # Whether all else fits is tested with snapshots.
    monkeypatch.setattr(warm_model, "_fitted", lambda model, warm, store, state: state)
    checkpoint_file: Any = SimpleNamespace(checkpoint=tmp_path / "work" / BEST)
    assert warm_model.begin_warm(model, checkpoint_file, store, Ranks()) == ""
    assert model.label_units == earlier.label_units
    np.testing.assert_array_equal(predicted(model.eval(), graph)[0], predicted(earlier, graph)[0])


def test_scores_in_half_precision_keep_the_digits_of_the_mean() -> None:
    model: GraphModel = MODELS.create(MODELS.config({"name": "gcn", "hidden_dim": 4, "num_layers": 1}), FACTS)
    vectors = torch.randn(50, 4)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        half = model.score(vectors)
    assert half.dtype == torch.float32
    assert len(half[:, 0].unique()) > 25  # bfloat16 knows every half between 64 and 128
    torch.testing.assert_close(half, model.score(vectors), atol=0.3, rtol=0)
    torch.testing.assert_close(model.standardized(half), (half - torch.tensor([100.0, 0])) / torch.tensor([20.0, 1]))
