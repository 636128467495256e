"""Purchases by chance: nothing can be learnt, and no model looks as if it had."""

from __future__ import annotations

from pathlib import Path

import pytest

from configs.load import build_recipe
from tasks.components.stage import STAGE as COMPONENTS
from tasks.controls.pairs.links import DegreeRule
from tasks.evaluators.metrics import rocauc_of_pairs
from tasks.inference.predictor import Predictor
from tasks.ingest.stage import STAGE as INGEST
from tasks.kinds.of import predict
from tasks.partition.stage import STAGE as PARTITION
from tasks.preprocess.stage import STAGE as PREPROCESS
from tasks.stage import run_stage
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home
from tasks.train.job import BEST
from tasks.train.state.checkpoint import load_model
from tests.ingest.test_edge_ends import purchases, save, turned
from tests.train.in_process import make_engine, make_job, own_settings, run_engine


@pytest.mark.parametrize("turn", [False, True])
def test_a_model_of_random_purchases_is_as_good_as_chance(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch, turn: bool
) -> None:
    """Negatives of two users, or of two items, gave it a ROC-AUC of 0.7 and more."""
    monkeypatch.chdir(tmp_path)
    pairs = purchases(4000, 500, 800)
    save(turned(pairs) if turn else pairs)
    dataset = {"name": "tables", "task": "link", "metric": "rocauc", "edges": {"files": "e.csv"}}
    train = {"epochs": 5, "threads": 1, "device": "cpu", "learning_rate": 0.01}
    recipe = build_recipe({"name": "shop", "dataset": dataset, "model": "graphsage", "train": train})
    done = run_stage(INGEST, recipe, {}, home)
    for stage in (PREPROCESS, COMPONENTS, PARTITION):
        done = run_stage(stage, recipe, {stage.parents[0]: done.parent}, home)
    with own_settings():
        job = make_job(recipe, done.parent, tmp_path / "work")
        run_engine(make_engine(job))
    store = GraphStore(done.parent.folder, done.parent.manifest)
    predictor, rule = Predictor(store), DegreeRule(store)
    for split in ("valid", "test"):
        area = rocauc_of_pairs(*predict(predictor, load_model(job.work / BEST), split).pairs())
        assert abs(area - 0.5) < 0.06
        assert abs(rule.rocauc(*predictor.link_pairs(split)) - 0.5) < 0.06
    [text] = store.manifest.report["negatives"]
    assert "bipartite" in text
