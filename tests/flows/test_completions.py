"""Asking a registered model of a knowledge graph from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
import yaml

from flows.commands.outputs.completions import show_completions
from tasks.apply.completion.asked import CompletionRequest
from tasks.apply.run import OutputRequest
from tests.flows.conftest import Shell
from tests.ingest.triple_files import lines
from tests.knowledge_graphs import planted_triples

pytestmark = pytest.mark.timeout(900)  # a loaded machine takes ten times as long

MODEL = ("--model", "ring@champion")
NAMES = ["next", "previous", "fifth", "far", "opposite"]


class Trained(Shell):
    """A home with a model of a ring of towns, `t0` to `t119`."""

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
