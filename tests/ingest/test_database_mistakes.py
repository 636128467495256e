"""What is wrong with databases: each named with table, column, row and a way out, and nothing is left behind."""

# ruff: noqa: E501 -- one line a mistake reads as a table

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from configs.errors import DataError, RecipeError, UserError
from configs.load import build_recipe
from configs.registry import DATASETS
from tasks.storage.home import Home
from tests.ingest.conftest import Ingest
from tests.ingest.small_databases import ROWS, database, write

SECTIONS: list[tuple[dict[str, Any], str]] = [
    ({"buys": {"foreign": {"who": "peopel"}}}, r"tables\.buys\.foreign\.who: there is no table 'peopel' \(did you mean 'people'\?\); tables: people, things"),
    ({"predict": {"table": "poeple"}}, r"predict\.table: there is no table 'poeple' \(did you mean 'people'\?\)"),
    ({"predict": {"target": {"none": "buy"}}}, r"predict\.target: there is no table 'buy' \(did you mean 'buys'\?\)"),
    ({"predict": {"target": {"nome": "buys"}}}, r"unknown key 'nome' \(did you mean 'none'\?\)"),
    ({"predict": {"target": {"sum": "buys"}}}, r"sum: buys names no column; write sum: buys\.COLUMN"),
    ({"predict": {"target": {"none": "buys", "any": "buys"}}}, r"one of none, any, count, sum, mean, links, together says what is predicted, not 2"),
    ({"predict": {"target": {"count": "lines"}}}, r"predict\.target: lines has no time, .* name the column \(time: \.\.\.\), or give labels"),
    ({"predict": {"table": "things"}}, r"predict\.target: buys has no foreign key to things; its own are who"),
    ({"predict": {"horizon": "3 months"}}, r"'3 months' is no length of time: give weeks, days, .* months differ in length: count days"),
    ({"predict": {"at": ["2022-13-01"]}}, r"'2022-13-01' is no moment"),
    ({"predict": {"at": {"first": "2022-01-01", "every": "30d"}}}, r"give a list of moments, or first, last and every"),
    ({"predict": {"at": None}}, r"a target needs `at`, its moments, and `horizon`"),
    ({"predict": {"name": "buys"}}, r"predict\.name: buys is a table too"),
    ({"buys": {"key": None, "foreign": {"who": "people"}}}, r"tables\.lines\.foreign\.buy: buys has no key that buy could hold"),
    ({"buys": {"foreign": {}}, "lines": {"foreign": {"thing": "things"}}, "predict": {"target": {"count": "people"}}}, r"predict\.target: people has no foreign key to people|tables\.things: nothing connects it to people"),
    ({"other": {"files": "things.csv", "key": "thing"}}, r"tables\.other: nothing connects it to people, which is predicted: it has no foreign key, and none leads to it; name the foreign keys"),
    ({"buys": {"columns": {"paid": "numbr"}}}, r"column 'paid' is 'numbr' \(did you mean 'number'\?\)"),
    ({"buys": {"columns": {"who": "number"}}}, r"tables\.buys: column 'who' is foreign key, and no feature too"),
    ({"lines": {"key": "buy"}}, r"tables\.lines: column 'buy' is named as key and as foreign key"),
    ({"people": {"on_unknown_id": "drop"}}, r"people\.on_unknown_id: drop cannot follow boss, which leads in a circle to the table itself; count lets"),
    ({"buys": {"epoch": "hours"}}, r"epoch"),
    ({"people": {"foriegn": {}}}, r"unknown key 'foriegn' \(did you mean 'foreign'\?\)"),
    ({"predict": {"split": {"valid": "2022-10-01", "test": "2022-07-01"}}}, r"split: validation begins at 2022-10-01, which is not before the test"),
    ({"predict": {"at": ["2022-04-01", "2022-10-01"]}}, r"the train split is empty: moments are 2022-04-01, 2022-10-01, validation begins at 2022-04-01"),
    ({"predict": {"at": ["2022-04-01", "2022-05-01", "2022-06-01"]}}, r"the train and the valid split is empty: .* a horizon of 90d must end before the next split begins"),
    ({"buys": {"key": "bye"}}, r"buys\.csv: has no column 'bye' \(did you mean 'buy'\?\) \(dataset\.tables\.buys\.key\); it has buy, who, day, paid"),
    ({"buys": {"time": "dya"}}, r"buys\.csv: has no column 'dya' \(did you mean 'day'\?\) \(dataset\.tables\.buys\.time\)"),
    ({"buys": {"foreign": {"hwo": "people"}}}, r"buys\.csv: has no column 'hwo' \(did you mean 'who'\?\) \(dataset\.tables\.buys\.foreign\)"),
    ({"buys": {"columns": {"payed": "number"}}}, r"buys\.csv: has no column 'payed' \(did you mean 'paid'\?\) \(dataset\.tables\.buys\.columns\)"),
    ({"buys": {"files": "buy.csv"}}, r"buy\.csv: there is no such file \(did you mean 'buys\.csv'\?\)"),
    ({"predict": {"target": {"sum": "buys.payed"}}}, r"buys\.csv: has no column 'payed' \(did you mean 'paid'\?\) \(dataset\.predict\.target\)"),
    ({"predict": {"at": ["2022-04-01", "2022-10-01", "2023-11-01"]}}, r"buys\.csv \(column day\): the horizon of 1 moments \(2023-11-01\) reaches beyond buys, whose newest row is of 2023-12-31: .* the last moment that it holds is 2023-10-03; if it is complete for longer"),
    ({"predict": {"at": ["2021-04-01", "2022-10-01", "2023-06-01"]}}, r"people\.csv: at 2021-04-01 there is no row of people to be predicted: the oldest is of 2022-01-01; leave that moment out"),
    ({"predict": {"active": {"any": "buys", "within": "10d"}}}, r"at 2022-04-01 there is no row of people to be predicted: no row of buys names one in the 10d before"),
    ({"things": {"columns": {"price": "time"}}}, r"things\.csv .*price"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message"), SECTIONS)
def test_options_that_do_not_go_together(ingest: Ingest, folder: Path, change: dict[str, Any], message: str) -> None:
    write(folder)
    with pytest.raises((ValueError, UserError), match=f"(?s){message}"):
        ingest(**database(**change))


DATA: list[tuple[dict[str, Any], str]] = [
    ({"buys": {"who": [10, 11, 10, 99, 10, 13, 12, 98]}}, r"buys\.csv \(row 3, column who\): unknown people id 99: it is not in .*people\.csv; dataset\.tables\.buys\.on_unknown_id: count lets such rows stay without that edge, drop leaves them out \(2 such rows\)"),
    ({"people": {"person": [10, 11, 12, 12]}}, r"people\.csv \(row 3, column person\): the id 12 stands in the table twice; dataset\.tables\.people\.on_duplicate_id can take the first"),
    ({"people": {"person": [10, None, 12, 13]}}, r"people\.csv \(row 1, column person\): the id is missing"),
    ({"people": {"since": ["2022-01-01", "", "2022-01-03", "2023-03-01"]}}, r"people\.csv \(row 1, column since\): the time is missing; .*on_missing_time: drop"),
    ({"buys": {"who": ["10", "11", "x", "12", "10", "13", "12", "10"]}}, r"buys\.csv \(row 2, column who\): the id 'x' is a text, those in .*people\.csv are whole numbers"),
    ({"buys": {"day": ["2022-02-01T10:00:00", "2022-05-01T10:00:00+02:00", *ROWS["buys"]["day"][2:]]}}, r"buys\.csv \(row 1, column day\): the time '2022-05-01T10:00:00\+02:00' has an offset from UTC, and those before has no offset from UTC; write all of them with one"),
    ({"buys": {"day": ["2022-02-01", "1.5.2022", *ROWS["buys"]["day"][2:]]}}, r"buys\.csv \(row 1, column day\): '1\.5\.2022' is not a date or time in a form that is known .*say which: time_format"),
    ({"buys": {"day": [1, 2, 3, 4, 5, 6, 7, 8]}}, r"buys\.csv \(column day\): holds whole numbers, and the time of people \(since\) dates: they do not compare; say what they count \(dataset\.tables\.buys\.epoch"),
    ({"things": {"thing": [], "price": [], "colour": []}}, r"things\.csv: has no rows; leave the table things out of dataset\.tables"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message"), DATA)
def test_what_is_wrong_with_rows(ingest: Ingest, folder: Path, change: dict[str, Any], message: str) -> None:
    write(folder, **change)
    with pytest.raises(DataError, match=f"(?s){message}"):
        ingest(**database())


@pytest.mark.parametrize(
    ("cells", "columns", "message"),
    [
        ([1.5, float("inf"), *range(6)], {}, r"row 1, column odd\): inf is not a finite number; dataset\.tables\.buys\.columns: \{odd: ignore\} leaves"),
        ([[1.0, 2.0], [1.0], *[[1.0, 2.0]] * 6], {}, r"column odd\): .*; dataset\.tables\.buys\.columns: \{odd: ignore\} leaves the column out"),
        ([[1.0, 2.0]] * 8, {"odd": "text"}, r"column odd\): holds no texts, but lists"),
    ],
)  # fmt: skip
def test_columns_that_nobody_named_may_be_left_out(
    ingest: Ingest, folder: Path, cells: list[Any], columns: dict[str, str], message: str
) -> None:
    write(folder, "parquet", buys={"odd": cells})
    section = database(**{name: {"files": f"{name}.parquet"} for name in ROWS})
    section["tables"]["buys"]["columns"] = columns
    with pytest.raises(DataError, match=message):
        ingest(**section)
    section["tables"]["buys"]["columns"] = {"odd": "ignore"}
    ingest(**section)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("buys__who__peple", r"train\.loader\.fanout\.buys__who__peple: .*did you mean 'buys__who__people'\?"),
        ("people__rev_whom__buys", r"did you mean 'people__rev_who__buys'\?\); they make people__boss__people, "),
        ("buys__lines__things", None),
        ("default", None),
        ("task__of__people", None),
    ],
)
def test_fan_outs_of_relations_that_no_table_makes(name: str, message: str | None) -> None:
    """Before anything is read."""
    loader = {"name": "relational", "fanout": {name: [4, 4], "default": [8, 8]}}
    recipe = {"name": "x", "dataset": database(), "model": {"name": "heterosage", "num_layers": 2}}
    if message is None:
        build_recipe({**recipe, "train": {"loader": loader}})
        return
    with pytest.raises(RecipeError, match=message):
        build_recipe({**recipe, "train": {"loader": loader}})


def test_all_mistakes_of_all_tables_are_named_at_once(ingest: Ingest, home: Home, folder: Path) -> None:
    write(
        folder,
        people={"since": ["2022-01-01", "then", "2022-01-03", "2023-03-01"]},
        buys={"who": [10, 11, 10, 99, 10, 13, 12, 10]},
        lines={"thing": ["a", "b", "a", "z", "b", "c", "a", "b", "a"]},
    )
    with pytest.raises(DataError) as caught:
        ingest(**database())
    said = str(caught.value)
    for words in ("column since", "row 3, column who): unknown people id 99", "column thing): unknown things id 'z'"):
        assert words in said
    assert not list(home.artifacts.glob("ingest/*"))


def test_very_many_categories(ingest: Ingest, folder: Path) -> None:
    """By itself such a column is text, which is not read; as a category it is refused before anything is written."""
    write(folder, "parquet")
    count = 30_000
    names = pa.array([f"n{i}" for i in range(count)])
    pq.write_table(pa.table({"thing": np.arange(count), "name": names}), "things.parquet")
    buys = {"foreign": {"who": "people", "buy": "things"}, "key": None, "files": "buys.parquet"}
    section = database(people={"files": "people.parquet"}, things={"files": "things.parquet"}, buys=buys)
    del section["tables"]["lines"]
    store = ingest(**section)
    features = {f.column for one in store.manifest.node_types for f in one.features}
    assert "things.name" not in features
    section["tables"]["things"]["columns"] = {"name": "category"}
    with pytest.raises(DataError, match=r"\(column name\): has more than 10,000 different values, .*make a table of"):
        ingest(**section)


def test_columns_of_one_value_are_left_out_and_named(
    ingest: Ingest, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(folder, things={"made": ["here"] * 3, "count": [7, 7, 7], "none": pa.nulls(3, pa.string())})
    with caplog.at_level("INFO"):
        store = ingest(**database())
    features = {f.column for one in store.manifest.node_types for f in one.features}
    assert not features & {"things.made", "things.count", "things.none"}
    assert "made has one value; count has one value; none is empty" in caplog.text
    store = ingest(**database(things={"columns": {"count": "number"}}))
    assert any("columns of one value tell nothing: count; leave them out" in one for one in store.manifest.warnings)
    write(folder, "parquet")
    section = database(things={"columns": {"price": "category"}, "files": "things.parquet"})
    with pytest.raises(DataError, match=r"things\.parquet \(column price\): holds decimal numbers; categories are"):
        ingest(**section)


def test_labels_that_cannot_be(ingest: Ingest, folder: Path) -> None:
    labels: dict[str, Any] = {"who": [10, 11, 12], "at": ["2022-03-01", "2022-06-01", "2023-01-01"], "y": [0, 1, 0]}
    own = {"files": "labels.csv", "key": "who", "time": "at", "label": "y"}
    predict: dict[str, Any] = {"target": None, "at": None, "horizon": None, "labels": own}
    for change, message in (
        ({"who": [10, 99, 12]}, r"\(row 1, column who\): unknown people id 99: .*labels\.on_unknown_id: drop"),
        ({"y": [0, 2, 0]}, r"labels\.csv \(row 1, column y\): label 2 is not 0 or 1"),
        ({"at": ["2022-03-01", "2022-06-01", ""]}, r"labels\.csv \(row 2, column at\): the time is missing"),
        (
            {"who": [10, 10, 12], "at": ["2022-03-01", "2022-03-01", "2023-01-01"]},
            r"labels\.csv \(column who\): 10 has two labels at 2022-03-01 \(1 such pairs\)",
        ),
        ({"at": [1, 2, 3]}, r"labels\.csv \(column at\): holds whole numbers, and times of the tables are dates"),
        ({"y": ["", "1", "0"]}, r"labels\.csv \(row 0, column y\): the label is missing.*on_missing_label: predict"),
        ({"who": [10, 13, 12]}, r"\(row 1, column who\): the row of people is younger .*on_unknown_id: drop"),
    ):
        write(folder, labels={**labels, **change})
        with pytest.raises(DataError, match=message):
            ingest(**database(predict=predict))
    with pytest.raises(ValueError, match=r"`time` names the column of the moment"):
        DATASETS.config(database(predict=predict | {"labels": {"files": "l.csv", "key": "who", "label": "y"}}))
    write(folder, labels={**labels, "y": ["", "", ""]})
    with pytest.raises(DataError, match=r"labels\.csv \(column y\): has no label: all are empty"):
        ingest(**database(predict=predict | {"labels": {**predict["labels"], "on_missing_label": "predict"}}))
    write(folder, labels={**labels, "y": [0, 1, 1_000_000]})
    with pytest.raises(DataError, match=r"labels\.csv \(column y\): has the label 1,000,000: .* number them anew"):
        ingest(**database(predict=predict | {"labels": {**predict["labels"], "task_type": "multiclass"}}))
    write(folder, "parquet", labels={**labels, "y": ["stays", "leaves", "stays"]})
    predict["labels"] = {"files": "labels.parquet", "key": "who", "time": "at", "label": "y"}
    people = {"files": "people.parquet"}
    with pytest.raises(DataError, match=r"labels\.parquet \(column y\): is text; .* give each class its number"):
        ingest(**database(predict=predict, people=people))


def test_a_duckdb_file_without_duckdb(ingest: Ingest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder)
    Path("all.duckdb").write_bytes(b"x" * 5000)
    with pytest.raises(UserError, match=r"all\.duckdb: is no DuckDB file, but something else"):
        ingest(**database(things={"files": "all.duckdb"}))
    known = builtins.__import__

    def without(name: str, *rest: Any, **options: Any) -> Any:
        if name == "duckdb":
            raise ImportError(name)
        return known(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UserError, match=r"all\.duckdb: is a DuckDB file, .* not installed: pip install duckdb, or"):
        ingest(**database(things={"files": "all.duckdb"}))


@pytest.mark.parametrize("target", [{"count": "buys"}, {"links": "lines.thing"}])
def test_a_moment_that_stands_twice_in_two_spellings(ingest: Ingest, folder: Path, target: dict[str, Any]) -> None:
    """Each of its rows would be there twice, under one id."""
    write(folder)
    at = ["2022-04-01", "2022-07-01T02:00:00+02:00", "2022-07-01", "2022-10-01", "2023-01-01"]
    with pytest.raises(RecipeError, match=r"predict\.at: 2022-07-01 stands twice, written in two ways"):
        ingest(**database(predict={"target": target, "at": at}))


def test_a_target_of_rows_none_of_which_has_a_time(ingest: Ingest, folder: Path) -> None:
    write(folder, "parquet", buys={"day": pa.array([None] * 8, pa.string())})
    files = {table: {"files": f"{table}.parquet"} for table in ROWS}
    files["buys"]["on_missing_time"] = "always"
    with pytest.raises(DataError, match=r"buys\.parquet \(column day\): no row has a time .*: nothing comes after"):
        ingest(**database(**files))
