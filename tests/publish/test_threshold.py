"""A rule of the recipe decides predictions, the report and what the published model says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from configs.errors import RecipeError
from configs.load import build_recipe
from configs.values.deciding import parse_rule, say_rule
from tasks.apply.model.needs import DataNeeds
from tasks.kinds.judged import Threshold
from tasks.publish.report.page import result_table
from tasks.publish.report.parts import ReportedRun
from tasks.publish.report.sections.evaluation import section
from tasks.storage.home import Home
from tasks.storage.outcomes import EvalReport
from tests.publish.line import Line, customers, in_this_process, write_customers


def rows_of_test(evaluation: EvalReport) -> int:
    counts: int = np.sum(evaluation.report["confusion"]["counts"])
    return counts


COSTS = "evaluate.costs={false_negative: 9}"


def test_what_costs_least_is_predicted(tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    in_this_process(monkeypatch)
    write_customers(tmp_path / "data")
    line = Line(home)
    options = COSTS, "evaluate.threshold=cost", "evaluate.splits=[test,valid]", "evaluate.groups=[degree,time]"
    recipe = customers(tmp_path / "data", *options)
    parents = line.run(recipe)
    evaluation = parents["evaluate"].manifest
    assert list(evaluation.report["groups"]) == ["degree", "time"]
    shown = section(ReportedRun(recipe, parents))
    assert shown is not None
    tables = {table.caption: table for table in shown.tables}
    assert sum(int(row[1]) for row in tables["accuracy on test by time"].rows) == rows_of_test(evaluation)
    worst = tables["Rows of test that the model is most wrong about, the worst first"]
    assert (worst.columns, len(worst.rows)) == (("id", "label", "prediction", "score"), 10)
    chosen = evaluation.report["threshold"]
    assert chosen["rule"] == "least cost"
    (row,) = (row for row in evaluation.report["thresholds"] if row["rule"] == "least cost")
    assert (row["probability"], chosen["probability"] < 0.5) == (chosen["probability"], True)

    table = pq.read_table(parents["evaluate"].folder / evaluation.predictions).to_pandas()
    classes = evaluation.report["confusion"]["classes"]
    name = classes[chosen["code"]]
    assert list(table)[-3:] == ["score", *(f"probability_{one}" for one in classes)]
    likely = table[f"probability_{name}"]
    np.testing.assert_allclose(likely, np.where(table.prediction == name, table.score, 1 - table.score), atol=1e-6)
    sure = np.abs(likely - chosen["probability"]) > 1e-6
    assert ((table.prediction == name) == (likely >= chosen["probability"]))[sure].all()
    assert (likely[table.prediction == name] < 0.5).any()
    test = table[table.split == "test"]
    counts = [[int(((test.label == true) & (test.prediction == said)).sum()) for said in classes] for true in classes]
    assert counts == evaluation.report["confusion"]["counts"]
    result = result_table(evaluation, None)
    assert result is not None
    [decided] = [
        row
        for row in result.rows
        if row[:2] == ("test", f"this model, {name} from probability {chosen['probability']:.4f}")
    ]
    shown_as = dict(zip(result.columns, decided, strict=True))
    assert (
        shown_as["accuracy"]
        == f"{(test.label == test.prediction).mean():.4f}"
        != f"{evaluation.metrics['test']['accuracy']:.4f}"
    )
    assert [shown_as[name] == "" for name in ("accuracy", "f1_macro")] == [False] * 2
    (published,) = {path.parent for path in home.root.rglob("data.json")}
    assert DataNeeds.read(published).threshold == Threshold(chosen["code"], chosen["probability"])


def test_a_precision_that_is_not_reached_is_said(tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    in_this_process(monkeypatch)
    write_customers(tmp_path / "data")
    recipe = customers(tmp_path / "data", "evaluate.threshold=precision=0.999", "train.epochs=1")
    report = Line(home).run(recipe, until="evaluate")["evaluate"].manifest.report
    assert "threshold" not in report
    assert "no threshold has precision at least 0.999 on the validation split" in " ".join(report["notes"])


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["evaluate.threshold=cost"], "say what mistakes cost"),
        (["evaluate.threshold=f2"], "'f2' is none of f1, cost, precision=0.9"),
        (["evaluate.threshold=recall=1.5"], "is none of f1"),
        (["evaluate.threshold=f1", "evaluate.splits=[test]"], "splits leaves out; add valid"),
        ([COSTS.replace("9", "0")], "false_negative"),
    ],
)
def test_rules_that_nobody_can_mean_are_refused(overrides: list[str], said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        build_recipe({"name": "a", "dataset": "synthetic", "model": "gcn"}, overrides)


def test_other_tasks_have_no_threshold(tmp_path: Path, home: Home) -> None:
    write_customers(tmp_path / "data", classes=("good", "bad", "ugly"))
    for option in (COSTS, "evaluate.threshold=f1"):
        with pytest.raises(RecipeError, match=r"for one label of yes or no, or two classes"):
            Line(home).run(customers(tmp_path / "data", option), until="train")


def test_a_misspelt_class_is_named_where_it_makes_two_of_three(tmp_path: Path, home: Home) -> None:
    write_customers(tmp_path / "data")
    path = tmp_path / "data" / "customers.parquet"
    rows = pq.read_table(path).to_pylist()
    rows[7]["kind"] = "badd"
    pq.write_table(pa.Table.from_pylist(rows), path)
    with pytest.raises(
        RecipeError, match=r"or two classes, .*\); class 'badd' of 1 rows looks like 'bad' of \d+: is it"
    ):
        Line(home).run(customers(tmp_path / "data", "evaluate.threshold=f1"), until="train")


def test_a_training_calls_classes_by_their_names(tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    in_this_process(monkeypatch)
    write_customers(tmp_path / "data", classes=("good", "bad", "ugly"))
    line = Line(home)
    line.run(customers(tmp_path / "data", "evaluate.evaluator=f1", "train.epochs=1"), until="train")
    assert any("fewer than 30 rows of 1 of 3 classes (ugly: " in said for said in line.ears.messages)


def test_rules_are_said_in_words() -> None:
    assert [say_rule(rule) for rule in ("f1", "cost", "precision=0.95", "share=0.05", "recall=0.5")] == [
        "best F1",
        "least cost",
        "precision at least 0.95",
        "the highest 5 %",
        "recall at least 0.5",
    ]
    assert parse_rule("share=0.01") == ("share", 0.01)
