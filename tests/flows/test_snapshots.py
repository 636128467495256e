"""Snapshots from the command line: two years of one recipe, what they share, and the report that compares them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from tests.flows.conftest import graphmill


def write_recipe(folder: Path) -> Path:
    """A recipe of 200 people of 2021 to 2024, who tell each other apart by features and friends."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, 3, 200)
    when = 2021 + np.arange(200) // 50
    x = np.eye(3)[label] + rng.standard_normal((200, 3))
    ids = [f"p{i}" for i in range(200)]
    people = {"id": ids, "x": x.tolist(), "label": label, "born": pa.array([f"{y}-06-01" for y in when]).cast("date32")}
    pq.write_table(pa.table(people), folder / "people.parquet")
    src, dst = rng.integers(0, 200, (2, 1500))
    pq.write_table(pa.table({"src": [ids[i] for i in src], "dst": [ids[i] for i in dst]}), folder / "knows.parquet")
    nodes = {"files": str(folder / "people.parquet"), "features": ["x"], "label": ["label"], "time": "born"}
    content = {
        "name": "people",
        "dataset": {
            "name": "tables",
            "num_classes": 3,
            "nodes": nodes,
            "edges": {"files": str(folder / "knows.parquet")},
        },
        "snapshot": {"warm_start": True},
        "model": {"name": "graphsage", "hidden_dim": 8, "num_layers": 2},
        "train": {"loader": "full", "epochs": 2, "threads": 1},
        "tracking": {"system_metrics": False},
    }
    path = folder / "people.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def run(home: Path, recipe: Path, as_of: str) -> dict[str, Any]:
    done = graphmill(home, "run", str(recipe), f"snapshot.as_of={as_of}", "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    found["status_of"] = {stage["name"]: stage["status"] for stage in found["stages"]}
    return found


def manifest(found: dict[str, Any], stage: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((Path(found["artifacts"][stage]) / "manifest.json").read_text())
    return content


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_snapshots_and_their_report(tmp_path: Path) -> None:
    home, recipe = tmp_path / "home", write_recipe(tmp_path)
    refused = graphmill(home, "run", str(recipe), "snapshot.as_of=1999")
    assert refused.returncode == 2
    assert "snapshot.as_of=1999: nothing exists yet" in refused.stderr
    late = graphmill(home, "plan", "quickstart", "snapshot.as_of=2022")
    assert late.returncode == 2
    assert "has no times" in late.stderr

    first = run(home, recipe, "2022")
    assert manifest(first, "partition")["num_nodes"] == 100
    told = json.loads((Path(first["artifacts"]["publish"]) / "snapshot.json").read_text())
    assert told["previous"] is None
    assert told["snapshot"]["metrics"] == first["metrics"]

    second = run(home, recipe, "2023-06")
    assert second["status_of"]["ingest"] == "cached"
    assert manifest(second, "partition")["num_nodes"] == 150
    train = manifest(second, "train")
    assert train["warm_start"] == {"as_of": "2022", "key": manifest(first, "train")["key"], "used": True, "why_not": ""}
    told = json.loads((Path(second["artifacts"]["publish"]) / "snapshot.json").read_text())
    assert told["comparison"]["growth"]["nodes"] == [100, 150]
    assert told["comparison"]["drift"]["labels"]["psi"] >= 0
    page = Path(second["report"]).read_text()
    assert "As of 2023-06, against 2022" in page
    assert "150, +50.0 % (was 100)" in page
    assert "train 2021-06-01 to 2023-06-01" in page  # equal times are dealt out by a hash

    # By the end of July nobody new has come: no training, the same model, a report of its own.
    july = run(home, recipe, "2023-07")
    assert {name for name, status in july["status_of"].items() if status == "ran"} == {"preprocess", "publish"}
    assert july["artifacts"]["train"] == second["artifacts"]["train"]
