"""Several tasks that share a model: their loss, their metrics and what is written of them are those of each alone."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from configs.errors import RecipeError
from configs.load import build_recipe
from configs.registry import EVALUATORS
from models.losses import LOSSES, loss_of_several
from tasks.controls.features import ControlledGraph
from tasks.controls.labels import SeveralControls
from tasks.evaluate.intervals import Measuring
from tasks.evaluators.prediction import Prediction
from tasks.evaluators.several import make_evaluator
from tasks.inference.predictor import Predictor, evaluating
from tasks.kinds.base import TaskRows
from tasks.kinds.judged import Deciding
from tasks.kinds.of import predict
from tasks.kinds.several import KIND
from tasks.stage import Parent
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import ArrayWriter, GraphStore
from tasks.storage.heads import head_manifest, head_views
from tasks.storage.ids import IdMap
from tasks.storage.manifests import TaskHead
from tasks.train.job import BEST
from tasks.train.labels.scale import training_facts
from tasks.train.stage import _refuse_later_rows
from tasks.train.state.checkpoint import load_model
from tests.ranked_shop import store_of
from tests.shop_graph import shop_graph
from tests.train.in_process import make_engine, make_job, own_settings, run_engine

HEADS = (
    TaskHead(name="good", task_type="binary", num_classes=2, metric="rocauc"),
    TaskHead(name="kind", task_type="multiclass", num_classes=4, metric="accuracy", weight=0.5),
    TaskHead(name="sizes", task_type="regression", num_tasks=2, metric="rmse", weight=2.0),
)


def graph_of_several(folder: Path, num_customers: int = 60) -> Parent:
    """The small shop; a task is good (as there), of one of four kinds, and has two sizes; some are not known."""
    parent = shop_graph(folder, num_customers)
    good = np.load(folder / "label.npy").astype(np.float32)
    rng = np.random.default_rng(3)
    label = np.full((len(good), 4), np.nan, np.float32)
    tasks = good >= 0
    label[tasks, 0] = good[tasks]
    label[tasks, 1] = rng.integers(0, 4, tasks.sum())
    label[tasks, 2:] = 100 + 30 * good[tasks, None] + rng.standard_normal((tasks.sum(), 2))
    for column in range(1, 4):
        label[rng.random(len(label)) < 0.2, column] = np.nan
    writer = ArrayWriter(folder)
    writer.write("label", label)
    fields = {"task_type": "several", "num_classes": 0, "num_tasks": 4, "metric": "good.rocauc", "heads": HEADS}
    manifest = parent.manifest.model_copy(update=fields)
    arrays = {**manifest.arrays, **writer.entries}
    manifest = manifest.model_copy(update={"arrays": arrays})
    (folder / "manifest.json").write_text(manifest.model_dump_json())
    return Parent(manifest, folder)


def test_the_loss_is_the_weighted_sum_of_each_ones(tmp_path: Path) -> None:
    facts = training_facts(store_of(graph_of_several(tmp_path)))
    assert (facts.out_dim, facts.head_scores, facts.head_labels) == (7, (1, 4, 2), (1, 1, 2))
    assert facts.label_scale[:5] == (1.0,) * 5
    assert min(facts.label_scale[5:]) > 5
    torch.manual_seed(0)
    scores = torch.randn(37, 7, requires_grad=True)
    target = torch.stack([torch.randint(2, (37,)).float(), torch.randint(4, (37,)).float(), *torch.randn(2, 37)], 1)
    target[torch.rand(37, 4) < 0.3] = torch.nan
    loss = loss_of_several(scores, target, facts)
    (found,) = torch.autograd.grad(loss, scores)
    kinds = torch.nan_to_num(target[:, 1], nan=-1).long()
    scale = torch.tensor(facts.label_scale[5:])
    expected = (
        LOSSES["binary"](scores[:, :1], target[:, :1])
        + 0.5 * LOSSES["multiclass"](scores[:, 1:5], kinds)
        + 2 * LOSSES["regression"](scores[:, 5:] / scale, target[:, 2:] / scale)
    )
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(found, torch.autograd.grad(expected, scores)[0])
    nothing = loss_of_several(scores, torch.full_like(target, torch.nan), facts)
    assert nothing.item() == 0


def prediction_of(store: GraphStore, split: str = "test") -> Prediction:
    rows = np.asarray(store[f"{split}_idx"])
    scores = np.random.default_rng(1).standard_normal((len(rows), 7)).astype(np.float32)
    return Prediction(scores=scores, label=np.asarray(store["label"][rows]))


def test_metrics_are_those_of_each_alone(tmp_path: Path) -> None:
    store = store_of(graph_of_several(tmp_path))
    auto = EVALUATORS.config({"name": "auto"})
    evaluator = make_evaluator(auto, store.manifest)
    assert (evaluator.metric, evaluator.higher_is_better) == ("good.rocauc", True)
    prediction = prediction_of(store)
    values = Measuring.of({"name": "auto"}, store.manifest).measure(prediction)
    assert list(values)[:1] == ["good.rocauc"]
    for view in head_views(store.manifest):
        own = head_manifest(store.manifest, view.head)
        assert prediction.scores is not None
        assert prediction.label is not None
        part = Prediction(scores=prediction.scores[:, view.scores], label=view.label_of(prediction.label))
        for name, value in Measuring.of({"name": "auto"}, own).measure(part).items():
            assert values[f"{view.head.name}.{name}"] == value
    tasks = [name.partition(".")[0] for name in values]
    assert tasks == sorted(tasks, key=["good", "kind", "sizes"].index)
    with pytest.raises(RecipeError, match="several tasks, and each names its metric"):
        make_evaluator(EVALUATORS.config({"name": "rocauc"}), store.manifest)


def test_predictions_have_columns_by_task(tmp_path: Path) -> None:
    store = store_of(graph_of_several(tmp_path / "graph"))
    prediction = prediction_of(store)
    assert prediction.scores is not None
    assert prediction.label is not None
    opened: Any = SimpleNamespace(store=store, ids=IdMap(store, None))
    rows = TaskRows(np.asarray(store["test_idx"], np.int64), "test", prediction.label)
    [columns] = KIND.columns(opened, rows, prediction, Deciding())
    table = pa.table(columns)
    assert table.column_names == [
        *("id", "split", "good_label", "good_prediction", "good_score", "kind_label", "kind_prediction", "kind_score"),
        *("sizes_label", "sizes_prediction"),
    ]
    kinds = prediction.label[:, 1]
    assert table["kind_label"].to_pylist() == [None if np.isnan(kind) else int(kind) for kind in kinds]
    assert table["kind_prediction"].to_pylist() == prediction.scores[:, 1:5].argmax(1).tolist()
    np.testing.assert_array_equal(table["sizes_prediction"].to_pylist(), prediction.scores[:, 5:])


@pytest.mark.slow
def test_controls_of_several_tasks(tmp_path: Path) -> None:
    store = store_of(graph_of_several(tmp_path / "graph"))
    evaluator = make_evaluator(EVALUATORS.config({"name": "auto"}), store.manifest)
    dataset = SimpleNamespace(manifest=SimpleNamespace(tables={}))
    nothing: Any = None
    graph = ControlledGraph(store, dataset, nothing, nothing, tmp_path)  # type: ignore[arg-type]
    controls = SeveralControls(graph)
    found = dict(controls.measured("test", prediction_of(store), evaluator))
    assert set(found) == {"constant", "features", "boosted"}
    assert all(set(values) == {"good.rocauc", "kind.accuracy", "sizes.rmse"} for values in found.values())
    assert found["constant"]["good.rocauc"] == 0.5
    assert found["constant"]["sizes.rmse"] > 5


def test_the_constant_of_an_absolute_error_is_the_median(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parent = graph_of_several(tmp_path)
    heads = (*HEADS[:2], HEADS[2].model_copy(update={"metric": "mae"}))
    store = GraphStore(parent.folder, parent.manifest.model_copy(update={"heads": heads}))
    monkeypatch.setattr("tasks.controls.labels.moment_controls", lambda *_: {})
    monkeypatch.setattr("tasks.controls.labels.EntityRows", lambda *_: None)
    nothing: Any = None
    dataset = SimpleNamespace(manifest=SimpleNamespace(tables={}))
    controls = SeveralControls(ControlledGraph(store, dataset, nothing, nothing, tmp_path))  # type: ignore[arg-type]
    prediction = prediction_of(store)
    evaluator = make_evaluator(EVALUATORS.config({"name": "auto"}), store.manifest)
    ((name, found),) = controls.measured("test", prediction, evaluator)
    train = np.asarray(store["label"])[np.asarray(store["train_idx"])]
    assert prediction.label is not None
    wanted = [np.nanmean(np.abs(prediction.label[:, column] - np.nanmedian(train[:, column]))) for column in (2, 3)]
    assert name == "constant"
    assert found["sizes.mae"] == pytest.approx(np.mean(wanted), rel=1e-5)
    assert found["good.rocauc"] == 0.5


def recipe(*changes: str) -> Any:
    options = ["model.hidden_dim=16", "train.learning_rate=0.01", "model.dropout=0", "train.loader.batch_size=64"]
    options += ["train.prefetch=0", "train.loader.fanout=8,4", "train.threads=1", *changes]
    return build_recipe({"name": "shop", "dataset": "synthetic", "model": "heterosage"}, options)


@pytest.mark.slow
def test_a_model_of_several_tasks_learns_them(tmp_path: Path) -> None:
    parent = graph_of_several(tmp_path / "graph", 150)
    store = store_of(parent)
    job = make_job(recipe("train.epochs=12"), parent, tmp_path / "work")
    with own_settings():
        run_engine(make_engine(job))
        model = load_model(job.work / BEST)
        with evaluating(model):
            predictor = Predictor(store, scratch=tmp_path)
            prediction = predict(predictor, model, "test")
    evaluator = make_evaluator(EVALUATORS.config({"name": "auto"}), store.manifest)
    values = evaluator(prediction)
    assert values["good.rocauc"] > 0.8
    assert values["sizes.rmse"] < 13  # their spread is 15
    assert model.facts.head_types == graph_facts(store.manifest).head_types


def test_models_of_one_task_are_refused(tmp_path: Path) -> None:
    manifest = graph_of_several(tmp_path).manifest
    made = build_recipe({"name": "shop", "dataset": "synthetic", "model": "rgcn"})
    with pytest.raises(RecipeError, match=r"has several tasks, and model\.name=rgcn learns one"):
        _refuse_later_rows(made, manifest)
