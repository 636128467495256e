"""Recipes end to end: snapshots, DGL's models, YouTube's users and groups."""

from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from benchmarks.baseline_tables import RECIPES
from configs.errors import RecipeError
from configs.load import load_own_recipe
from flows.commands.outputs.graph_export import export_graph
from flows.records.run_record import all_runs
from tasks.calls import load_stage
from tasks.stage import run_stage
from tasks.storage.artifacts import ArtifactStore
from tasks.storage.home import Home
from tasks.storage.manifests import DatasetManifest
from tasks.storage.outcomes import EvalReport
from tests.flows.conftest import graphmill
from tests.support import WITHOUT_DGL


def write_people(folder: Path) -> Path:
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
    return json.loads((Path(found["artifacts"][stage]) / "manifest.json").read_text())


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_snapshots_and_their_report(tmp_path: Path) -> None:
    home, recipe = tmp_path / "home", write_people(tmp_path)
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


needs_dgl = pytest.mark.skipif(WITHOUT_DGL, reason="DGL has no wheel for this Python")


def write_recipe(folder: Path, name: str, dataset: dict[str, Any], conv: str, **preprocess: Any) -> str:
    content = {
        "name": name,
        "dataset": dataset,
        "preprocess": {"workers": 1, **preprocess},
        "model": {"name": "dgl", "conv": conv, "hidden_dim": 8, "num_layers": 2},
        "train": {"epochs": 2, "threads": 1, "num_ranks": 1},
        "tracking": {"system_metrics": False},
    }
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(content))
    return f"{name}.yaml"


@needs_dgl
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_train_export_read_again_and_predict(tmp_path: Path) -> None:
    home = tmp_path / "home"

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        done = graphmill(home, *arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done

    made = {"name": "synthetic", "num_nodes": 400, "num_edges": 1600, "num_classes": 4, "feature_dim": 8}
    first = write_recipe(tmp_path, "first", made, "GATv2Conv")
    call("run", first, "train.loader=neighbor", "train.loader.fanout=5,5")
    call("export", "graph", first, "--format", "dgl", "--out", "by-recipe.bin")
    told = json.loads(call("export", "graph", "first", "-o", "by-run.bin", "--json").stdout.splitlines()[-1])
    assert told["nodes"] == 400
    assert (tmp_path / "by-run.bin").read_bytes() == (tmp_path / "by-recipe.bin").read_bytes()
    saved = {"name": "dgl", "path": str(tmp_path / "by-run.bin")}
    second = write_recipe(tmp_path, "second", saved, "TAGConv", symmetrize=False, self_loops="keep")
    call("run", second, "train.loader=full")
    call("predict", "--model", "second@1", "--output", "all.parquet")
    assert pq.read_table(tmp_path / "all.parquet").num_rows == 400


@needs_dgl
def test_an_export_of_what_is_there_is_no_run_of_the_recipe(home: Home, tmp_path: Path) -> None:
    """Else it would be the recipe's latest, and `compare` and `inspect` would show two stages without metrics."""
    made = {"name": "synthetic", "num_nodes": 40, "num_edges": 160, "num_classes": 4, "feature_dim": 8}
    source = str(tmp_path / write_recipe(tmp_path, "made", made, "GATv2Conv"))
    recipe = load_own_recipe(source)
    ingested = run_stage(load_stage("ingest"), recipe, {}, home)
    run_stage(load_stage("preprocess"), recipe, {"ingest": ingested.parent}, home)
    output = tmp_path / "graph.bin"
    assert export_graph(home, source, [], str(output), "dgl", verbose=False)["nodes"] == 40
    assert output.stat().st_size > 0
    assert all_runs(home) == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"source": None}, "name a recipe, or a run"),
        ({"format": "gdl"}, r"--format gdl \(did you mean 'dgl'\?\): a graph's are dgl"),
        ({"source": "no-such-run"}, "no run 'no-such-run'"),
        ({"source": "3f2a", "overrides": ["a=1"]}, "changes are for recipes, and 3f2a is a run"),
    ],
)
@needs_dgl
def test_export_graph_says_what_is_wrong(home: Home, tmp_path: Path, given: dict[str, Any], message: str) -> None:
    words = {"source": "quickstart", "overrides": [], "output": str(tmp_path / "g.bin"), "format": None, **given}
    with pytest.raises(RecipeError, match=message):
        export_graph(home, **words, verbose=False)
    assert not (tmp_path / "g.bin").exists()


pytestmark = pytest.mark.timeout(900)

USERS, COMMUNITIES, LINKS = 1200, 6, 9000
SMALL = (
    *("model.dim=16", "train.samples=1000000", "train.threads=1", "train.device=cpu", "tracking.system_metrics=false"),
    *("dataset.labels.most=6", "evaluate.label_shares=0.05,0.1"),
)


def write_site(folder: Path) -> set[int]:
    """Write links within communities, mostly, and memberships: a large group for each, many small ones.

    Users are numbers from 1, a tab apart; some are members and have no link. Returns the members of large groups.
    """
    rng = np.random.default_rng(0)
    home = rng.integers(0, COMMUNITIES, USERS)
    near = np.argsort(home, kind="stable")
    first = rng.integers(0, USERS, LINKS)
    place = np.searchsorted(home[near], home[first]) + rng.integers(0, np.bincount(home).min(), LINKS)
    second = np.where(rng.random(LINKS) < 0.85, near[place], rng.integers(0, USERS, LINKS))
    chain = np.stack([np.arange(USERS - 1), np.arange(1, USERS)], 1)
    links = np.concatenate([np.stack([first, second], 1), chain]) + 1
    members = [(user, 100 * home[user] + 7) for user in range(USERS) if rng.random() < 0.5]
    members += [(user, 100 * int(rng.integers(COMMUNITIES)) + 7) for user in range(0, USERS, 9)]
    members = sorted(set(members))
    small = [(int(rng.integers(USERS)), 1000 + group) for group in range(300) for _ in range(3)]
    unlinked = [(USERS + 5, 7), (USERS + 6, 1001)]
    text = "".join(f"{user + 1}\t{group}\n" for user, group in (*members, *small, *unlinked))
    folder.mkdir(parents=True)
    with gzip.open(folder / "youtube-links.txt.gz", "wt") as file:
        file.writelines(f"{u}\t{v}\n" for u, v in links)
    with gzip.open(folder / "youtube-groupmemberships.txt.gz", "wt") as file:
        file.write(text)
    return {user + 1 for user, _ in members}


def test_the_recipe_of_youtube(tmp_path: Path) -> None:
    labelled = write_site(tmp_path / "site")
    home, folder = Home(tmp_path / "home"), tmp_path / "site"
    files = (
        f"dataset.edges.files={folder}/youtube-links.txt.gz",
        f"dataset.labels.files={folder}/youtube-groupmemberships.txt.gz",
    )
    done = graphmill(home.root, "run", str(RECIPES / "youtube-deepwalk.yaml"), *files, *SMALL, "--json")
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout.splitlines()[-1])
    keys = {stage["name"]: stage["key"] for stage in outcome["stages"]}
    data = ArtifactStore(home).load("ingest", keys["ingest"], DatasetManifest)
    assert (data.num_nodes, data.num_tasks, data.task_type) == (USERS, COMMUNITIES, "multilabel")
    assert sum(data.splits.values()) == len(labelled), "members of small groups alone are not labelled"
    assert data.adjusted[f"{folder}/youtube-groupmemberships.txt.gz: unknown ids dropped"] == 2
    found = ArtifactStore(home).load("evaluate", keys["evaluate"], EvalReport)
    shares = found.report["vectors"]["label_shares"]
    assert shares["rows"] == len(labelled)
    assert [one["share"] for one in shares["shares"]] == [0.05, 0.1]
    assert shares["shares"][1]["micro"] > 0.6, "a coin of six sides is right in 0.17"
    for page in home.root.rglob("report.html"):
        assert "F1 by the share of labels that are known" in page.read_text()
