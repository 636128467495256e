"""Commands on knowledge graphs: what stands in them, and completing triples with a registered model."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

from benchmarks.gnn_graphs import prepare
from configs.registry import DATASETS
from configs.schema import Recipe
from flows.cli import app
from flows.commands.outputs.use import show_completions
from tasks.apply.completion.asked import CompletionRequest
from tasks.apply.run import OutputRequest
from tasks.ingest.stage import STAGE
from tasks.stage import run_stage
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home
from tasks.storage.manifests import SPLITS
from tests.flows.conftest import Shell, graphmill
from tests.ingest.triple_files import TRAIN, lines, put_splits
from tests.knowledge_graphs import planted_triples


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


pytestmark = pytest.mark.timeout(900)  # a loaded machine takes ten times as long

MODEL = ("--model", "ring@champion")
NAMES = ["next", "previous", "fifth", "far", "opposite"]


class Trained(Shell):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        triples, _ = planted_triples()
        rows = [(f"t{head}", NAMES[relation], f"t{tail}") for head, relation, tail in triples.tolist()]
        (folder / "ring.tsv").write_text(lines(rows))
        (folder / "other.tsv").write_text(lines([*rows, ("t0", "next", "t200")]))
        content = {
            "name": "ring",
            "dataset": {"name": "triples", "triples": str(folder / "ring.tsv")},
            "model": {"name": "complex", "dim": 32},
            "train": {
                "loader": {"name": "triples", "batch_size": 64, "negatives": 32},
                "epochs": 60,
                "eval_every": 20,
                "learning_rate": 0.3,
                "threads": 1,
            },
            "tracking": {"system_metrics": False},
        }
        (folder / "ring.yaml").write_text(yaml.safe_dump(content))
        content["dataset"] = {"name": "triples", "triples": str(folder / "other.tsv")}
        (folder / "other.yaml").write_text(yaml.safe_dump(content))
        done = self("run", "ring.yaml")
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return Trained(tmp_path_factory.mktemp("ring"))


def test_one_query_is_shown_and_told(ring: Trained) -> None:
    shown = ring("predict", *MODEL, "--head", "t3", "--relation", "next", "--known", "mark", "-k", "4")
    assert shown.returncode == 0, shown.stderr
    first, *rows = shown.stdout.splitlines()
    assert first.split() == ["rank", "t3", "next", "?", "score", "probability", "known"]
    assert len(rows) == 4
    assert rows[0].split()[:2] == ["1", "t4"]
    assert "ring version 1" in shown.stderr
    assert not list(ring.folder.glob("*predictions*"))
    told = ring.json("predict", *MODEL, "--head", "t3", "--relation", "next", "--known", "mark", "-k", "4")
    assert (told["rows"], told["asked"], told["output"]) == (4, "tail", None)
    assert [row["tail"] for row in told["completions"]] == [row.split()[1] for row in rows]
    assert told["completions"][0]["known"] in ("train", "valid", "test")
    between = ring("predict", *MODEL, "--head", "t3", "--tail", "t4", "-k", "1", "--known", "mark")
    assert between.stdout.splitlines()[0].split() == ["rank", "t3", "?", "t4", "score", "known"]


def test_a_file_of_queries(ring: Trained) -> None:
    (ring.folder / "q.csv").write_text("head,relation,tail\nt3,next,\n,fifth,t9\nt1,,t2\n")
    told = ring.json("predict", *MODEL, "--queries", "q.csv", "-k", "3", "-o", "found/c.parquet")
    table = pq.read_table(ring.folder / "found" / "c.parquet")
    assert told["rows"] == len(table)
    assert told["queries"] == 3
    assert table["asked"].to_pylist() == ["tail"] * 3 + ["head"] * 3 + ["relation"] * 3
    assert "t4" not in table["tail"].to_pylist()[:3], "known triples are left out"
    assert [path.name for path in (ring.folder / "found").iterdir()] == ["c.parquet"]
    ring.json("predict", *MODEL, "--queries", "q.csv", "-k", "3", "--output", "found/c.csv")
    assert pc.read_csv(ring.folder / "found" / "c.csv")["tail"].to_pylist() == table["tail"].to_pylist()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "completes triples: graphmill predict with --head X --relation R (which tails?), --relation R --tail Y"),
        (["-o", "all.parquet"], "or --queries FILE with the columns head, relation and tail"),
        (["--head", "t333", "--relation", "next"], "--head 't333' is no entity of this graph (did you mean 't33'?)"),
        (["--head", "t3", "--relation", "nxt"], "--relation 'nxt' is no relation of this graph (did you mean 'next'?)"),
        (["--head", "t3", "--tail", "t4", "other.yaml"], "ring@1 learnt a vector for each of its 120 nodes"),
    ],
)
def test_what_cannot_be_answered(ring: Trained, arguments: list[str], message: str) -> None:
    done = ring("predict", *MODEL, *arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_rows_of_entities_and_relations(ring: Trained) -> None:
    ring.json("export", "embeddings", *MODEL, "-o", "entities.parquet")
    found = ring.json("neighbors", "--embeddings", "entities.parquet", "--node", "t17", "-k", "3")["neighbors"]
    assert [one["node"] for one in found] == ["t17"]
    record = ring.json("export", "relations", *MODEL, "-o", "relations.npy")
    assert np.load(ring.folder / "relations.npy").shape == (5, 32)
    assert sorted(pq.read_table(record["ids"])["id"].to_pylist()) == sorted(NAMES)


# ---- without a model


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"head": "a"}, "--head alone is no query"),
        ({"head": "a", "relation": "r", "tail": "b"}, "one of head, relation and tail is what is asked for"),
        ({"head": "a", "relation": "r", "known": "marked"}, r"--known 'marked' \(did you mean 'mark'\?\)"),
        ({"head": "a", "tail": "b", "type": "gene"}, "--type is for entities"),
        ({"head": "a", "relation": "r", "k": 1001}, "of more than 1,000 write a file"),
    ],
)
def test_options_that_do_not_fit(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OutputRequest("predictions", asked=CompletionRequest(**given)).placed("demo", "triple")


def test_other_models_complete_nothing(tmp_path: Path) -> None:
    for given, option in ({"head": "a"}, "--head"), ({"k": 3}, "-k"):
        with pytest.raises(ValueError, match=f"{option} is for models of knowledge graphs; this is a model of nodes"):
            OutputRequest("predictions", asked=CompletionRequest(**given)).placed("demo", "node")
    with pytest.raises(ValueError, match="relations have rows in models of knowledge graphs"):
        OutputRequest("relations").placed("demo", "node")
    queries = tmp_path / "q.csv"
    queries.write_text("head,relation\na,r\n")
    with pytest.raises(ValueError, match="--queries and --head: the queries are in the file"):
        OutputRequest("predictions", given={"queries": str(queries)}, asked=CompletionRequest(head="a")).placed(
            "demo", "triple"
        )
    with pytest.raises(ValueError, match="--pairs: this is a model of triples; give --queries"):
        OutputRequest("predictions", "x.csv", given={"pairs": str(queries)}).placed("demo", "triple")
    with pytest.raises(ValueError, match=r"must end with \.parquet or \.csv"):
        OutputRequest("predictions", "x.npy").placed("demo", "triple")


def test_the_column_of_known_triples_is_there_where_it_says_something(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"head": "a", "relation": "r", "tail": "b", "rank": 1, "score": 0.5, "probability": 0.25, "known": None}
    show_completions("head", [row])
    assert capsys.readouterr().out == "rank  ? r b   score  probability\n   1  a      0.5000       0.2500\n"
    show_completions("head", [row, {**row, "rank": 2, "known": "test"}])
    assert capsys.readouterr().out.splitlines()[-1].endswith("test")
