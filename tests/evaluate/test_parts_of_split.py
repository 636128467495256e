"""Groups of rows, and the rows that a model is most wrong about."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from configs.errors import DataError, RecipeError
from configs.label_types import label_type
from configs.load import build_recipe
from flows.commands.recipes.data_check import check_data
from tasks.evaluate.parts_of_split import MOST_WRONG, in_groups, most_wrong
from tasks.evaluators.prediction import Prediction
from tasks.stage import Listener
from tasks.storage.home import Home
from tasks.train.prepared import check_labels
from tests.publish.line import Line, customers, in_this_process, write_customers

MULTICLASS = label_type("multiclass")


def accuracy(prediction: Prediction) -> float:
    label, predicted = prediction.classes()
    return float(np.mean(label == predicted))


def drawn(rows: int, classes: int = 3) -> Prediction:
    rng = np.random.default_rng(rows)
    label = rng.integers(-1, classes, rows)
    label[0] = 0
    return Prediction(scores=rng.normal(size=(rows, classes)).astype(np.float32), label=label)


def test_numbers_are_cut_into_fifths_and_texts_by_frequency() -> None:
    rng, prediction = np.random.default_rng(0), drawn(503)
    number, text = rng.integers(0, 1000, 503), rng.choice(["a", "b", "cc"], 503, p=[0.2, 0.5, 0.3])
    absent = rng.random(503) < 0.1
    columns = {"n": pa.array(number, mask=absent), "t": pa.array(text.astype(object), pa.string())}
    groups = in_groups(columns, prediction, accuracy, ["n", "t"], MULTICLASS)
    assert [group["name"] for group in groups["t"]] == ["b", "cc", "a"]
    for group in groups["t"]:
        rows = np.flatnonzero(text == group["name"])
        assert group["rows"] == len(rows)
        assert group["metric"] == accuracy(prediction.taken(rows))
    *fifths, missing = groups["n"]
    assert len(fifths) == 5
    assert (missing["name"], missing["rows"]) == ("missing", absent.sum())
    for group in fifths:
        low, high = map(int, group["name"].split(" to "))
        rows = np.flatnonzero((number >= low) & (number <= high) & ~absent)
        assert group["rows"] == len(rows) == pytest.approx((~absent).sum() / 5, rel=0.1)
        assert group["metric"] == accuracy(prediction.taken(rows))


def test_few_values_and_moments_make_fewer_groups() -> None:
    prediction = drawn(90)
    columns: dict[str, Any] = {
        "degree": pa.array(np.repeat([0, 1, 7], [60, 20, 10])),
        "one": pa.array(np.ones(90)),
        "day": pa.array([datetime(2026, 1, 1 + i % 3) for i in range(90)]),
        "hour": pa.array([datetime(2026, 1, 1, 12 * (i % 2)) for i in range(90)]),
    }
    groups = in_groups(columns, prediction, accuracy, ["degree", "one", "day", "hour"], MULTICLASS)
    assert [(group["name"], group["rows"]) for group in groups["degree"]] == [("0", 60), ("1", 20), ("7", 10)]
    assert "one" not in groups, "one group tells nothing"
    assert [group["name"] for group in groups["day"]] == [f"2026-01-0{day}" for day in (1, 2, 3)]
    assert [group["name"] for group in groups["hour"]] == ["2026-01-01T00:00:00", "2026-01-01T12:00:00"]


def test_a_metric_that_a_group_does_not_define_is_none_there() -> None:
    def refuse(_: Prediction) -> float:
        raise DataError("no")

    groups = in_groups({"x": pa.array([1, 2, 2])}, drawn(3), refuse, ["x"], MULTICLASS)
    assert [group["metric"] for group in groups["x"]] == [None, None]


@pytest.mark.parametrize("kind", ["binary", "two", "three", "labels", "links", "number"])
def test_positives_of_a_group_say_why_it_has_no_metric(kind: str) -> None:
    score, label = np.array([[1.0], [2], [-1], [3]]), np.array([1, 0, -1, 0])
    prediction = {
        "binary": Prediction(scores=score, label=np.where(label < 0, np.nan, label)[:, None].astype(float)),
        "two": Prediction(scores=np.hstack([score, -score]), label=label),
        "three": Prediction(scores=np.hstack([score, -score, score]), label=label),
        "labels": Prediction(
            scores=np.hstack([score, score]), label=np.stack([label == 1, label == 0], 1).astype(float)
        ),
        "number": Prediction(scores=score, label=-np.ones((4, 1))),
        "links": Prediction(positive=score[:, 0], negative=score[:, 0]),
    }[kind]
    names = {"binary": "binary", "labels": "multilabel", "links": "link", "number": "regression"}
    of_kind = label_type(names.get(kind, "multiclass"))
    groups = in_groups({"land": pa.array(["x", "x", "x", "y"])}, prediction, lambda some: 0.0, ["land"], of_kind)
    expected = [1, 0] if kind in ("binary", "two") else [None, None]
    assert [group["positives"] for group in groups["land"]] == expected


def test_the_worst_edges_are_those_with_most_negatives_above_them() -> None:
    prediction = Prediction(
        positive=np.array([0.3, 0.9, 0.1]), negative=np.array([[0.2, 0.8], [0.1, 0.2], [0.0, 0.05]])
    )
    assert most_wrong(prediction, label_type("link")).tolist()[0] == 0


@pytest.mark.parametrize("kind", ["multiclass", "two", "binary", "multilabel", "regression"])
def test_the_worst_rows_are_those_that_cost_most(kind: str) -> None:
    rng, width = np.random.default_rng(5), {"multiclass": 4, "two": 2, "multilabel": 3, "regression": 2}.get(kind, 1)
    scores = rng.normal(size=(57, width)).astype(np.float32) * 3
    given = torch.from_numpy(scores)
    if kind in ("multiclass", "two"):
        label = rng.integers(-1, width, 57)
        cost = -given.log_softmax(1).numpy()[np.arange(57), label]
        cost[label < 0] = -1
    else:
        label = rng.normal(size=(57, width)) if kind == "regression" else rng.integers(0, 2, (57, width)).astype(float)
        label[rng.random((57, width)) < 0.3] = np.nan
        if kind == "regression":
            each = np.abs(label - scores) / np.nanstd(label, axis=0)
        else:
            target = torch.from_numpy(np.nan_to_num(label))
            each = torch.nn.functional.binary_cross_entropy_with_logits(
                given.double(), target, reduction="none"
            ).numpy()
        cost = np.where(np.isnan(label), 0, each).sum(1)
        cost[np.isnan(label).all(1)] = -1
    worst = most_wrong(Prediction(scores=scores, label=label), label_type("multiclass" if kind == "two" else kind))
    assert worst.tolist() == np.argsort(-cost, kind="stable")[:MOST_WRONG].tolist()


def transfers(folder: Path, *overrides: str) -> Any:
    """A recipe of labelled edges that carry a number, a category and a date."""
    rng, folder = np.random.default_rng(1), folder / "transfers"
    folder.mkdir()
    pq.write_table(pa.table({"id": np.arange(40), "age": rng.random(40)}), folder / "nodes.parquet")
    edges = {
        "src": rng.integers(0, 40, 300),
        "dst": rng.integers(0, 40, 300),
        "amount": rng.random(300),
        "channel": pa.array(np.array(["app", "card"], object)[rng.integers(0, 2, 300)]),
        "day": pa.array(np.datetime64("2026-01-01") + np.arange(300) // 10).cast("date32"),
        "bad": pa.array(np.array(["no", "yes"], object)[rng.integers(0, 2, 300)]),
    }
    pq.write_table(pa.table(edges), folder / "edges.parquet")
    columns = {"features": ["amount"], "categorical": ["channel"], "time": "day", "label": ["bad"]}
    tables = {
        "nodes": {"files": str(folder / "nodes.parquet"), "features": ["age"]},
        "edges": {"files": str(folder / "edges.parquet"), "source": "src", "target": "dst", **columns},
    }
    sections = {
        "name": "transfers",
        "dataset": {"name": "tables", "task": "edge", **tables},
        "preprocess": {"workers": 1},
        "model": {"name": "graphsage", "hidden_dim": 8, "num_layers": 1},
        "train": {"loader": {"name": "labelled_edge", "fanout": [5]}, "epochs": 1, "threads": 1, "device": "cpu"},
        "tracking": {"system_metrics": False},
    }
    return build_recipe(sections, overrides)


def test_labelled_edges_are_grouped_by_what_they_carry(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_this_process(monkeypatch)
    recipe = transfers(tmp_path, "evaluate.groups=[source_degree,amount,channel,time]", "evaluate.splits=[test]")
    evaluation = Line(home).run(recipe, until="evaluate")["evaluate"]
    groups = evaluation.manifest.report["groups"]
    assert list(groups) == ["source_degree", "amount", "channel", "time"]
    told = pq.read_table(evaluation.folder / evaluation.manifest.predictions).to_pandas()
    rows = told[told.split == "test"].row
    edges = pq.read_table(tmp_path / "transfers" / "edges.parquet").to_pandas().loc[rows]
    assert {one["name"]: one["rows"] for one in groups["channel"]} == edges.channel.value_counts().to_dict()
    assert groups["amount"][0]["name"].startswith(f"{edges.amount.min():.6g} to ")
    assert groups["time"][0]["name"].startswith(str(edges.day.min()))


@pytest.mark.parametrize(
    ("of", "group", "said"),
    [
        (customers, "since", r"rows have no column .since. to be grouped by.*degree.* \(time: the column that"),
        (transfers, "chanel", r"edges have .* \(did you mean 'channel'\?\); .*_degree, time, amount, channel"),
    ],
)
def test_columns_that_make_no_groups_are_refused_before_the_training(
    tmp_path: Path, home: Home, of: Any, group: str, said: str
) -> None:
    write_customers(tmp_path)
    recipe = of(tmp_path, f"evaluate.groups=[degree,{group}]")
    [mistake] = check_data(recipe, home, Listener()).mistakes
    assert re.search(said, mistake["message"])
    parents = Line(home).run(recipe, until="preprocess")
    with pytest.raises(RecipeError, match=said):
        check_labels(recipe, {name: parent.manifest.key for name, parent in parents.items()}, home)
