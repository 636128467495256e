"""Classes in users' tables: -1 among numbers, texts that differ in next to nothing, yes and no as 1 and 0."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

from configs.errors import DataError, UserError
from configs.load import build_recipe
from tasks.ingest.stage import STAGE
from tasks.ingest.tables.intake import similar_texts
from tasks.stage import run_stage
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.home import Home
from tests.ingest.conftest import Ingest
from tests.ingest.small_tables import SPLIT, save, section


def write_classes(ending: str, classes: list[Any]) -> None:
    save(f"n.{ending}", pa.table({"id": list(range(len(classes))), "y": classes}))
    save(f"e.{ending}", pa.table({"src": [0], "dst": [1]}))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("num_classes", [None, 2])
def test_minus_one_is_no_label_among_numbers(
    ingest: Ingest, folder: Path, ending: str, num_classes: int | None
) -> None:
    write_classes(ending, [0, 1, -1, None] * 5)
    nodes = {"files": f"n.{ending}", "label": "y"}
    options = section(nodes=nodes, edges={"files": f"e.{ending}"}, num_classes=num_classes)
    store = ingest(**options)
    assert store.column("nodes/node", "label").tolist() == [0, 1, -1, -1] * 5
    said = f"n.{ending} (column y): -1 stands for no label in 5 rows; if it is a class, write classes as texts"
    assert [text[: len(said)] for text in store.manifest.warnings] == [said]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("classes", [["up", "-1"], [-2, -1], [-1.0, -3.0]])
def test_minus_one_is_a_class_elsewhere(ingest: Ingest, folder: Path, ending: str, classes: list[Any]) -> None:
    write_classes(ending, classes * 5)
    store = ingest(**section(nodes={"files": f"n.{ending}", "label": "y"}, edges={"files": f"e.{ending}"}))
    assert store.column("nodes/node", "label").min() == 0
    assert store.manifest.num_classes == 2
    assert not store.manifest.warnings


@pytest.mark.parametrize(
    ("classes", "shown"),
    [
        (["0", "1", "nan"], "'nan' is a class"),
        (["a", "NA", "null"], "'NA', 'null' are classes"),
        (["yes", "no", "None"], "'None' is a class"),
        (["0.0", "1.0", "-1.0"], "'-1.0' is a class"),
    ],
)
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_words_for_nothing_are_classes_with_a_hint(
    ingest: Ingest, folder: Path, ending: str, classes: list[str], shown: str
) -> None:
    write_classes(ending, classes * 5)
    nodes = {"files": f"n.{ending}", "label": "y"}
    options = section(nodes=nodes, edges={"files": f"e.{ending}"})
    [said] = ingest(**options).manifest.warnings
    assert said.startswith(f"n.{ending} (column y): {shown}; if it stands for no label, leave the cell empty")
    way_out = json.loads(said.partition("missing_values: ")[2])
    options["nodes"] |= {"missing_values": way_out}
    if len(classes) - len(way_out) + 1 > 1:
        assert not ingest(**options).manifest.warnings


@pytest.mark.parametrize("other", [1, None])
def test_minus_one_and_one(ingest: Ingest, folder: Path, other: int | None) -> None:
    write_classes("csv", [-1, other] * 5)
    found = "1 class (1)" if other else "no labelled row"
    with pytest.raises(DataError) as caught:
        ingest(**section())
    said = f"n.csv (column y): has {found} beside -1, which stands for no label; to make it a class, number them from 0"
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(("other", "kind"), [(["1", "2"], "texts"), ([True, False], "true and false")])
def test_numbers_in_one_file_and_other_labels_in_the_next(
    ingest: Ingest, folder: Path, other: list[Any], kind: str
) -> None:
    for number, classes in enumerate(([1, 2], other)):
        save(f"{number}.parquet", pa.table({"id": [number, number + 2], "y": classes}))
    save("e.csv", pa.table({"src": [0], "dst": [1]}))
    with pytest.raises(DataError, match=rf"1\.parquet \(column y\): holds {kind} here and numbers in 0\.parquet"):
        ingest(**section(nodes={"files": ["0.parquet", "1.parquet"], "label": "y"}))


def test_texts_that_are_nearly_one(ingest: Ingest, folder: Path) -> None:
    columns = {
        "id": ["a", "b ", "b", "caf\u00e9", "cafe\u0301", "A", *"uvwx"],
        "y": ["loyal", " loyal ", "gone", "x", "gone"] * 2,
        "c": ["1", "1.0", "2", "2", ""] * 2,
        "d": ["PL", "SE", "pl", "SE", "PL"] * 2,
        "ok": ["PL", "SE", "Pl\u00f6", "SE ", "1"] * 2,
    }
    save("n.csv", pa.table(columns))
    save("e.csv", pa.table({"src": ["a"], "dst": ["b"]}))
    split = {"by": "ratio", **SPLIT}
    nodes = {"files": "n.csv", "label": "y", "categorical": ["c", "d"]}
    said = "\n".join(ingest(**section(nodes=nodes, split=split)).manifest.warnings)
    for words in (
        "n.csv (column id): 'b ' and 'b' are two ids that differ only in blanks, Unicode form",
        "n.csv (column y): ' loyal ' and 'loyal' are two classes that differ only in blanks",
        "n.csv (column c): '1' and '1.0' are two categories",
        "n.csv (column d): 'PL' and 'pl' are two categories",
    ):
        assert words in said
    assert said.count("write them alike") == 4
    clean = {"id": list("abcdefghij"), "y": list("ab" * 5), "ok": ["PL", "SE", "Pl\u00f6", " x", "1"] * 2}
    save("n.csv", pa.table(clean))
    assert not ingest(**section(nodes={"files": "n.csv", "label": "y", "categorical": "ok"})).manifest.warnings


def test_unicode_forms() -> None:
    said = similar_texts(pa.array(["x", "caf\u00e9", "cafe\u0301"]), "ids", letters=False)
    assert said.startswith("'caf\u00e9' and 'cafe\u0301' are two ids")
    assert similar_texts(pa.array(["x", "X", "1", "2.5", "0012", "1-0"]), "ids", letters=False) is None


@pytest.mark.parametrize("other", ["1.0", "01", " 1", "+1", "1.", "001.00"])
def test_a_number_written_in_two_ways(other: str) -> None:
    said = similar_texts(pa.array(["x", "1", "7", "1234567890123456789.5", other]), "ids", letters=False)
    assert said is not None
    assert f"'1' and {other!r} are two ids" in said
    assert "(2 such ids)" in said


@pytest.mark.parametrize(("metric", "chosen"), [(None, "r2"), ("rmse", "rmse")])
def test_amounts_of_several_units(ingest: Ingest, folder: Path, metric: str | None, chosen: str) -> None:
    """An error over all of them is that of the largest: it must not choose the best epoch by itself."""
    values = [float(i) for i in range(10)]
    save("n.csv", pa.table({"id": list(range(10)), "a": values, "b": [1e5 * value for value in values]}))
    save("e.csv", pa.table({"src": [0], "dst": [1]}))
    nodes = {"files": "n.csv", "label": ["a", "b"]}
    store = ingest(**section(nodes=nodes, task_type="regression", metric=metric))
    assert store.manifest.metric == chosen
    store = ingest(**section(nodes={"files": "n.csv", "label": "b"}, task_type="regression", metric=metric))
    assert store.manifest.metric == "rmse"


FLAGS = [i % 3 == 0 for i in range(40)]
FORMS = [*(("True", "False"), ("true", "false"), ("TRUE", "FALSE"), ("yes", "no"), ("Yes", "No")),
         *(("t", "f"), ("Y", "N"), ("y", " No "))]  # fmt: skip


def ingested(tmp_path: Path, cells: list[Any], *, csv: bool, source: str) -> tuple[list[float], list[float]]:
    """Return feature and label of the nodes, both from the cells."""
    write = pc.write_csv if csv else pq.write_table
    files = {name: f"{tmp_path}/{name}.{'csv' if csv else 'parquet'}" for name in ("nodes", "edges")}
    write(pa.table({"id": range(40), "flag": cells, "y": cells}), files["nodes"])
    write(pa.table({"src": range(39), "dst": range(1, 40)}), files["edges"])
    nodes = {"files": files["nodes"], "id": "id", "features": ["flag"], "label": "y"}
    dataset: dict[str, Any] = {
        "name": "tables", "task": "node", "task_type": "binary", "nodes": nodes, "edges": {"files": files["edges"]},
    }  # fmt: skip
    if source == "database":
        people = {"files": files["nodes"], "key": "id", "columns": {"flag": "number"}}
        edges = {"files": files["edges"], "foreign": {"src": "people", "dst": "people"}}
        split = {"table": "people", "label": "y", "split": {"valid": 0.2, "test": 0.2}}
        dataset = {"name": "database", "tables": {"people": people, "edges": edges}, "predict": split}
    model = {"name": "gcn" if source == "tables" else "heterosage"}
    recipe = build_recipe({"name": "t", "dataset": dataset, "model": model})
    made = run_stage(STAGE, recipe, {}, Home.open(str(tmp_path / "home")))
    store = DatasetStore(made.folder, made.manifest)
    table, column = ("nodes/people", "people.flag") if source == "database" else ("nodes/node", "flag")
    names = [one for one in store.read(table).column_names if one in (column, "flag", "feat")]
    features, labels = (store.read(table, [name]).column(0).to_pylist() for name in (names[0], "label"))
    return np.asarray(features, np.float64).ravel().tolist(), np.asarray(labels, np.float64).ravel().tolist()


@pytest.mark.parametrize("csv", [True, False])
@pytest.mark.parametrize("source", ["tables", "database"])
@pytest.mark.parametrize(("yes", "no"), FORMS)
def test_yes_and_no_are_one_and_zero(yes: str, no: str, source: str, csv: bool, tmp_path: Path) -> None:
    feature, label = ingested(tmp_path, [yes if flag else no for flag in FLAGS], csv=csv, source=source)
    assert feature == [float(flag) for flag in FLAGS]
    assert sorted(label) == sorted(float(flag) for flag in FLAGS)


@pytest.mark.parametrize("cells", [["7", "yes"] * 20, ["yes"] * 39 + ["maybe"], ["on", "off"] * 20])
def test_other_cells_are_no_truths(cells: list[str], tmp_path: Path) -> None:
    for source in ("tables", "database"):
        with pytest.raises(UserError, match=r"is not a number|label 7 is not 0 or 1"):
            ingested(tmp_path, cells, csv=True, source=source)


def test_ones_and_zeros_may_stand_among_them(tmp_path: Path) -> None:
    feature, _ = ingested(tmp_path, ["1", "yes", "0", "no"] * 10, csv=True, source="tables")
    assert feature == [1.0, 1.0, 0.0, 0.0] * 10
