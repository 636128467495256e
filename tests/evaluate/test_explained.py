"""What an evaluation says of why a model errs, and of which columns matter over all rows."""

from __future__ import annotations

from pathlib import Path
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
from tasks.kinds.of import kind_of
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import GraphStore
from tasks.storage.ids import IdMap
from tests.finished import dataset, trained
from tests.support import as_partition, node_graph


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
        assert all("without" in one["why"] or "as usual" in one["why"] for one in report["explained"])
        assert len(report["columns"]) == 16
        assert not any("evaluate.explain" in note for note in report.get("notes", []))
