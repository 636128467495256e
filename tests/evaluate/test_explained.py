"""What an evaluation says of why a model errs, and of which columns matter over all rows."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from configs.registry import MODELS
from models.base import GraphModel
from tasks.evaluate.worker import EvaluateJob, evaluate
from tasks.evaluators.prediction import Prediction
from tasks.explain.columns import columns_by_loss
from tasks.explain.features import Features
from tasks.inference.opened import Opened
from tasks.inference.predictor import Predictor
from tasks.kinds.base import TaskRows
from tasks.kinds.judged import Threshold
from tasks.kinds.of import kind_of
from tasks.preprocess import features
from tasks.preprocess.features import FeatureMatrices
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home
from tasks.storage.ids import IdMap
from tests.finished import dataset, trained
from tests.sampling.relational.test_edges import shop
from tests.support import as_partition, link_graph, node_graph

FEATURES = ("feat", "feat_cat", "edge_feat", "edge_feat_cat")


def accuracy(prediction: Prediction) -> float:
    assert prediction.scores is not None
    return float((prediction.scores.argmax(1) == prediction.label).mean())


def test_edges_without_labels_have_no_columns_of_labelled_ones(tmp_path: Path) -> None:
    graph = node_graph(tmp_path / "graph", num_nodes=40, dim=3)
    names = {"columns": {"feat": {"age": 1, "memo": 2}, "edge_feat": {"note": 4}}}
    store = GraphStore(graph.folder, graph.manifest.model_copy(update={"report": names}))
    assert Features.of(store, "scored_").names == []
    assert (Features.of(store).names, Features.of(store).column_of.tolist()) == (["age", "memo"], [0, 1, 1])


def test_a_column_that_is_not_read_loses_nothing(tmp_path: Path) -> None:
    graph = as_partition(node_graph(tmp_path / "graph", num_nodes=301, dim=6))
    data = dataset(tmp_path / "data", graph)
    store = GraphStore(graph.folder, graph.manifest)
    torch.manual_seed(0)
    config = MODELS.config({"name": "graphsage", "hidden_dim": 16, "num_layers": 2})
    model: GraphModel = MODELS.create(config, graph_facts(store.manifest)).eval()
    conv: Any = model.layers[0].conv  # type: ignore[union-attr]
    for part in (conv.own, conv.neighbor):
        part.weight.data[:, 3] = 0
        part.weight.data[:, 0] *= 10
    kept = DatasetStore(data.folder, data.manifest)
    opened = Opened(store, kept, IdMap(store, kept), None, model, Predictor(store))
    label = Predictor(store).node_scores(model, np.arange(301)).argmax(1)
    rows = TaskRows(np.arange(301), "test", label)
    feat = np.array(store["feat"])
    found = {
        one["column"]: one for one in columns_by_loss(opened, kind_of(store.manifest), rows, accuracy, 0, tmp_path)
    }
    assert set(found) == {f"feature {number}" for number in range(6)}
    assert found["feature 3"] == {"column": "feature 3", "lost": 0, "low": 0, "high": 0}
    assert next(iter(found)) == "feature 0"
    assert found["feature 0"]["low"] > 0.1
    assert all(one["low"] <= one["lost"] <= one["high"] for one in found.values())
    assert np.array_equal(store["feat"], feat)


@pytest.mark.parametrize("by_type", [True, False])
def test_columns_of_a_database_are_dealt_out_in_their_own_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_type: bool
) -> None:
    def matrices(*args: Any, by_type: bool, chosen: bool = by_type) -> FeatureMatrices:
        return FeatureMatrices(*args, by_type=by_type and chosen)

    monkeypatch.setattr(features, "FeatureMatrices", matrices)
    store = shop(Home.open(tmp_path))
    tables = {name: np.array(store[name]) for name in store.manifest.arrays if name.partition(" ")[0] in FEATURES}
    assert ("feat" not in tables) == by_type
    moved = list[set[tuple[str, int]]]()

    def score(predictor: Predictor, *_: Any) -> Prediction:
        changed = {
            (name, int(column))
            for name in tables
            for column in np.flatnonzero((predictor.store[name] != tables[name]).any(0))
        }
        moved.append(changed)
        types = np.asarray(store["node_type"])
        for name in tables.keys() & {"feat", "feat_cat"}:
            for kind in range(types.max() + 1):
                same = [np.sort(table[name][types == kind], axis=0) for table in (predictor.store, tables)]
                np.testing.assert_array_equal(*same)
        return Prediction()

    labels = np.zeros(len(store["test_idx"]), np.int64)
    opened: Any = SimpleNamespace(
        store=store,
        model=None,
        predictor=Predictor(store),
        ids=SimpleNamespace(type_numbers=lambda: np.asarray(store["node_type"])),
    )
    rows, kind = TaskRows(np.asarray(store["test_idx"], np.int64), "test", labels), SimpleNamespace(score=score)
    found = columns_by_loss(opened, kind, rows, lambda _: 0.0, 0, tmp_path)  # type: ignore[arg-type]
    report = store.manifest.report["columns"]
    expected = {name for table in ("feat", "feat_cat") for name in report[table]}
    assert {one["column"] for one in found if "(edges)" not in one["column"]} == expected
    assert moved[0] == set()
    each = [moved[1 + 5 * number] for number in range(len(found))]
    assert [len(one) for one in each] == [1] * len(found)
    assert len(set.union(*each)) == len(found), "each another one"


@pytest.mark.parametrize("explain", [None, {"name": "removal"}])
def test_a_report_tells_it_where_that_is_asked_for(tmp_path: Path, explain: Any) -> None:
    graph = as_partition(node_graph(tmp_path / "graph", num_nodes=301))
    data = dataset(tmp_path / "data", graph, [f"user-{i}" for i in range(301)])
    (graph.folder / "manifest.json").write_text(graph.manifest.model_dump_json())
    checkpoint = trained(tmp_path / "train", graph, "graphsage").folder / "best.pt"
    folders = {"checkpoint": checkpoint, "graph": graph.folder, "dataset": data.folder, "work": tmp_path}
    sizes = {"label_shares": [], "most_labelled": 10, "batch_size": 64, "device": "cpu", "threads": 1}
    asked = {"evaluator": {"name": "accuracy"}, "splits": ["test"], "predictions": False, "explain": explain}
    report = evaluate(EvaluateJob(**folders, **sizes, **asked))["report"]  # type: ignore[arg-type]
    assert ("explained" in report) == ("columns" in report) == (explain is not None)
    if explain is not None:
        worst = report["most_wrong"]["id"][:5]
        assert [one["score"].split(":")[0] for one in report["explained"]] == worst
        reasons = [what for one in report["explained"] for what, _ in one["why"]]
        assert all(what.startswith("without") or what.endswith("as usual") for what in reasons)
        assert len(reasons) > 10
        assert len(report["columns"]) == 16
        assert not any("evaluate.explain" in note for note in report.get("notes", []))


@pytest.mark.parametrize("chosen", [Threshold(1, 1e-6), Threshold(0, 0.9999)])
def test_the_class_that_a_threshold_predicts_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: Threshold
) -> None:
    monkeypatch.setattr("tasks.evaluate.worker.threshold_by", lambda *_: chosen)
    monkeypatch.setattr("tasks.evaluate.worker.Evaluation._columns", lambda *_: {})
    graph = as_partition(node_graph(tmp_path / "graph", num_nodes=301))
    data = dataset(tmp_path / "data", graph, [f"user-{i}" for i in range(301)], ["w", "x", "y", "z"])
    (graph.folder / "manifest.json").write_text(graph.manifest.model_dump_json())
    checkpoint = trained(tmp_path / "train", graph, "graphsage").folder / "best.pt"
    folders = {"checkpoint": checkpoint, "graph": graph.folder, "dataset": data.folder, "work": tmp_path}
    sizes = {"label_shares": [], "most_labelled": 10, "batch_size": 64, "device": "cpu", "threads": 1}
    asked = {"evaluator": {"name": "accuracy"}, "splits": ["valid", "test"], "predictions": False, "threshold": "f1"}
    job = EvaluateJob(**folders, **sizes, **asked, explain={"name": "removal"})  # type: ignore[arg-type]
    report = evaluate(job)["report"]
    worst = report["most_wrong"]
    assert "w" not in worst["prediction"]
    heads = [f"{name}: probability of {said} " for name, said in zip(worst["id"], worst["prediction"], strict=True)]
    assert [one["score"].rpartition(" ")[0] + " " for one in report["explained"]] == heads[:5]


def test_the_worst_edges_are_explained_too(tmp_path: Path) -> None:
    graph = as_partition(link_graph(tmp_path / "graph", dim=4))
    data = dataset(tmp_path / "data", graph)
    (graph.folder / "manifest.json").write_text(graph.manifest.model_dump_json())
    checkpoint = trained(tmp_path / "train", graph, "graphsage").folder / "best.pt"
    folders = {"checkpoint": checkpoint, "graph": graph.folder, "dataset": data.folder, "work": tmp_path}
    sizes = {"label_shares": [], "most_labelled": 10, "batch_size": 64, "device": "cpu", "threads": 1}
    asked = {"evaluator": {"name": "mrr"}, "splits": ["test"], "predictions": False, "explain": {"name": "removal"}}
    report = evaluate(EvaluateJob(**folders, **sizes, **asked))["report"]  # type: ignore[arg-type]
    worst = report["most_wrong"]
    assert worst["rank"] == sorted(worst["rank"], reverse=True)
    ends = [f"{source} {target}" for source, target in zip(worst["source"], worst["target"], strict=True)]
    assert [one["score"].split(":")[0] for one in report["explained"]] == ends[:5]
    assert all(one["why"] for one in report["explained"])
