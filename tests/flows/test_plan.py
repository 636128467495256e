"""What `graphmill plan` and `graphmill check` say before anything runs, and that nothing is left behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from configs.errors import RecipeError
from configs.load import build_recipe
from configs.registry import MODELS
from configs.schema import STAGES, Recipe
from flows.cli import app
from flows.commands.recipes.data_check import check_data
from flows.commands.recipes.plan import make_plan
from flows.records.run_record import RunRecord, now_text
from flows.terminal.selection import select_stages
from tasks.calls import load_stage
from tasks.stage import Listener, run_stage
from tasks.storage.home import Home
from tasks.storage.home_files.source_digests import SourceDigests
from tests.support import stage_entry


def links(folder: Path, *overrides: str) -> Recipe:
    (folder / "edges.csv").write_text("src,dst\n" + "".join(f"{i},{(7 * i + 1) % 40}\n" for i in range(40)))
    sections = {
        "name": "links",
        "dataset": {"name": "tables", "task": "link", "num_negatives": 9, "edges": {"files": f"{folder}/edges.csv"}},
        "model": {"name": "graphsage"},
    }
    return build_recipe(sections, overrides)


def make_plan_of_all(home: Home, recipe: Recipe) -> None:
    make_plan(home, recipe, select_stages())


def look_at_data(home: Home, recipe: Recipe) -> None:
    check_data(recipe, home, Listener())


def test_a_link_task_of_tables_that_are_ingested_and_not_partitioned(tmp_path: Path, home: Home) -> None:
    """Their number of classes is nobody's option: nothing tells the model's weights yet."""
    recipe = links(tmp_path)
    run_stage(load_stage("ingest"), recipe, {}, home)
    steps = {step.stage: step for step in make_plan(home, recipe, select_stages())}
    assert (steps["ingest"].status, steps["preprocess"].status) == ("cached", "runs")
    assert steps["train"].memory_bytes is None


def test_what_a_training_takes_is_known_once_the_graph_is_made(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many parts and machines it wants is asked before it is cut."""
    recipe = links(tmp_path, "train.loader=edge", "train.threads=1")
    ingested = run_stage(load_stage("ingest"), recipe, {}, home)
    run_stage(load_stage("preprocess"), recipe, {"ingest": ingested.parent}, home)
    steps = {step.stage: step for step in make_plan(home, recipe, select_stages())}
    assert [steps[name].status for name in ("preprocess", "partition")] == ["cached", "runs"]
    assert steps["train"].memory_bytes is not None
    assert any("weights" in reason for reason in steps["train"].reasons)
    monkeypatch.delattr(MODELS.get("graphsage"), "make_conv")
    train = make_plan(home, links(tmp_path, "model.hidden_dim=8"), select_stages())[STAGES.index("train")]
    assert train.reasons[0].endswith("its class GraphSage has to define make_conv(in_dim, out_dim)")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("train.strategy=partitioned",), r"the partition has 1; set partition\.num_parts=2 or a multiple"),
        (("train.strategy=partition_parallel",), r"the partition has 1; set partition\.num_parts=2 or a multiple"),
        (("train.strategy=partitioned", "partition.num_parts=2", "train.loader=full_edge"), "works with the loaders"),
        (("train.strategy=partitioned", "partition.num_parts=2", "train.sampling_threads=2"), "one thread a rank"),
        (("train.strategy=parallel_epochs", "train.epochs=3"), "epochs=3 is no multiple; take 4"),
        (("train.loader.fanout=5,5,5",), "3 numbers and the model has 2 layers"),
    ],
)
def test_options_that_cannot_train_are_refused_before_anything_is_read(
    tmp_path: Path, home: Home, options: tuple[str, ...], message: str
) -> None:
    ranks = ("train.loader=edge", "train.num_ranks=2", "model.num_layers=2")
    with pytest.raises(RecipeError, match=message):
        make_plan_of_all(home, links(tmp_path, *ranks, *options))
    make_plan(home, links(tmp_path, *ranks, *options), select_stages(only=["ingest"]))


def test_memory_that_nobody_can_estimate_is_the_last_run_s(tmp_path: Path, home: Home) -> None:
    recipe = links(tmp_path)
    stages = {name: stage_entry(name, peak_bytes=2**20) for name in ("partition", "evaluate")}
    RunRecord(id="before", recipe="links", started_at=now_text(), stages=stages).write(home)
    steps = {step.stage: step for step in make_plan(home, recipe, select_stages())}
    assert steps["partition"].memory_bytes == steps["evaluate"].memory_bytes == 2**20
    assert steps["publish"].memory_bytes is None


@pytest.mark.parametrize("look", [make_plan_of_all, look_at_data])
def test_data_that_no_memory_holds_is_refused_before_anything_is_read(tmp_path: Path, home: Home, look: Any) -> None:
    recipe = links(tmp_path, "dataset.num_negatives=2000000000")
    with pytest.raises(RecipeError, match=r"dataset\.num_negatives=2000000000 takes at least"):
        look(home, recipe)


def test_changed_options_have_the_names_and_the_form_of_overrides(tmp_path: Path, home: Home) -> None:
    """A stage keeps its own section without the section's name, and lists of sections are compared one by one."""
    before = links(tmp_path, "preprocess.transforms=[{name: standardize}]")
    digests = SourceDigests(home)
    configs = {name: load_stage(name).key_content(before, digests) for name in ("preprocess", "evaluate")}
    stages = {name: stage_entry(name, config=config) for name, config in configs.items()}
    RunRecord(id="before", recipe="links", started_at=now_text(), stages=stages).write(home)
    now = links(tmp_path, "preprocess.transforms=[{name: standardize}, {name: degree}]", "evaluate.splits=[test]")
    reasons = {step.stage: step.reasons for step in make_plan(home, now, select_stages())}
    assert "preprocess.transforms.1.name (absent) -> degree" in reasons["preprocess"]
    assert not any("transforms.0" in reason for reason in reasons["preprocess"])
    assert 'evaluate.splits ["valid", "test"] -> ["test"]' in reasons["evaluate"]


def test_files_that_are_missing_are_said(tmp_path: Path, home: Home) -> None:
    recipe = links(tmp_path)
    assert not [one for one in make_plan(home, recipe, select_stages())[0].reasons if "fail" in one]
    (tmp_path / "edges.csv").unlink()
    step = make_plan(home, recipe, select_stages())[0]
    assert step.status == "runs"
    assert step.reasons[0].startswith(f"it will fail: {tmp_path}/edges.csv: there is no such file")
    triples = {"name": "t", "dataset": {"name": "triples", "triples": str(tmp_path / "t.tsv")}, "model": "transe"}
    assert "it will fail" in make_plan(home, build_recipe(triples), select_stages())[0].reasons[0]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(node_text: str, edge_text: str, **change: Any) -> None:
    Path("n.csv").write_text(node_text)
    Path("e.csv").write_text(edge_text)
    dataset = {
        "name": "tables",
        "nodes": {"files": "n.csv", "label": "y", "features": "x", **change.pop("nodes", {})},
        "edges": {"files": "e.csv"},
        "split": {"by": "stratified"},
        **change,
    }
    recipe = {"name": "mine", "dataset": dataset, "model": {"name": "gcn"}}
    Path("mine.yaml").write_text(yaml.safe_dump(recipe))


def check(*arguments: str) -> tuple[int, dict[str, Any], str]:
    """Run it twice: as people read it, and as JSON."""
    shown = CliRunner().invoke(app, ["--home", "home", "check", *arguments])
    told = CliRunner().invoke(app, ["--home", "home", "check", *arguments, "--json"])
    assert shown.exit_code == told.exit_code, shown.output
    assert [path for path in Path("home").rglob("*") if path.name not in ("work", "locks")] == []
    found: dict[str, Any] = json.loads(told.stdout.splitlines()[-1])
    return shown.exit_code, found, shown.output


NODES = "id,x,y\n" + "".join(f"{i},{'' if i == 7 else i / 2},{'ab'[i % 2] if i < 30 else ''}\n" for i in range(40))
EDGES = "src,dst\n" + "".join(f"{i},{i + 1}\n" for i in range(20))


def test_columns_that_the_recipe_does_not_name(place: Path) -> None:
    write(NODES, "src,dst,since\n1,2,2020\n", nodes={"features": []})
    code, found, shown = check("mine.yaml")
    assert code == 0
    assert found["unread"] == {"n.csv": ["x"], "e.csv": ["since"]}
    assert "not read    n.csv: x\n" in shown
    write(NODES, EDGES)
    assert check("mine.yaml")[1]["unread"] == {}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_check_that_is_ended_leaves_nothing(place: Path, number: signal.Signals) -> None:
    """Or, where it is killed, nothing behind the next one."""
    sizes = ["dataset.num_nodes=3000000", "dataset.num_edges=9000000"]
    root = Path(__file__).resolve().parent.parent.parent
    home = ["--home", str(place / "home")]
    command = [sys.executable, "-m", "flows.cli", *home, "check"]
    with subprocess.Popen([*command, "quickstart", *sizes], cwd=root, stderr=subprocess.DEVNULL) as process:
        until = time.monotonic() + 120
        while not [*(place / "home/work").glob("*/ingest/*")] and time.monotonic() < until:
            time.sleep(0.05)
        process.send_signal(number)
        assert process.wait(60) in (1, -number)
    if number == signal.SIGKILL:
        assert [*(place / "home/work").iterdir()]
        assert CliRunner().invoke(app, [*home, "check", "quickstart", "dataset.num_nodes=300"]).exit_code == 0
    assert [path for path in (place / "home").rglob("*") if path.is_file() or path.parent.name == "work"] == []


def test_what_good_data_holds(place: Path) -> None:
    write(NODES, EDGES, nodes={"missing": "mean"})
    code, found, shown = check("mine.yaml")
    assert code == 0
    assert found["ok"]
    assert found["tables"]["n.csv"]["x"] == {"kind": "double", "rows": 40, "missing": 1}
    assert found["tables"]["n.csv"]["y"] == {"kind": "string", "rows": 40, "missing": 10}
    assert found["tables"]["e.csv"]["src"] == {"kind": "int64", "rows": 20, "missing": 0}
    assert found["nodes"] == {"node": 40}
    assert found["edges"] == {"node__to__node": 20}
    assert found["classes"] == {name: {"train": 9, "valid": 3, "test": 3} for name in "ab"}
    assert found["unlabelled"] == 10
    assert found["splits"] == {"train": 18, "valid": 6, "test": 6}
    assert found["graph"] == {"without_in_edge": 19, "components": 20, "largest_component": 21}
    assert found["adjusted"] == {"n.csv: empty cells of x filled": 1}
    assert found["mistakes"] == found["warnings"] == []
    for text in ("2.5 %", "node 40", "train 18", "20 connected components", "the data is good"):
        assert text in shown


def test_tables_behind_a_mistake_are_not_told_of(place: Path) -> None:
    lines = NODES.splitlines()
    write("\n".join([*lines[:4], "3,1,a,too,long", *lines[5:]]), EDGES + "1,99\n")
    code, found, _ = check("mine.yaml")
    assert code == 2
    assert "n.csv" not in found["tables"]
    assert found["tables"]["e.csv"]["src"]["rows"] == 21
    assert [mistake["message"][:13] for mistake in found["mistakes"]] == ["n.csv (row 3)"]
    write(NODES, EDGES, nodes={"features": ["x", "xx"], "missing": "mean"})
    _, found, _ = check("mine.yaml")
    assert sorted(found["tables"]["n.csv"]) == ["id", "y"]
    write(NODES, "source,dst\n1,2\n")
    _, found, _ = check("mine.yaml", "dataset.nodes.missing=mean")
    assert "e.csv" not in found["tables"]


def test_every_mistake_is_said_at_once(place: Path) -> None:
    write(NODES.replace("3,1.5,b", "2,1.5,b"), EDGES + "99,1\n98,1\n")
    code, found, shown = check("mine.yaml")
    assert code == 2
    assert [(one["message"].partition(":")[0], one["rows"]) for one in found["mistakes"]] == [
        ("n.csv (row 3, column id)", 1),
        ("n.csv (row 7, column x)", 1),
        ("e.csv (row 3, column src)", 3),
        ("e.csv (row 2, column dst)", 1),
    ]
    assert "error: e.csv (row 3, column src): unknown node id 3: it is not in n.csv; on_unknown_id: drop" in shown
    assert "add makes nodes of them (3 such rows)" in shown
    assert found["tables"]["e.csv"]["src"]["rows"] == 22


LATER: list[tuple[str, dict[str, Any], list[str], str]] = [
    ("a metric", {"task_type": "binary", "metric": "rocauc", "split": {"by": "time"}}, [], "valid split of .* rocauc"),
    ("a snapshot", {}, ["snapshot.as_of=1"], "split is empty"),
    ("no times", {"nodes": {"time": None}}, ["snapshot.as_of=1"], "has no times"),
    ("a transform", {}, ["preprocess.transforms=[{name: standardize, columns: z}]"], "standardize names column 'z'"),
    ("a file", {"edges": {"files": "no.csv"}}, [], r"no\.csv: there is no such file"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "overrides", "message"), [x[1:] for x in LATER], ids=[x[0] for x in LATER])
def test_what_only_later_stages_would_refuse(
    place: Path, change: dict[str, Any], overrides: list[str], message: str
) -> None:
    nodes = "id,x,y,t\n" + "".join(f"{i},{i / 2},{int(i < 20) * (i % 2)},{i}\n" for i in range(40))
    write(nodes, EDGES, nodes={"time": "t", **change.pop("nodes", {})}, **change)
    code, found, _ = check("mine.yaml", *overrides)
    assert code == 2
    (said,) = [one["message"] for one in found["mistakes"]]
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(said)


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["b", "a", "a", ""] * 10, {"a": {"rows": 20}, "b": {"rows": 10}}),
        (["3", "-1", "7", "-100"] * 10, {"3": {"rows": 10}, "7": {"rows": 10}}),
        (None, {}),
    ],
)
def test_vectors_with_labels(place: Path, labels: list[str] | None, classes: dict[str, Any]) -> None:
    np.save("vectors.npy", np.random.default_rng(0).normal(size=(40, 3)))
    dataset = {"name": "vectors", "files": "vectors.npy"}
    if labels is not None:
        Path("labels.txt").write_text("\n".join(labels) + "\n")
        dataset["labels"] = "labels.txt"
    Path("look.yaml").write_text(yaml.safe_dump({"name": "look", "dataset": dataset, "model": {"name": "largevis"}}))
    code, found, shown = check("look.yaml")
    assert (code, found["classes"]) == (0, classes), shown
    assert found["unlabelled"] == (0 if labels is None else sum(label in ("", "-1", "-100") for label in labels))


def test_mistakes_and_warnings_come_before_what_stands_in_the_data(place: Path) -> None:
    rows = "".join(f"{i},{i / 2},{'a' if i % 40 else 'b'}\n" for i in range(400))
    write("id,x,y\n" + rows, EDGES)
    code, found, shown = check("mine.yaml")
    assert code == 0
    assert "accuracy says nothing about the other classes" in found["warnings"][0]
    assert shown.index("warning: 97.5% of the labelled rows") < shown.index("n.csv")
    assert shown.rstrip().endswith("ingest and preprocess take it; a warning, above")
    write("id,x,y\n" + rows + "700,wrong,a\n", EDGES)
    code, found, shown = check("mine.yaml")
    assert code != 0
    assert shown.index("error: n.csv (row 400, column x)") < shown.index("mistake, above")
    write("id,x,y\n" + rows, "src,dst\n0,1\n1,1000\n")
    code, found, shown = check("mine.yaml")
    assert code != 0
    assert shown.index("error: e.csv (row 1, column dst)") < shown.index("kind"), "of the tables that were read"
    assert shown.rstrip().endswith("a mistake, above")
