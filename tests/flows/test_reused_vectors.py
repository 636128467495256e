"""Vectors of deepwalk as features of a GNN, from the command line, with everything as users have it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from configs.load import build_recipe, dump_recipe
from flows.pipeline.train import _as_begun
from tasks.publish.tracking.mlflow_store import Tracker
from tasks.storage.home import Home
from tests.flows.conftest import Shell

pytestmark = pytest.mark.timeout(1800)  # a loaded machine takes ten times as long

GRAPH = [
    *("dataset.num_nodes=400", "dataset.num_edges=2500", "dataset.num_classes=4", "dataset.community_size=100"),
    *("train.threads=1", "train.device=cpu", "tracking.system_metrics=false"),
]
WALKS = ("deepwalk", *GRAPH, "model.dim=16", "train.loader.length=20", "train.samples=200000")
GNN = (
    *("quickstart", *GRAPH, "dataset.feature_dim=8", "dataset.feature_accuracy=0.3", "partition.num_parts=2"),
    *("model.hidden_dim=16", "train.loader=full", "train.epochs=3", "train.schedule=constant", "preprocess.workers=1"),
    "preprocess.transforms=[{name: embedding, model: deepwalk@champion}, standardize]",
)


class Reader(Shell):
    def predictions(self, output: str) -> dict[int, float]:
        made = self.json("predict", "-m", "quickstart@1", "-o", output)
        table = pq.read_table(made["output"])
        return dict(zip(table.column("id").to_pylist(), table.column("score").to_pylist(), strict=True))


def statuses(outcome: dict[str, Any]) -> dict[str, str]:
    return {stage["name"]: stage["status"] for stage in outcome["stages"]}


def test_a_run_that_goes_on_keeps_its_version() -> None:
    transform = {"name": "embedding", "model": "walks@champion"}
    asked = build_recipe(
        {"name": "x", "dataset": "synthetic", "model": "gcn", "preprocess": {"transforms": [transform]}}
    )
    taken = {**transform, "model": "walks@3", "vectors": "0" * 24}
    begun = build_recipe({"name": "x", "dataset": "synthetic", "model": "gcn", "preprocess": {"transforms": [taken]}})
    assert _as_begun(asked, {}) == asked
    assert _as_begun(asked, dump_recipe(begun)) == begun


@pytest.mark.slow
def test_from_walks_to_predictions(tmp_path: Path) -> None:
    shell = Reader(tmp_path)
    refused = shell("run", *GNN)
    assert refused.returncode == 2
    assert "model=deepwalk@champion: no model is registered in" in refused.stderr
    shown = shell("show", *GNN)
    assert "model: deepwalk@champion" in shown.stdout
    assert "no model is registered in" in shown.stderr

    shell.json("run", *WALKS)
    assert shell.json("plan", *GNN)["vectors"] == {"deepwalk@champion": "deepwalk@1"}
    first = shell.json("run", *GNN)
    assert first["champion"].startswith("quickstart version 1: champion")
    tags = Tracker(Home(shell.home), "graphmill").client.get_run(first["mlflow_run_id"]).data.tags
    assert tags["graphmill.vectors"] == "deepwalk@1"
    assert "vectors of deepwalk@1 (recipe deepwalk), 16 numbers each" in tags["mlflow.note.content"]
    assert "deepwalk@1 (recipe deepwalk), 16 numbers; 400 of 400 nodes have one" in Path(first["report"]).read_text()
    assert set(statuses(shell.json("run", *GNN)).values()) == {"cached"}
    before = shell.predictions("before.parquet")

    # The champion moves, and what was cached goes: the first model keeps the version that it was trained with.
    shell.json("run", *WALKS, "seed=5")
    assert shell("promote", "deepwalk@2").returncode == 0
    home = Home(shell.home)
    shutil.rmtree(home.cache)
    for stage in ("preprocess", "components", "partition", "vectors"):
        shutil.rmtree(home.artifacts / stage)
    after = shell.predictions("after.parquet")
    assert after.keys() == before.keys()
    np.testing.assert_allclose(list(after.values()), list(before.values()), atol=1e-6)
    vectors = shell.json("export", "embeddings", "-m", "quickstart@1", "-o", "v.parquet")
    assert vectors["data"]["of_training"]

    plan = shell("plan", *GNN)
    assert "preprocess.transforms.0.model deepwalk@1 -> deepwalk@2" in plan.stdout
    assert "features  vectors of deepwalk@2, which is deepwalk@champion now" in plan.stdout
    assert "model: deepwalk@2" in shell("show", *GNN).stdout
    second = shell.json("run", *GNN)
    assert statuses(second)["ingest"] == "cached"
    assert statuses(second)["preprocess"] == "ran"
    record = json.loads((home.runs / f"{second['prefect_flow_run_id']}.json").read_text())
    assert record["config"]["preprocess"]["transforms"][0]["model"] == "deepwalk@2"
    assert record["champion"].startswith("quickstart version 2")
