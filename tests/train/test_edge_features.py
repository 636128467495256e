"""A set in which edge features decide: models that read them are right, and who does not is told so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs.errors import DataError
from configs.load import build_recipe
from configs.registry import MODELS as MODEL_CLASSES
from configs.schema import Recipe
from flows.commands.recipes.data_check import check_data
from tasks.apply.model.needs import check_facts
from tasks.components.stage import STAGE as COMPONENTS
from tasks.evaluators.metrics import average_precision
from tasks.inference.predictor import Predictor
from tasks.ingest.stage import STAGE as INGEST
from tasks.kinds.of import predict
from tasks.partition.stage import STAGE as PARTITION
from tasks.preprocess.stage import STAGE as PREPROCESS
from tasks.stage import Listener, run_stage
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home
from tasks.train.families import unread_edge_features
from tasks.train.job import BEST
from tasks.train.state.checkpoint import load_model
from tests.train.in_process import make_engine, make_job, own_settings, run_engine

NODES, EDGES = 1000, 4000
MODELS = ("graphsage", "gcn", "gat", "gatv2", "gin")


def save_payments() -> dict[str, Any]:
    """Write accounts and payments; an account is bad that often gets large ones, or ones of the kind `voucher`.

    Its own features, and with whom it has to do, say nothing.
    """
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, NODES, (2, EDGES))
    bad = rng.random(NODES) < 0.15
    suspicious = bad[dst] & (rng.random(EDGES) < 0.7)
    amount = rng.standard_normal(EDGES) + 3 * suspicious
    kind = np.where(suspicious & (rng.random(EDGES) < 0.5), "voucher", rng.choice(["card", "cash"], EDGES))
    lines = [f"{u},{v},{a:.4f},{k}" for u, v, a, k in zip(src, dst, amount, kind, strict=True)]
    Path("e.csv").write_text("\n".join(["src,dst,amount,kind", *lines]) + "\n")
    noise = rng.standard_normal((NODES, 2))
    lines = [f"{i},{x:.4f},{y:.4f},{int(b)}" for i, ((x, y), b) in enumerate(zip(noise, bad, strict=True))]
    Path("n.csv").write_text("\n".join(["id,x,y,bad", *lines]) + "\n")
    return {
        "name": "tables",
        "task_type": "binary",
        "metric": "ap",
        "directed": True,
        "nodes": {"files": "n.csv", "id": "id", "features": ["x", "y"], "label": "bad"},
        "edges": {"files": "e.csv", "features": ["amount"], "categorical": ["kind"]},
    }


def recipe_of(dataset: dict[str, Any], model: str, **options: Any) -> Recipe:
    heads = {"heads": 2} if model.startswith("gat") else {}
    sections = {
        "name": "payments",
        "dataset": dataset,
        "preprocess": {"symmetrize": False, "deduplicate": False},
        "model": {"name": model, "hidden_dim": 16, "num_layers": 2, "dropout": 0.0, **heads, **options},
        "train": {"epochs": 40, "threads": 1, "device": "cpu", "learning_rate": 0.02, "loader": "full"},
    }
    return build_recipe(sections)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("payments"))
        home, recipe = Home.open(Path("home")), recipe_of(save_payments(), "gcn")
        done = run_stage(INGEST, recipe, {}, home)
        for stage in (PREPROCESS, COMPONENTS, PARTITION):
            done = run_stage(stage, recipe, {stage.parents[0]: done.parent}, home)
        yield done.parent


def test_average_precision(graph: Any, tmp_path: Path) -> None:
    store = GraphStore(graph.folder, graph.manifest)

    def measured(model: str, **options: Any) -> float:
        recipe = recipe_of({"name": "synthetic"}, model, **options)
        with own_settings():
            job = make_job(recipe, graph, tmp_path / f"{model}{options}")
            run_engine(make_engine(job))
        found = predict(Predictor(store), load_model(job.work / BEST), "test")
        assert found.label is not None
        assert found.scores is not None
        return average_precision(found.label[:, 0], found.scores[:, 0])

    with_edges = {model: measured(model) for model in MODELS}
    without = {model: measured(model, edge_features=False) for model in MODELS if model != "gin"}
    assert min(with_edges.values()) > 0.8
    assert max(without.values()) < 0.35


@pytest.mark.parametrize(
    ("model", "options", "is_told"),
    [
        ("graphsage", {}, False),
        ("gatv2", {"edge_features": False}, False),
        ("gin", {}, False),
        ("rgcn", {}, True),
        ("mlp", {}, True),
        ("dgl", {"conv": "GraphConv"}, True),
        ("dgl", {"conv": "GINEConv"}, False),
    ],
)
def test_who_reads_none_is_told(graph: Any, model: str, options: dict[str, Any], is_told: bool) -> None:
    told = unread_edge_features(recipe_of({"name": "synthetic"}, model, **options), graph.manifest)
    assert (told is not None) == is_told
    if told is not None:
        assert told.startswith(f"edges carry features (numbers: 1, categories: 1), and model.name={model} reads none")


def test_check_tells_it(tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    dataset = save_payments()
    for model, count in (("mlp", 1), ("gat", 0)):
        found = check_data(recipe_of(dataset, model), home, Listener())
        assert found.ok
        assert sum("reads none of them" in text for text in found.warnings) == count


@pytest.mark.parametrize("name", ["graphsage", "gat", "gin"])
def test_a_model_that_learnt_without_edge_features_needs_none(graph: Any, name: str) -> None:
    """It scores a newer graph whose edges carry some; one that learnt with others does not."""
    store, config = GraphStore(graph.folder, graph.manifest), recipe_of({"name": "synthetic"}, name).model
    facts = graph_facts(graph.manifest)
    plain = MODEL_CLASSES.get(name)(config, replace(facts, edge_feature_dim=0, edge_categories=()))
    check_facts(plain, graph.manifest)
    assert Predictor(store).node_scores(plain, np.arange(5)).shape == (5, 1)
    other = MODEL_CLASSES.get(name)(config, replace(facts, edge_feature_dim=3))
    with pytest.raises(DataError, match="edge_feature_dim=3"):
        check_facts(other, graph.manifest)
