"""Rows of a table that are predicted by a column of their own: nodes with labels, split by their times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs.errors import DataError, UserError
from tests.ingest.conftest import Ingest
from tests.ingest.small_databases import ROWS, database, write

DAY = 86_400

BASE = {"target": None, "at": None, "horizon": None}


def predicting(table: str, label: Any = "paid", **options: Any) -> dict[str, Any]:
    """The small database, predicting rows of a table; options are of `predict`, or of a table."""
    tables = {name: options.pop(name) for name in ("buys", "lines") if name in options}
    return database(predict={**BASE, "table": table, "label": label, **options}, **tables)


def test_rows_are_predicted_by_a_column_that_is_no_feature(ingest: Ingest, folder: Path) -> None:
    write(folder)
    store = ingest(**predicting("buys", task_type="regression"))
    manifest = store.manifest
    assert (manifest.target_type, manifest.task_type, manifest.metric) == ("buys", "regression", "rmse")
    assert manifest.num_tasks == 1
    assert "task" not in {one.name for one in manifest.node_types}
    assert store.column("nodes/buys", "label")[:, 0].tolist() == ROWS["buys"]["paid"]
    assert not any("paid" in one.column for kind in manifest.node_types for one in kind.features)
    assert store.read("ids/buys")["original_id"].to_pylist() == ROWS["buys"]["buy"]
    # The newest row tests, the one before it validates.
    assert [store.column(f"split/{name}", "node_id").tolist() for name in ("train", "valid", "test")] == [
        *([0, 1, 2, 3, 4, 5], [6], [7]),
    ]
    assert manifest.fit_before == int(store.column("nodes/buys", "time")[6])
    assert set(manifest.foreign_keys) == {"people__boss__people", "buys__who__people"}


@pytest.mark.parametrize(
    ("split", "horizon", "sizes"),
    [
        ({"valid": "2023-01-01", "test": "2023-08-01"}, None, [4, 2, 2]),
        ({"valid": "2023-01-01", "test": "2023-08-01"}, "70d", [3, 2, 2]),  # 2022-11-01 is known on 2023-01-10
        ({"valid": 0.25, "test": 0.25}, None, [4, 2, 2]),
        ({"valid": 0.25, "test": 0.5}, None, [2, 2, 4]),
    ],
)
def test_splits_of_rows(ingest: Ingest, folder: Path, split: Any, horizon: str | None, sizes: list[int]) -> None:
    write(folder)
    store = ingest(**predicting("buys", task_type="regression", split=split, horizon=horizon))
    assert [store.manifest.splits[name] for name in ("train", "valid", "test")] == sizes
    told = any("are in no split: their horizon reaches" in one for one in store.manifest.warnings)
    assert told == (sum(sizes) < 8)


def test_rows_of_one_moment_are_in_one_split(ingest: Ingest, folder: Path) -> None:
    days = ["2022-02-01", "2022-05-01", *["2023-01-01"] * 3, *["2023-02-01"] * 3]
    write(folder, buys={"day": days})
    store = ingest(**predicting("buys", task_type="regression", split={"valid": 0.25, "test": 0.25}))
    assert store.manifest.splits == {"train": 2, "valid": 3, "test": 3}


def test_rows_of_a_link_table_become_nodes(ingest: Ingest, folder: Path) -> None:
    """Lines have no key and two foreign keys; without a time they see everything and are dealt out by their numbers."""
    counts = 60
    rows = [(i % 8, "abc"[i % 3], i % 2) for i in range(counts)]
    write(folder, lines=dict(zip(("buy", "thing", "number"), map(list, zip(*rows, strict=True)), strict=True)))
    section = predicting("lines", "number")
    store = ingest(**section)
    manifest = store.manifest
    assert {one.name for one in manifest.edge_types} == {
        *("people__boss__people", "buys__who__people", "lines__buy__buys", "lines__thing__things"),
    }
    assert store.read("ids/lines")["original_id"].to_pylist() == list(range(counts))
    assert manifest.fit_before is None
    held = np.concatenate([store.column(f"split/{name}", "node_id") for name in ("train", "valid", "test")])
    assert sorted(held) == list(range(counts))
    assert all(size > 0 for size in manifest.splits.values())
    again = ingest(**section)
    assert again.manifest.digest == manifest.digest
    assert ingest(**database()).manifest.edge_types[-2].relation == "lines"  # else they are edges


def test_rows_without_a_label_are_kept_to_be_predicted(ingest: Ingest, folder: Path) -> None:
    write(folder, buys={"paid": [5.0, 1.0, 2.0, 8.0, 4.0, 3.0, 6.0, None]})
    with pytest.raises(DataError, match=r"buys\.csv \(row 7, column paid\).*is missing.*on_missing_label: predict"):
        ingest(**predicting("buys", task_type="regression"))
    store = ingest(**predicting("buys", task_type="regression", on_missing_label="predict"))
    assert sum(store.manifest.splits.values()) == 7
    assert np.isnan(store.column("nodes/buys", "label")[7, 0])


WRONG: list[tuple[dict[str, Any], str]] = [
    (predicting("things", "price", task_type="regression"), r"of 3 labelled rows none is left for the .* split"),
    (predicting("buys", "payed"), r"has no column 'payed' \(did you mean 'paid'\?\)"),
    (predicting("buys", "who"), r"column 'who' of buys is a foreign key too; a label is nothing else"),
    (predicting("buys", "day"), "column 'day' of buys is the time too"),
    (predicting("buys"), r"label 5 is not 0 or 1"),
    (predicting("people", "land"), r"'de' is not a number"),
    (predicting("buys", ["paid", "buy"]), r"2 columns are no binary label; take task_type: multilabel"),
    (predicting("buys", []), r"predict\.label\n.*\[\] are no names of columns"),
    (predicting("buys", 7), r"predict\.label\n.*7 is no name of a column"),
    (predicting("buys", num_classes=3), r"num_classes goes with multiclass labels, not binary"),
    (predicting("buys", name="x"), r"name is for entities at moments"),
    (predicting("buys", at=["2022-01-01"]), r"at is for a target computed from the tables"),
    (predicting("buys", split={"valid": 0.5, "test": 0.5}), r"the shares 0\.5 and 0\.5 leave no row to train on"),
    (predicting("buys", split={"valid": 1.5, "test": 0.5}), r"1\.5 is neither a share between 0 and 1 nor"),
    (predicting("buys", split={"valid": 0.5, "test": "2022-01-01"}), r"give two moments .*, or two shares"),
    (predicting("things", "price", task_type="regression", horizon="3d"), r"rows of things have no time that"),
    (database(predict={"label": "age"}), r"predict needs one of `target` .*, `labels`, .*, and `label`"),
    (database(predict={"task_type": "regression"}), r"task_type is for `label`"),
    (predicting("lines", "number", lines={"link": True}), "rows of lines are predicted, so they are .*leave link out"),
    (predicting("buys", buys={"on_missing_time": "always"}), "always lets rows see what is later than they are"),
]
TARGETS: list[tuple[dict[str, Any], str]] = [
    ({"targets": {}}, r"targets: name at least one task"),
    ({"targets": {"a.b": {"none": "buys"}}}, r"'a\.b' is no plain name of a task"),
    ({"targets": {"a": {"none": "buys", "count": "buys"}}}, "not 2 of them"),
    ({"targets": {"a": {"links": "lines.thing"}}}, "links is a target by itself"),
    ({"targets": {"a": {"none": "buys", "weight": 0}}}, "greater than 0"),
    ({"targets": {"a": {"none": "buys", "weight": "nan"}}}, "weight"),
    ({"targets": {"a": {"none": "buys", "metric": "auk"}}}, r"unknown metric 'auk' \(did you mean 'auc'"),
    ({"targets": {"a": {"none": "bys"}}}, r"predict\.targets\.a: there is no table 'bys' \(did you mean 'buys'"),
    ({"targets": {"a": {"none": "buys", "via": "whom"}}}, r"predict\.targets\.a\.via: buys has no foreign key"),
    ({"targets": {"a": {"none": "buys"}}, "metric": "ap"}, "each of several tasks has its own"),
    ({"targets": {"a": {"none": "buys"}}, "via": "who"}, "via: each of several targets has its own"),
    ({"targets": {"a": {"none": "buys"}}, "target": {"none": "buys"}}, "predict needs one of"),
    ({"targets": {"a": {"none": "buys"}}, "at": None}, "a target needs `at`"),
]
LABELS: list[tuple[dict[str, Any], str]] = [
    ({}, "label: name at least one task"),
    ({"a": {"label": "paid", "task_type": "regresion"}}, "regresion|binary"),
    ({"a": {"labl": "paid"}}, r"unknown key 'labl' \(did you mean 'label'"),
    ({"a": {"label": "who"}}, "column 'who' of buys is a foreign key too"),
    ({"a": {"label": "payed", "task_type": "regression"}}, r"has no column 'payed' \(did you mean 'paid'"),
    ({"a": {"label": ["paid", "buy"]}}, "take task_type: multilabel"),
]
WRONG += [(database(predict={"target": None, **predict}), message) for predict, message in TARGETS]
WRONG += [(predicting("buys", label), message) for label, message in LABELS]


@pytest.mark.parametrize(("section", "message"), WRONG)
def test_what_cannot_be_predicted_is_said(ingest: Ingest, folder: Path, section: Any, message: str) -> None:
    write(folder)
    with pytest.raises((UserError, ValueError), match=message):
        ingest(**section)


@pytest.mark.parametrize("form", ["columns", "lists"])
@pytest.mark.parametrize("task_type", ["multilabel", "regression"])
def test_several_labels_a_row(ingest: Ingest, folder: Path, form: str, task_type: str) -> None:
    """Cells that are empty are not known; a row without any label is a mistake."""
    one, two = [0.0, 1.0, None, 0.0, 1.0, 1.0, 0.0, 1.0], [1.0, None, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0]
    lists = [list(pair) for pair in zip(one, two, strict=True)]
    columns = {"one": one, "two": two} if form == "columns" else {"both": lists}
    write(folder, "parquet", buys=columns)
    label = ["one", "two"] if form == "columns" else "both"
    section = predicting("buys", label, task_type=task_type)
    for name, table in section["tables"].items():
        table["files"] = f"{name}.parquet"
    store = ingest(**section)
    assert (store.manifest.num_tasks, store.manifest.task_type) == (2, task_type)
    expected = np.array(lists, np.float64)
    np.testing.assert_array_equal(store.column("nodes/buys", "label"), expected)
    with pytest.raises((DataError, ValueError), match=r"take task_type: multilabel"):
        ingest(**{**section, "predict": {**section["predict"], "task_type": "binary"}})
    lists[3] = [None, None]
    columns = {"one": [a for a, _ in lists], "two": [b for _, b in lists]} if form == "columns" else {"both": lists}
    write(folder, "parquet", buys=columns)
    with pytest.raises(DataError, match=r"row 3, column \w+\): the label is missing"):
        ingest(**section)


def test_several_labels_in_a_table_of_labels(ingest: Ingest, folder: Path) -> None:
    labels = {"who": [10, 12, 11, 10], "at": ["2022-03-01", "2022-06-01", "2023-01-01", "2023-01-01"]}
    write(folder, labels=labels | {"y": [0, 1, 1, 0], "z": ["", "1", "0", "2"]})
    own = {"files": "labels.csv", "key": "who", "time": "at", "label": ["y", "z"], "task_type": "multilabel"}
    section = database(predict={**BASE, "labels": own})
    with pytest.raises(DataError, match=r"labels\.csv \(row 3, column z\): label 2 is not 0 or 1"):
        ingest(**section)
    write(folder, labels=labels | {"y": [0, 1, 1, 0], "z": ["", "1", "0", "1"]})
    store = ingest(**section)
    assert store.manifest.num_tasks == 2
    assert np.array_equal(
        store.column("nodes/task", "label"), [[0, np.nan], [1, 1], [0, 1], [1, 0]], equal_nan=True
    )  # by moment and entity


def test_several_targets_are_those_of_each(ingest: Ingest, folder: Path) -> None:
    """Labels stand side by side; an entity is there where any is known; each column is that of the target alone."""
    write(folder)
    targets = {"left": {"none": "buys"}, "spent": {"sum": "buys.paid", "weight": 0.5}, "usual": {"mean": "buys.paid"}}
    store = ingest(**database(predict={"target": None, "targets": targets}))
    manifest = store.manifest
    assert (manifest.task_type, manifest.num_tasks, manifest.metric) == ("several", 3, "left.rocauc")
    assert [(one.name, one.task_type, one.metric, one.weight) for one in manifest.heads] == [
        ("left", "binary", "rocauc", 1.0),
        ("spent", "regression", "rmse", 0.5),
        ("usual", "regression", "rmse", 1.0),
    ]
    ids, label = store.read("ids/task")["original_id"].to_pylist(), store.column("nodes/task", "label")
    for column, (name, target) in enumerate(targets.items()):
        alone = {key: value for key, value in target.items() if key != "weight"}
        one = ingest(**database(predict={"target": alone}))
        own = dict(zip(one.read("ids/task")["original_id"].to_pylist(), one.column("nodes/task", "label"), strict=True))
        for task, values in zip(ids, label, strict=True):
            expected = own[task][0] if task in own else np.nan
            np.testing.assert_equal(float(values[column]), float(expected), err_msg=f"{name} of {task}")
    assert np.isnan(label[:, 2]).any()


def test_what_was_before_is_kept_beside_the_labels(ingest: Ingest, folder: Path) -> None:
    """The same figure of as long before, and the mean of the entity's labels that were known: by plain loops."""
    write(folder)
    store = ingest(**database(predict={"horizon": "90d"}))
    tasks = store.read("ids/task")["original_id"].to_pylist()
    label, last, mean = (store.column("nodes/task", name).reshape(-1) for name in ("label", "last_value", "own_mean"))
    moments = store.column("nodes/task", "time")
    buys = store.column("nodes/buys", "time")
    for i, task in enumerate(tasks):
        who = int(task.split("@")[0])
        own = [t for t, one in zip(buys, ROWS["buys"]["who"], strict=True) if one == who]
        assert last[i] == sum(moments[i] - 90 * DAY <= t < moments[i] for t in own)
        known = [
            label[j]
            for j, other in enumerate(tasks)
            if other.split("@")[0] == str(who) and moments[j] + 90 * DAY <= moments[i]
        ]
        np.testing.assert_allclose(mean[i], np.mean(known) if known else np.nan, rtol=1e-6)
    assert last.max() > 0
    assert np.isfinite(mean).any()


def test_several_labels_by_name(ingest: Ingest, folder: Path) -> None:
    write(folder, buys={"kind": [0, 1, 2, 0, 1, 2, 1, None], "late": [0, None, 1, 0, 1, 0, 1, 1]})
    label = {
        "kind": {"label": "kind", "task_type": "multiclass"},
        "paid": {"label": "paid", "task_type": "regression", "metric": "mae"},
        "late": {"label": "late"},
    }
    store = ingest(**predicting("buys", label))
    heads = store.manifest.heads
    assert [(one.task_type, one.num_classes, one.metric) for one in heads] == [
        *(("multiclass", 3, "accuracy"), ("regression", 0, "mae"), ("binary", 2, "rocauc")),
    ]
    expected = np.array([ROWS["buys"]["paid"]], np.float64)[0]
    np.testing.assert_array_equal(store.column("nodes/buys", "label")[:, 1], expected)
    assert np.isnan(store.column("nodes/buys", "label")[7, 0])
    assert not any(one.column.startswith("buys.") for kind in store.manifest.node_types for one in kind.features)


def test_yes_and_no_of_several_labels_and_their_gaps(ingest: Ingest, folder: Path) -> None:
    write(folder, buys={"bad": ["1", "", "no", "Y"] * 2, "late": [0, 1, 1, 0] * 2})
    both = predicting("buys", ["bad", "late"], task_type="multilabel")
    found = ingest(**both).column("nodes/buys", "label")[:4].tolist()
    assert [["-" if cell != cell else cell for cell in row] for row in found] == [[1, 0], ["-", 1], [0, 1], [1, 0]]


def test_labels_that_are_neither_are_named_with_a_way_out(ingest: Ingest, folder: Path) -> None:
    write(folder, buys={"bad": ["Y", "N", "maybe", "N"] * 2})
    with pytest.raises(DataError, match=r"row 2, column bad\): 'maybe' is not a number \(2 such rows\)"):
        ingest(**predicting("buys", "bad"))
    write(folder, buys={"bad": ["Y", "N", "Y", "N/A"] * 2})
    with pytest.raises(DataError, match=r"'N/A' is not a number; if it stands for an empty cell, say so"):
        ingest(**predicting("buys", "bad"))
    write(folder, buys={"bad": ["Y", "N", "3o", "N/A", "Y", "x", "Y", "N"]})
    with pytest.raises(DataError, match=r"row 2.*'3o' is not a number, nor are 'N/A', 'x'; if 'N/A' stands .*\(3 such"):
        ingest(**predicting("buys", "bad"))


def test_numbers_with_signs_for_thousands_are_named_with_a_way_out(ingest: Ingest, folder: Path) -> None:
    for cell in ("1,234.50", "1.234,5", "€ 12", "1'000", "12,5"):
        write(folder, buys={"sum": ["1", "2", cell, "4"] * 2})
        section = database(buys={"columns": {"sum": "number"}})
        with pytest.raises(DataError, match=r"column sum\): .* is not a number; write 1234.5, without a sign"):
            ingest(**section)
