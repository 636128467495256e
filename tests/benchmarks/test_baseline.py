"""Reference results: which runs are chosen, what is kept, how they are judged. One real run is marked slow."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.baseline import BaselineRequest, Summary, goal_lines, run_baseline
from benchmarks.baseline_tables import RECIPES, ResultTable, Row, plan_runs, read_table, select_rows
from configs.errors import DataError, RecipeError
from configs.load import load_recipe
from flows.commands.recipes import baseline
from flows.commands.recipes.baseline import identity
from flows.commands.recipes.run import RunRequest
from flows.pipeline.run_endings import reported_metrics
from flows.records.run_record import RunRecord, now_text
from tasks.storage.home import Home
from tests.flows.conftest import ROOT, write_recipe
from tests.support import stage_entry

ROW: dict[str, Any] = {
    "recipe": "tiny",
    "dataset": "Planted",
    "metric": "accuracy",
    "published": 0.8,
    "tolerance": 0.06,
}
ROWS: dict[str, Any] = {
    "planted-sage": {**ROW, "model": "GraphSAGE", "keywords": ["quick"], "runs": 2, "source": "a paper"},
    "planted-gcn": {**ROW, "model": "GCN", "overrides": ["model=gcn"], "runs": 3},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tables").mkdir()
    write_recipe(tmp_path)
    write_table(tmp_path, ROWS)
    return tmp_path


def write_table(folder: Path, rows: dict[str, Any], **more: Any) -> None:
    goals = [{"dataset": "Planted", "at_least": 0.85}]
    content = {"title": "Planted", "rows": rows, "goals": goals, **more}
    (folder / "tables" / "toy.yaml").write_text(yaml.safe_dump(content, sort_keys=False))


class Pipeline:
    """In place of the pipeline: answers with accuracies, or all metrics, in turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *accuracies: float | dict[str, float] | Exception) -> None:
        self.requests: list[RunRequest] = []
        self.answers = list(accuracies)
        monkeypatch.setattr(baseline, "pipeline", self.open)

    @contextmanager
    def open(self, home: Home, verbose: bool) -> Iterator[Callable[[RunRequest], RunRecord]]:
        yield self.run

    def run(self, request: RunRequest) -> RunRecord:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        metrics = {"valid": {"accuracy": 0.5}, "test": answer if isinstance(answer, dict) else {"accuracy": answer}}
        stages = {"train": stage_entry("train", build_seconds=3.0)}
        return RunRecord(id="x", recipe="tiny", started_at=now_text(), metrics=metrics, stages=stages)


def test_seeds_go_row_by_row_so_that_an_early_end_leaves_a_whole_table(folder: Path, home: Home) -> None:
    rows = read_table("toy", folder).rows
    planned = plan_runs(rows, None, folder, home)
    order = [(run.row, run.number) for run in planned]
    assert order == [(name, n) for n in (0, 1) for name in rows] + [("planted-gcn", 2)]
    assert planned[1].overrides == ["model=gcn", "seed=0"]
    assert len({run.digest for run in planned}) == len(planned)
    assert len(plan_runs(rows, 1, folder, home)) == 2


def test_rows_are_selected_by_all_words(folder: Path) -> None:
    whole = read_table("toy", folder)
    assert list(select_rows(whole, [])) == list(ROWS)
    assert list(select_rows(whole, ["planted", "GCN"])) == ["planted-gcn"]
    with pytest.raises(RecipeError, match=r"no row has the keywords quik.*quick"):
        select_rows(whole, ["quik"])


@pytest.mark.parametrize(
    ("name", "row", "more", "said"),
    [
        ("toi", {}, {}, r"no table .toi.*tables: toy"),
        ("toy", {"recipe": "nowhere"}, {}, r"row a names the recipe nowhere, and there is no nowhere\.yaml"),
        ("toy", {}, {"tilte": "x"}, "tilte"),
        ("toy", {"metrics": {"accuracy": 0.8}}, {}, "a row has either metric or metrics"),
        ("toy", {"metric": ""}, {}, "a row has either metric or metrics"),
        ("toy", {"metric": "", "metrics": {"accuracy": 0.8}}, {}, "published goes with metric"),
    ],
)
def test_what_is_wrong_with_a_table_is_said(
    folder: Path, name: str, row: dict[str, Any], more: dict[str, Any], said: str
) -> None:
    write_table(folder, {"a": {**ROW, "model": "A", **row}}, **more)
    with pytest.raises(RecipeError, match=said):
        read_table(name, folder)


def test_identity_follows_what_decides_a_result(folder: Path, home: Home) -> None:
    path = str(folder / "tiny.yaml")
    plain = identity(load_recipe(path), home)
    assert identity(load_recipe(path, ["train.max_restarts=1", "name=other", "train.prefetch=0"]), home) == plain
    assert identity(load_recipe(path, ["train.threads=77"]), home) != plain
    for change in ("seed=1", "train.epochs=4", "model.hidden_dim=8", "dataset.seed=2", "evaluate.splits=[test]"):
        assert identity(load_recipe(path, [change]), home) != plain


def kept(home: Home) -> tuple[list[Any], str]:
    """The runs of the table that are kept, and the table."""
    path = home.root / "baselines" / "toy.json"
    return [*json.loads(path.read_text())["runs"].values()], path.with_suffix(".md").read_text()


def test_done_runs_are_kept_and_judged(
    folder: Path, home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline = Pipeline(monkeypatch, 0.80, 0.90, 0.86, 0.82)
    request = BaselineRequest("toy", ["sage"], folder=folder)
    for _ in range(2):  # the second time nothing is run again
        assert run_baseline(home, request)
        assert [r.overrides for r in pipeline.requests] == [["seed=0"], ["seed=1"]]
    assert pipeline.requests[0].only == ["ingest", "preprocess", "components", "partition", "train", "evaluate"]
    row = "| Planted | GraphSAGE | accuracy | 0.8500 ± 0.0707 | 2 of 2 | 0.8000 | 0.06 | within | 3.00 s |"
    for words in (row, "goal 0.85 reached", "- Planted GraphSAGE: a paper"):
        assert words in kept(home)[1]
    assert "reached" in capsys.readouterr().out
    assert run_baseline(home, BaselineRequest("toy", ["gcn"], runs=1, folder=folder))
    runs, text = kept(home)
    assert sorted(run["metrics"]["test"]["accuracy"] for run in runs) == [0.80, 0.86, 0.90]
    assert row in text, "rows of another selection stay"
    write_recipe(folder, seed=7, train={"loader": "full", "epochs": 4})  # another recipe
    run_baseline(home, BaselineRequest("toy", ["sage"], runs=1, folder=folder))
    assert len(pipeline.requests) == 4


def test_one_training_serves_several_metrics(
    folder: Path, home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"recipe": "tiny", "dataset": "Planted", "model": "Walks", "source": "a paper", "tolerance": 0.02, "runs": 2}
    write_table(folder, {"vectors": {**row, "metrics": {"accuracy": 0.8, "f1_micro@0.1": None}}})
    pipeline = Pipeline(monkeypatch, {"accuracy": 0.7, "f1_micro@0.1": 0.3}, {"accuracy": 0.9, "f1_micro@0.1": 0.5})
    assert run_baseline(home, BaselineRequest("toy", folder=folder))
    assert len(pipeline.requests) == 2
    text = kept(home)[1]
    assert "| Planted | Walks | accuracy | 0.8000 ± 0.1414 | 2 of 2 | 0.8000 | 0.02 | within | 3.00 s |" in text
    assert "| Planted | Walks | f1_micro@0.1 | 0.4000 ± 0.1414 | 2 of 2 |  |  |  | 3.00 s |" in text
    assert text.count("a paper") == 1
    assert "f1_micro@0.1" in capsys.readouterr().out, "which of them a line is must be seen"


def test_triples_are_also_measured_without_entities_that_training_never_saw() -> None:
    unseen = {"entities": 2, "triples": 1, "metrics": {"mrr": 0.5}}
    assert reported_metrics({"triples": {"unseen": unseen}}, {"mrr": 0.4}) == {"mrr@seen": 0.5}
    assert reported_metrics({"triples": {"unseen": {"entities": 0, "triples": 0}}}, {"mrr": 0.4}) == {"mrr@seen": 0.4}
    left_open = {"entities": 2, "triples": 1}  # ranked among candidate lists
    assert reported_metrics({"triples": {"unseen": left_open}}, {"mrr": 0.4}) == {}
    assert reported_metrics({}, {"accuracy": 0.4}) == {}


def test_commands_side_by_side_keep_each_other_s_results(
    folder: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = Pipeline(monkeypatch, 0.80, 0.86)
    one = pipeline.run

    def and_another(request: RunRequest) -> RunRecord:
        pipeline.run = one  # type: ignore[method-assign]
        assert run_baseline(home, BaselineRequest("toy", ["gcn"], runs=1, folder=folder))
        return one(request)

    pipeline.run = and_another  # type: ignore[method-assign]
    assert run_baseline(home, BaselineRequest("toy", ["sage"], runs=1, folder=folder))
    runs, text = kept(home)
    assert sorted(run["row"] for run in runs) == ["planted-gcn", "planted-sage"]
    assert "0.8000 | 1 of 3" in text
    assert "0.8600 | 1 of 2" in text


def test_what_a_run_lacks_is_named(
    folder: Path, home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {**ROW, "model": "A", "runs": 1, "data": "links.gz of a site"}
    write_table(folder, {"a": {**row, "metric": "acuracy"}})
    Pipeline(monkeypatch, 0.8, DataError("there is no such file"))
    with pytest.raises(
        RecipeError, match=r"row a names the metric acuracy \(did you mean 'accuracy'\?\); its runs have"
    ):
        run_baseline(home, BaselineRequest("toy", folder=folder))
    write_table(folder, {"b": {**row, "overrides": ["seed=9"], "vary": []}})
    assert not run_baseline(home, BaselineRequest("toy", folder=folder))
    assert "; the data: links.gz of a site" in capsys.readouterr().err


def test_a_run_that_fails_keeps_none_of_the_others_from_running(
    folder: Path, home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline = Pipeline(monkeypatch, RecipeError("the training diverged"), 0.80, 0.81, 0.82)
    assert not run_baseline(home, BaselineRequest("toy", ["sage"], folder=folder))
    shown = capsys.readouterr()
    assert "the training diverged" in shown.err
    assert "failed: planted-sage run 0" in shown.err
    assert "1 of 2" in shown.out
    assert run_baseline(home, BaselineRequest("toy", ["sage"], folder=folder))  # only what is missing
    assert len(pipeline.requests) == 3


@pytest.mark.parametrize(
    ("metric", "given", "values", "verdict"),
    [
        ("accuracy", {"published": 0.8, "tolerance": 0.01}, [0.795, 0.786], "within"),
        ("accuracy", {"published": 0.8, "tolerance": 0.01}, [0.78], "below"),
        ("accuracy", {"published": 0.8, "spread": 0.02}, [0.83, 0.84], "better"),
        ("rmse", {"published": 2.6, "spread": 0.2}, [2.1], "better"),
        ("rmse", {"published": 2.6, "spread": 0.2}, [3.0], "below"),
        ("rmse", {"published": 2.6}, [3.0], ""),
        ("accuracy", {}, [0.9], ""),
        ("accuracy", {"published": 0.8, "tolerance": 0.01}, [], ""),
    ],
)
def test_verdicts(metric: str, given: dict[str, float], values: list[float], verdict: str) -> None:
    assert summary(metric, values, **given).verdict == verdict


def summary(metric: str, values: list[float], **more: Any) -> Summary:
    row = Row(recipe="a", dataset="A", model=f"M{len(values)}", metric=metric, **more)
    return Summary("a", row, values, [1.0] * len(values))


@pytest.mark.parametrize(
    ("metric", "said"), [("accuracy", "M2 with 0.5000; goal 0.4 reached"), ("rmse", "M1 with 0.4")]
)
def test_goals_are_for_the_best_row_with_results(metric: str, said: str) -> None:
    goals = [{"dataset": "A", "at_least": 0.4}, {"dataset": "B", "at_least": 1.0}]  # of B nothing has run
    table = ResultTable.model_validate({"title": "T", "rows": {}, "goals": goals})
    [line] = goal_lines(table, [summary(metric, values) for values in ([], [0.4], [0.4, 0.6])])
    assert line.startswith(f"A: best is {said}")


@pytest.mark.parametrize("table", ["embedding", "embedding-large", "gnn", "knowledge"])
def test_every_row_of_a_shipped_table_reads(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHMILL_DATA", "/nowhere")
    found = read_table(table, RECIPES)
    for name, row in found.rows.items():
        recipes = [load_recipe(str(RECIPES / f"{row.recipe}.yaml"), row.run_overrides(n)) for n in (0, 1)]
        assert recipes[0] != recipes[1], name
        assert load_recipe(str(RECIPES / f"{row.recipe}.yaml"), []).description, name
        for one in row.by_metric():
            assert one.published is None or (one.source and (one.tolerance or one.spread)), name
    assert {goal.dataset for goal in found.goals} <= {row.dataset for row in found.rows.values()}


def test_list_runs_nothing(tmp_path: Path, shared_data: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.baseline", "gnn", "cora", "--list", "--home", str(tmp_path)]
    shown = subprocess.run([*command, "--data", str(shared_data)], cwd=ROOT, capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    assert "0 of 10" in shown.stdout
    assert not (tmp_path / "artifacts").exists()
    wrong = subprocess.run([*command[:3], "gnu", *command[5:]], cwd=ROOT, capture_output=True, text=True)
    assert wrong.returncode == 2
    assert "did you mean 'gnn'" in wrong.stderr


def test_a_recipe_gets_mean_and_spread_and_is_resumed(
    folder: Path, home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline = Pipeline(monkeypatch, 0.80, RecipeError("diverged"), 0.90)

    def run(*changes: str, seeds: int = 3, only_list: bool = False) -> bool:
        recipe = str(folder / "tiny.yaml")
        return baseline.run_baseline(home, recipe, list(changes), seeds, only_list=only_list, verbose=False)

    assert not run("train.epochs=2")
    assert [r.overrides for r in pipeline.requests] == [["train.epochs=2", f"seed={n}"] for n in range(3)]
    shown = capsys.readouterr()
    assert "failed: tiny train.epochs=2 run 1" in shown.err
    lines = [line.split() for line in shown.out.splitlines()]
    assert ["test", "accuracy", "0.8500", "±", "0.0707", "0.8000", "0.9000"] in lines
    assert "2 of 3 seeds" in shown.out
    pipeline.answers = [0.85]
    assert run("train.epochs=2"), "only the one that is missing"
    assert len(pipeline.requests) == 4
    assert "3 of 3 seeds" in capsys.readouterr().out
    assert run("train.epochs=2")
    assert len(pipeline.requests) == 4
    assert run(seeds=2, only_list=True)
    assert "0 of 2 seeds are done" in capsys.readouterr().out
    for word in ("cora", "seed=3"):
        with pytest.raises(RecipeError, match=f"{word}.*section.key=value"):
            run(word)
