"""Commands on knowledge graphs: `graphmill check` says what stands in them, `inspect` what was made of them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

from benchmarks.gnn_graphs import prepare
from configs.registry import DATASETS
from configs.schema import Recipe
from flows.cli import app
from tasks.ingest.stage import STAGE
from tasks.stage import run_stage
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home
from tasks.storage.manifests import SPLITS
from tests.flows.conftest import graphmill
from tests.ingest.triple_files import TRAIN, lines, put_splits


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(dataset: dict[str, Any]) -> tuple[int, dict[str, Any], str]:
    """Run it twice: as people read it, and as JSON."""
    Path("mine.yaml").write_text(yaml.safe_dump({"name": "mine", "dataset": dataset, "model": {"name": "skipgram"}}))
    shown = CliRunner().invoke(app, ["--home", "home", "check", "mine.yaml"])
    told = CliRunner().invoke(app, ["--home", "home", "check", "mine.yaml", "--json"])
    assert shown.exit_code == told.exit_code, shown.output
    found: dict[str, Any] = json.loads(told.stdout.splitlines()[-1])
    return shown.exit_code, found, shown.output


def test_check_counts_relations(place: Path) -> None:
    put_splits(place / "kg", train=[*TRAIN, ("dan", "likes", "ann")], valid=[("ann", "hates", "cy")])
    code, found, shown = check({"name": "triples", "path": "kg"})
    assert code == 0
    assert found["ok"]
    assert found["relations"] == {
        "likes": {"train": 3, "valid": 0, "test": 1},
        "knows": {"train": 2, "valid": 0, "test": 1},
        "hates": {"train": 0, "valid": 1, "test": 0},
    }
    assert list(found["relations"]) == ["likes", "knows", "hates"]  # the most frequent first
    assert found["splits"] == {"train": 5, "valid": 1, "test": 2}
    assert found["nodes"] == {"entity": 4}
    assert found["adjusted"] == {"valid.txt: valid triples with a relation that training never shows kept": 1}
    assert "the data is good: ingest and preprocess take it" in shown
    assert "relation  train  valid  test" in shown


def test_check_counts_what_a_snapshot_has(place: Path) -> None:
    rows = [(f"e{i}", "old" if i < 15 else "new", f"e{i + 1}", 2000 + i) for i in range(30)]
    Path("t.csv").write_text("head,relation,tail,year\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))
    dataset = {"name": "triples", "triples": "t.csv", "time": "year"}
    content = {"name": "mine", "dataset": dataset, "model": "complex", "snapshot": {"as_of": "2019"}}
    Path("mine.yaml").write_text(yaml.safe_dump(content))
    found = json.loads(CliRunner().invoke(app, ["--home", "home", "check", "mine.yaml", "--json"]).stdout)
    assert found["ok"]
    totals = {name: sum(counts.values()) for name, counts in found["relations"].items()}
    assert totals == {"old": 15, "new": 5}
    assert {split: sum(counts[split] for counts in found["relations"].values()) for split in SPLITS} == found["splits"]


def test_check_lists_mistakes(place: Path) -> None:
    put_splits(place / "kg")
    Path("kg/train.txt").write_text(lines([("a", "", "b"), ("", "r", "c")]))
    code, found, shown = check({"name": "triples", "path": "kg"})
    assert code == 2
    assert [mistake["rows"] for mistake in found["mistakes"]] == [1, 1]
    assert "train.txt (row 1, column 0): the id is missing" in shown
    code, found, _ = check({"name": "triples", "triples": "nowhere.tsv"})
    assert code == 2
    assert "there is no such file" in found["mistakes"][0]["message"]


def test_check_prints_names_as_they_are(place: Path) -> None:
    put_splits(place / "kg", train=[*TRAIN, (":heart:", "[red]", "bob")])
    Path("kg/entities.txt").write_text("ann\nbob\ncy\ndan\n")
    code, _, shown = check({"name": "triples", "path": "kg"})
    assert code == 2
    assert "unknown entity ':heart:'" in shown


def test_check_a_generated_graph(place: Path) -> None:
    code, found, shown = check({"name": "synthetic_triples"})
    assert code == 0
    assert len(found["relations"]) == 40
    assert "and 10 more" in shown


def test_inspect(place: Path) -> None:
    put_splits(place / "kg")
    recipe: Any = SimpleNamespace(dataset=DATASETS.config({"name": "triples", "path": "kg"}), version_moment=None)
    outcome = run_stage(STAGE, recipe, {}, Home(place / "home"))
    done = CliRunner().invoke(app, ["--home", "home", "inspect", outcome.folder.name])
    assert done.exit_code == 0, done.output
    for words in ("triple", "mrr", "relations", "src int32, relation int32, dst int32"):
        assert words in done.output
    drawn = CliRunner().invoke(app, ["--home", "home", "inspect", outcome.folder.name, "-o", "plots"])
    assert drawn.exit_code == 0, drawn.output
    assert "ingest has nothing to draw" in drawn.output


def test_features_come_as_far_as_training(place: Path) -> None:
    alone = ("xan", "knows", "yve"), ("yve", "knows", "xan")  # a small component, which goes
    put_splits(place / "kg", train=[*TRAIN, *alone])
    for listed, names, values in (
        ("entities", ["ann", "bob", "cy", "dan", "xan", "yve"], [10.0, 20.0, 30.0, 40.0, 50.0, 60.0]),
        ("relations", ["knows", "likes"], [1.0, 2.0]),
    ):
        Path(f"kg/{listed}.txt").write_text("".join(f"{name}\n" for name in names))
        np.save(f"kg/{listed}.npy", np.array(values)[:, None])
    dataset = {"name": "triples", "path": "kg", "features": "kg/entities.npy"}
    dataset["relation_features"] = "kg/relations.npy"
    recipe = Recipe.model_validate(
        {
            "name": "mine",
            "dataset": dataset,
            "model": "complex",
            "components": {"keep": "largest"},
            "partition": {"name": "random", "num_parts": 2},
        }
    )
    folder = prepare(recipe, Home.open(place / "home"))
    store = GraphStore.open(folder)
    assert store.manifest.feature_dim == store.manifest.relation_feature_dim == 1
    assert (10 * (store["node_ids"] + 1)).tolist() == store["feat"][:, 0].tolist()
    assert sorted(store["feat"][:, 0].tolist()) == [10, 20, 30, 40]
    assert store["relation_feat"].tolist() == [[1], [2]]


def test_the_shipped_recipe_runs_from_its_data_to_a_champion(place: Path) -> None:
    sizes = ["dataset.num_entities=60", "dataset.num_types=1", "dataset.num_relations=8", "dataset.num_triples=800"]
    words = ["run", "knowledge-graph", *sizes, "train.epochs=20", "train.threads=1", "--json"]
    done = graphmill(Path("home"), *words)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout.splitlines()[-1])
    metrics = record["metrics"]["test"]
    assert metrics["mrr"] > 0.2
    assert metrics["mrr_pessimistic"] <= metrics["mrr"] <= metrics["mrr_optimistic"]
    [predictions] = Path("home").glob("artifacts/evaluate/*/predictions.parquet")
    columns = pq.read_table(predictions).column_names
    assert columns == ["head", "tail", "relation", "split", "head_rank", "tail_rank"]
    told = graphmill(
        Path("home"), "export", "embeddings", "--model", "knowledge-graph@champion", "--output", "e.parquet"
    )
    assert told.returncode == 0, told.stderr
    assert len(pq.read_table("e.parquet")) == 60
    refused = graphmill(Path("home"), "predict", "--model", "knowledge-graph@champion")
    assert refused.returncode == 2
    assert "which tails?" in refused.stderr
