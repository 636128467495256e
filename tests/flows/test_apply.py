"""Using models from the command line: one small home, other data, every command."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from configs.errors import RecipeError, UserError
from flows.commands.outputs.neighbors import find_neighbors, write_neighbors
from flows.commands.outputs.use import UseRequest, requested_use
from flows.commands.runs.runs import RunFilter, find_run, list_runs, metric_of
from flows.commands.runs.versions import list_versions, promote, roll_back
from flows.records.use_options import UseOptions
from tasks.apply.model.files import MODEL, WEIGHTS, load_published, read_tensors
from tasks.apply.model.published import read_published
from tasks.apply.vector_files.formats import ENDINGS, HAS_IDS_BESIDE
from tasks.storage.home import Home
from tests.apply.test_needs import EVERY_TRANSFORM, N, write_tables
from tests.apply.test_vector_formats import read as read_vectors
from tests.flows.conftest import Shell

pytestmark = pytest.mark.timeout(900)  # a loaded machine takes ten times as long


class Trained(Shell):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        write_tables(folder / "old")
        write_tables(folder / "newer", first=10, more=60, seed=3)
        self.recipe = self.write_recipe("old")
        self.newer = self.write_recipe("newer")
        # A few rows of noise: no model is told from the majority.
        self.first = self.json("run", str(self.recipe), "tracking.gate_controls=none", "--tag", "nightly")
        self.second = self.json("run", str(self.recipe), "train.epochs=4", "tracking.gate_metric=valid/f1_macro")

    def write_recipe(self, data: str) -> Path:
        nodes = {"files": str(self.folder / data / "nodes.csv"), "features": list("abcde"), "label": "label"}
        edges = {"files": str(self.folder / data / "edges.csv")}
        content = {
            "name": "papers",
            "dataset": {"name": "tables", "nodes": {**nodes, "categorical": ["colour", "shape"]}, "edges": edges},
            "preprocess": {"transforms": list(EVERY_TRANSFORM), "workers": 1},
            "model": {"name": "graphsage", "hidden_dim": 8, "num_layers": 2},
            "train": {"loader": "full", "epochs": 3, "threads": 1, "num_ranks": 1},
            "tracking": {"system_metrics": False},
        }
        path = self.folder / f"{data}.yaml"
        path.write_text(yaml.safe_dump(content))
        return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return Trained(tmp_path_factory.mktemp("serving"))


def test_scores_are_explained_with_the_names_of_tables(trained: Trained) -> None:
    record = trained.json("explain", "--model", "papers@1", "--node", "n17", "--class", "dog", "-o", "why.parquet")
    assert Path(record["page"]).read_text().count("<section>") == 1
    table = pq.read_table(record["output"])
    assert record["rows"] == len(table)
    assert set(table["node"].to_pylist()) == {"n17"}
    columns = {*"abcde", "colour", "shape"}
    assert columns <= {row["feature"] for row in table.to_pylist()}
    shown = trained("explain", "--model", "papers@1", "--node", "n17", "--method", "integrated", "-o", "i.parquet")
    assert "n17: probability of" in shown.stdout
    assert "effects add up to" in shown.stdout
    assert "no class 'dig'" in trained("explain", "-m", "papers@1", "--node", "n17", "--class", "dig").stderr


def test_runs_are_listed_filtered_and_sorted(trained: Trained) -> None:
    ids = [trained.second["prefect_flow_run_id"], trained.first["prefect_flow_run_id"]]
    runs = trained.json("runs", "papers", "--since", "1d", "--status", "completed")["runs"]
    assert [run["id"] for run in runs] == ids
    assert [run["tags"] for run in runs] == [[], ["nightly"]]
    home = Home(trained.home)
    assert [run.id for run in list_runs(home, RunFilter(tag="nightly"))] == ids[1:]
    assert [run.id for run in list_runs(home, RunFilter(limit=1))] == ids[:1]
    values = [metric_of(run, "test/accuracy") for run in list_runs(home, RunFilter(sort="accuracy"))]
    assert values == sorted(values, reverse=True)
    shown = trained("runs").stdout
    assert ids[0][:8] in shown
    assert "train.epochs=4" in shown


def test_compare_says_what_differs(trained: Trained) -> None:
    found = trained.json("compare", "papers~1", trained.second["prefect_flow_run_id"][:8])
    assert found["config"] == {
        "train.epochs": [3, 4],
        "tracking.gate_metric": [None, "valid/f1_macro"],
        "tracking.gate_controls": ["none", "all"],
    }
    assert found["data"] == {}
    assert found["training"]["train.epochs_run"] == [3, 4]
    before, after = (run["metrics"]["test"]["accuracy"] for run in (trained.first, trained.second))
    assert found["metrics"]["test/accuracy"] == [before, after, pytest.approx(after - before)]
    shown = trained("compare", "papers~1", "papers").stdout
    assert "the same data" in shown
    assert "train.epochs" in shown


def test_predictions_for_the_training_data(trained: Trained) -> None:
    record = trained.json("predict", "--model", "papers@champion", "-o", "own/p.parquet")
    assert (record["model"], record["rows"]) == ("papers", N)
    assert record["output"] == str(trained.folder / "own" / "p.parquet")
    assert record["data"]["of_training"]
    assert {stage["status"] for stage in record["stages"].values()} == {"cached"}
    assert list((trained.folder / "own").iterdir()) == [trained.folder / "own" / "p.parquet"]
    own = pq.read_table(record["output"]).to_pandas().set_index("id")
    assert set(own.prediction) <= {"cat", "dog"}
    folder = Path(trained.first["artifacts"]["evaluate"])
    evaluated = pq.read_table(folder / "predictions.parquet").to_pandas().set_index("id")
    np.testing.assert_allclose(own.score[evaluated.index], evaluated.score, atol=1e-6)


def test_predictions_for_newer_data(trained: Trained) -> None:
    """Nodes that the model has not seen; those that it has seen keep their features, and lose some neighbours."""
    record = trained.json("predict", "--model", "papers@1", "newer.yaml", "-o", "newer.parquet")
    assert record["rows"] == N + 50
    assert not record["data"]["of_training"]
    table = pq.read_table(trained.folder / "newer.parquet").to_pandas()
    assert {f"n{i}" for i in range(N, N + 60)} <= set(table.id)
    assert table.prediction.notna().all()
    manifest = json.loads((trained.home / "artifacts" / "preprocess" / key_of(record) / "manifest.json").read_text())
    assert [one["transform"] for one in manifest["report"]["transforms"]][:2] == ["recode", "learned"]
    (trained.folder / "ask.csv").write_text("id\nn139\nn15\n")
    few = trained.json("predict", "--model", "papers@1", "newer.yaml", "--nodes", "ask.csv", "-o", "few.parquet")
    assert {stage["status"] for stage in few["stages"].values()} == {"cached"}
    asked = pq.read_table(few["output"]).to_pandas()
    assert asked.id.tolist() == ["n139", "n15"]
    np.testing.assert_allclose(asked.score, table.set_index("id").score[asked.id], atol=1e-6)


def key_of(record: dict[str, Any]) -> str:
    return str(record["stages"]["preprocess"]["key"])


def test_embeddings_and_their_neighbors(trained: Trained) -> None:
    record = trained.json("export", "embeddings", "--model", "papers@champion", "-o", "v.npy")
    matrix = np.load(trained.folder / "v.npy")
    assert matrix.shape == (N, record["dim"])
    ids = pq.read_table(record["ids"]).column("id").to_pylist()
    assert ids == [f"n{i}" for i in range(N)]
    found = trained.json("neighbors", "-e", "v.npy", "--node", "n17", "-k", "3")["neighbors"]
    unit = matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
    scores = unit @ unit[17]
    best = [i for i in np.argsort(-scores) if i != 17][:3]
    assert [one["id"] for one in found[0]["nearest"]] == [f"n{i}" for i in best]
    assert [one["rank"] for one in found[0]["nearest"]] == [1, 2, 3]
    (trained.folder / "two.txt").write_text("n3\nn4\n")
    two = find_neighbors(trained.folder / "v.npy", [], trained.folder / "two.txt", 5, "dot")
    assert write_neighbors(two, trained.folder / "near.parquet") == 10
    near = pq.read_table(trained.folder / "near.parquet").to_pandas()
    assert near.node.tolist() == ["n3"] * 5 + ["n4"] * 5
    assert near["rank"].tolist() == [1, 2, 3, 4, 5] * 2


@pytest.mark.parametrize("format", ENDINGS)
def test_the_ending_says_the_format_of_embeddings(trained: Trained, format: str) -> None:
    path = trained.folder / f"ending{ENDINGS[format]}"
    record = trained.json("export", "embeddings", "--model", "papers@champion", "--output", path.name)
    assert record["output"] == str(path)
    assert (record["ids"] is not None) == (format in HAS_IDS_BESIDE)
    ids, vectors = read_vectors(path, format)
    assert sorted(ids) == sorted(f"n{i}" for i in range(N))
    assert vectors.shape == (N, record["dim"])
    asked = ("--format", format, "--output", f"asked-{path.name}")
    trained.json("export", "embeddings", "--model", "papers@champion", *asked)
    assert (trained.folder / f"asked-{path.name}").read_bytes() == path.read_bytes()


def test_an_ending_of_no_format_is_refused(trained: Trained) -> None:
    done = trained("export", "embeddings", "--model", "papers@champion", "--output", "vectors.csv")
    assert done.returncode == 2
    assert "--output vectors.csv must end with .parquet or .npy or .safetensors or .txt or .bin" in done.stderr
    done = trained("export", "embeddings", "--model", "papers@champion", "--output", "v.txt", "--format", "npy")
    assert done.returncode == 2
    assert "--format npy and --output v.txt contradict each other" in done.stderr


def test_the_model_as_files(trained: Trained) -> None:
    trained.json("export", "model", "--model", "papers@1", "-o", "model")
    folder = trained.folder / "model"
    assert {path.name for path in folder.iterdir()} >= {MODEL, WEIGHTS, "data.json", "data.npz", "README.md"}
    model, published = load_published(folder), read_published(folder, "papers@1")
    published.export(trained.folder / "model.safetensors", "safetensors")
    assert set(read_tensors(trained.folder / "model.safetensors")) == set(model.state_dict())
    assert b'\\"name\\": \\"graphsage\\"' in (trained.folder / "model.safetensors").read_bytes()[:4000]
    published.export(trained.folder / "copy", "files")
    published.export(trained.folder / "copy", "files")  # an export is replaced, anything else is not
    (trained.folder / "mine").mkdir()
    (trained.folder / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(RecipeError, match="holds no exported model"):
        published.export(trained.folder / "mine", "files")


def test_the_champion_moves_by_hand_and_back(trained: Trained) -> None:
    def champion() -> list[str]:
        (versions,) = list_versions(home, "papers").values()
        return [one.version for one in versions if "champion" in one.aliases]

    home = Home(trained.home)
    assert champion() == ["1"]
    refused = trained("promote", "papers@2")
    assert refused.returncode == 2
    assert "is below a linear model that sees only the rows' own features" in refused.stderr
    assert champion() == ["1"]
    change = trained.json("promote", "papers@2", "--force")
    assert (change["before"], change["after"], change["changed"]) == ("1", "2", True)
    assert champion() == ["2"]
    assert not promote(home, "papers@2")["changed"]
    assert "version 2 -> 1 (version 2 was taken back)" in trained("rollback", "papers").stdout
    again = trained("rollback", "papers")
    assert again.returncode == 0
    assert "version 1, as before" in again.stdout
    assert champion() == ["1"]
    moves = trained.json("versions", "papers", "--history")["models"]["papers"]["history"]
    assert [(move["before"], move["version"], move["how"]) for move in moves] == [
        (None, "1", "gate"),
        ("1", "2", "promote"),
        ("2", "1", "rollback"),
    ]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"model": "paper@1"}, r"no registered model 'paper' \(did you mean 'papers'\?\)"),
        ({"model": "papers@7"}, "papers has no version or alias '7'; versions: 2, 1"),
        ({"pairs": "x.csv"}, "--pairs: this is a model of nodes; give --nodes"),
        ({"output": "p.xlsx"}, r"--output p\.xlsx must end with \.parquet or \.npy"),
        ({"format": "tsv"}, "--format tsv is none of predictions's: parquet, npy, csv, csv.gz"),
        ({"threshold": "2"}, "--threshold 2: give a probability between 0 and 1"),
        ({"threshold": "cat=0.5", "output": "p.npy"}, r"\.npy holds probabilities"),
        ({"split": "test"}, "--split test: the only choice is none"),
        ({"node_type": "node"}, "--node-type is for embeddings of nodes"),
        ({"overrides": ["model.hidden_dim=9"]}, "a registered model stays as it was trained"),
        ({"recipe": "nosuch"}, "no recipe 'nosuch'"),
    ],
)
def test_mistakes_are_found_before_anything_runs(trained: Trained, wanted: dict[str, Any], message: str) -> None:

    options = {name: wanted.pop(name) for name in set(UseOptions.model_fields) & set(wanted)}
    request = UseRequest(**{"model": "papers@1", **wanted}, options=UseOptions(**options))
    with pytest.raises(UserError, match=message):
        requested_use(Home(trained.home), request)


def test_a_mistake_exits_with_2_and_leaves_no_failed_run(trained: Trained) -> None:
    done = trained("predict", "--model", "paper@1")
    assert done.returncode == 2
    assert "did you mean 'papers'?" in done.stderr
    assert "Traceback" not in done.stderr
    with sqlite3.connect(trained.home / "prefect" / "prefect.db") as prefect:
        assert {state for (state,) in prefect.execute("select state_name from flow_run")} == {"Completed"}


def test_names_that_nothing_has_are_answered_with_those_that_there_are(trained: Trained) -> None:
    home = Home(trained.home)
    for call, message in (
        (lambda: promote(home, "papers"), r"name one: papers@VERSION \(2, 1\)"),
        (lambda: roll_back(home, "paper"), "did you mean 'papers'"),
        (lambda: find_run(home, "nosuch"), "no run 'nosuch' in .*papers"),
        (lambda: find_run(home, "papers~9"), "papers has run 2 times only"),
        (lambda: find_run(home, "papers~x"), "the number after ~ counts runs back from the latest"),
        (lambda: list_runs(home, RunFilter(sort="acuracy")), "no run has measured it; there are test/accuracy"),
        (lambda: list_runs(home, RunFilter(status="done")), "there are cancelled, completed, failed, running"),
        (lambda: list_runs(home, RunFilter(younger_than="soon")), "--since 'soon' is not an age"),
        (lambda: find_neighbors(Path("v.npy"), [], None, 3, "dot"), "give --node ID"),
    ):
        with pytest.raises(RecipeError, match=message):
            call()
