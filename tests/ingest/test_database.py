"""A database becomes nodes, edges and tasks: compared with what plain Python makes of the same rows."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from configs.errors import RecipeError
from configs.load import build_recipe
from tasks.storage.dataset_store import DatasetStore
from tests.ingest.conftest import Ingest
from tests.ingest.small_databases import ROWS, database, write

DAY = 86400


def seconds(day: str) -> int:
    return int(datetime.datetime.fromisoformat(day).replace(tzinfo=datetime.UTC).timestamp())


def edges(store: DatasetStore, name: str) -> list[tuple[Any, ...]]:
    table = store.read(f"edges/{name}")
    return list(zip(*(table[column].to_pylist() for column in ("src", "dst", "time")), strict=True))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_rows_are_nodes_and_foreign_keys_edges(ingest: Ingest, folder: Path, ending: str) -> None:
    write(folder, ending)
    section = database(**{name: {"files": f"{name}.{ending}"} for name in ROWS})
    store = ingest(**section)
    manifest = store.manifest
    assert {one.name: one.num_nodes for one in manifest.node_types} == {"people": 4, "things": 3, "buys": 8, "task": 12}
    assert [one.name for one in manifest.edge_types] == [
        *("people__boss__people", "buys__who__people", "buys__lines__things", "task__of__people"),
    ]
    since = [seconds(day) for day in ROWS["people"]["since"]]
    day = [seconds(one) for one in ROWS["buys"]["day"]]
    assert edges(store, "people__boss__people") == [(1, 0, since[1]), (2, 0, since[2]), (3, 2, since[3])]
    assert edges(store, "buys__who__people") == [
        (i, who - 10, max(day[i], since[who - 10])) for i, who in enumerate(ROWS["buys"]["who"])
    ]
    lines = ROWS["lines"]
    assert edges(store, "buys__lines__things") == [
        (buy, "abc".index(thing), day[buy]) for buy, thing in zip(lines["buy"], lines["thing"], strict=True)
    ]
    assert "time" not in store.table("nodes/things").columns
    people = store.read("nodes/people")
    assert people["people.age_missing"].to_pylist() == [0, 1, 0, 0]
    assert np.isnan(people["people.age"].to_numpy()).tolist() == [False, True, False, False]
    land = people["people.land"].to_pylist()
    assert land[0] == land[2]
    assert len(set(land)) == 3
    features = {f.column: f for one in manifest.node_types for f in one.features}
    assert features["people.age"].gaps
    assert features["people.land"].cardinalities == ()
    assert features["things.price"].kind == "numeric"


def plain_labels(figure: str, column: str | None, moment: int, horizon: int, active: int | None) -> dict[int, float]:
    """Labels by plain loops over the rows."""
    buys, found = ROWS["buys"], {}
    for place, person in enumerate(ROWS["people"]["person"]):
        rows = [i for i, who in enumerate(buys["who"]) if who == person]
        times = [seconds(buys["day"][i]) for i in rows]
        if seconds(ROWS["people"]["since"][place]) >= moment:
            continue
        if active is not None and not any(moment - active <= time < moment for time in times):
            continue
        inside = [i for i, time in zip(rows, times, strict=True) if moment <= time < moment + horizon]
        values = [buys[column][i] for i in inside] if column else []
        if figure == "mean" and not values:
            continue
        count = len(inside)
        total = sum(values)
        figures = {"none": count == 0, "any": count > 0, "count": count, "sum": total, "mean": total / max(1, count)}
        found[place] = float(figures[figure])
    return found


FIGURES = [("none", None), ("any", None), ("count", None), ("sum", "paid"), ("mean", "paid")]


@pytest.mark.parametrize(("figure", "column"), FIGURES)
@pytest.mark.parametrize(
    ("active", "at", "horizon"),
    [
        (None, ["2022-04-25", "2022-07-20", "2022-12-01", "2023-05-15"], 100),
        (200, ["2022-04-25", "2022-07-20", "2022-12-01", "2023-05-15"], 100),
        # Rows of the very moment are the horizon's, who came at the moment is not there, `within` has its start.
        (None, ["2022-02-01", "2022-05-01", "2022-11-01", "2023-03-01"], 89),
        (245, ["2023-01-01", "2023-07-04", "2023-10-04"], 89),
    ],
)
def test_labels_are_those_of_plain_loops(
    ingest: Ingest, folder: Path, figure: str, column: str | None, active: int | None, at: list[str], horizon: int
) -> None:
    write(folder)
    target = {figure: "buys" if column is None else f"buys.{column}"}
    within = active and active * DAY
    labels = {day: plain_labels(figure, column, seconds(day), horizon * DAY, within) for day in at}
    moments = [day for day in at if labels[day]]  # of no row there is no mean
    predict: dict[str, Any] = {"target": target, "at": moments, "horizon": f"{horizon}d"}
    if active is not None:
        predict["active"] = {"any": "buys", "within": f"{active}d"}
    store = ingest(**database(predict=predict))
    expected = [(place, seconds(day), label) for day in moments for place, label in labels[day].items()]
    task = store.read("nodes/task")
    entity = store.read("edges/task__of__people")["dst"].to_pylist()
    label = [one[0] for one in task["label"].to_pylist()]
    assert list(zip(entity, task["time"].to_pylist(), label, strict=True)) == expected
    assert store.manifest.task_type == ("binary" if figure in ("none", "any") else "regression")
    ids = store.read("ids/task")["original_id"].to_pylist()
    assert ids == [f"{10 + place}@{datetime.date.fromtimestamp(time)}" for place, time, _ in expected]


@pytest.mark.parametrize("mistaken", [True, False])
def test_a_single_row_of_the_far_future_does_not_pass_for_complete_data(
    ingest: Ingest, folder: Path, mistaken: bool
) -> None:
    """Without the hint everybody at the last moment would silently be one who buys nothing."""
    days = [str(datetime.date(2022, 2, 1) + datetime.timedelta(days=day)) for day in range(250)]
    days[100] = "2030-01-01" if mistaken else days[100]
    count = len(days)
    buys = {"buy": list(range(count)), "who": [10, 11] * (count // 2), "day": days, "paid": [1.0] * count}
    write(folder, buys=buys)
    last = "2022-12-01" if mistaken else "2022-07-01"
    predict = {"at": ["2022-04-01", "2022-05-01", "2022-06-01", last], "horizon": "30d"}
    warnings = ingest(**database(predict=predict)).manifest.warnings
    told = [one for one in warnings if "all rows but 1 are of 2022-10-08 or earlier" in one]
    assert len(told) == (1 if mistaken else 0), warnings


def test_rows_that_name_entities_by_either_of_two_keys_make_them_active(ingest: Ingest, folder: Path) -> None:
    """Person 11 is named by `from` alone, person 12 by `to` alone: no order of the keys may leave one of them out."""
    days = ["2022-03-15", "2022-06-15", "2022-09-15", "2022-12-15"]
    write(folder, calls={"call": [0, 1, 2, 3], "from": [11] * 4, "to": [12] * 4, "day": days})
    own = {"files": "calls.csv", "key": "call", "time": "day", "foreign": {"from": "people", "to": "people"}}
    store = ingest(**database(calls=own, predict={"active": {"any": "calls", "within": "30d"}}))
    entity = store.read("edges/task__of__people")["dst"].to_pylist()
    assert entity == [1, 2] * 4


def test_splits_go_by_moment_and_leave_a_horizon_between_them(ingest: Ingest, folder: Path) -> None:
    write(folder)
    at = {"first": "2022-02-01", "last": "2023-08-05", "every": "30d"}
    store = ingest(**database(predict={"at": at, "horizon": "90d", "data_end": "2024-01-01"}))
    time = store.column("nodes/task", "time")
    split = {name: time[store.column(f"split/{name}", "node_id")] for name in ("train", "valid", "test")}
    moments = np.unique(time)
    assert set(split["test"]) == {moments[-1]}
    assert set(split["valid"]) == {moments[moments + 90 * DAY <= moments[-1]][-1]}
    assert set(split["train"]) == set(moments[moments + 90 * DAY <= split["valid"][0]])
    assert store.manifest.fit_before == split["valid"][0]
    assert any("in no split" in warning for warning in store.manifest.warnings)
    given = {"valid": "2022-08-01", "test": "2023-01-01"}
    store = ingest(**database(predict={"split": given, "horizon": "30d"}))
    assert store.manifest.splits == {"train": 6, "valid": 3, "test": 3}
    assert store.manifest.fit_before == seconds("2022-10-01")


def test_moments_of_which_nothing_is_known_yet(ingest: Ingest, folder: Path) -> None:
    """Whoever is there has a row without a label, in no split; all else stays as it is."""
    write(folder)
    plain = ingest(**database())
    store = ingest(**database(predict={"unlabelled": ["2024-01-01"]}))
    label, time = store.column("nodes/task", "label")[:, 0], store.column("nodes/task", "time")
    later = time == seconds("2024-01-01")
    assert later.sum() == 4
    assert np.isnan(label[later]).all()
    assert not np.isnan(label[~later]).any()
    assert (store.manifest.splits, store.manifest.fit_before) == (plain.manifest.splits, plain.manifest.fit_before)
    assert store.read("ids/task")["original_id"].to_pylist()[-4:] == [f"{10 + i}@2024-01-01" for i in range(4)]
    assert store.manifest.warnings == plain.manifest.warnings
    with pytest.raises(RecipeError, match=r"predict\.unlabelled: 2022-07-01 stands in dataset\.predict\.at too"):
        ingest(**database(predict={"unlabelled": ["2022-07-01"]}))


def test_labels_of_entities_that_are_not_there_yet_or_of_which_nothing_is_known(ingest: Ingest, folder: Path) -> None:
    """Person 13 came on 2023-03-01: a label of before would see what his row holds. Of the very day it is taken."""
    labels = {
        "who": [10, 12, 13, 11, 13, 10],
        "at": ["2022-03-01", "2022-06-01", "2023-02-28", "2023-01-01", "2023-03-01", "2023-06-01"],
        "y": ["0", "1", "1", "0", "1", ""],
    }
    write(folder, labels=labels)
    own = {"files": "labels.csv", "key": "who", "time": "at", "label": "y"}
    own |= {"on_unknown_id": "drop", "on_missing_label": "predict"}
    store = ingest(**database(predict={"target": None, "at": None, "horizon": None, "labels": own}))
    assert store.read("ids/task")["original_id"].to_pylist() == [
        *("10@2022-03-01", "12@2022-06-01", "11@2023-01-01", "13@2023-03-01", "10@2023-06-01"),
    ]
    label = [one[0] for one in store.read("nodes/task")["label"].to_pylist()]
    assert label[:4] == [0, 1, 0, 1]
    assert np.isnan(label[4])
    assert (store.manifest.splits, store.manifest.metric) == ({"train": 2, "valid": 1, "test": 1}, "rocauc")
    warnings = store.manifest.warnings
    assert any("1 labels are left out, because the row of people is younger" in one for one in warnings)


def test_categories_of_link_tables_are_those_of_older_rows(ingest: Ingest, folder: Path) -> None:
    """What only edges behind the first validation moment have is the unknown category."""
    write(folder, lines={"number": None, "kind": ["x", "y", "x", "y", "x", "late", "late", "late", "late"]})
    store = ingest(**database())
    table = store.read("edges/buys__lines__things")
    codes = table["lines.kind"].to_pylist()
    old = [time < store.manifest.fit_before for time in table["time"].to_pylist()]
    assert codes == [0, 1, 0, 1, 0, 2, 2, 2, 2]
    assert old == [True] * 4 + [False] * 5 or old[4] is True
    relation = next(one for one in store.manifest.edge_types if one.relation == "lines")
    assert relation.features[0].cardinalities == (3,)


def test_rows_behind_the_first_moment_that_validates_do_not_say_what_a_column_is(ingest: Ingest, folder: Path) -> None:
    """Of eight rows three are older. By all of them `kind` would be text, and `flag` and `late` be read."""
    kind, flag, late = [*"xyx", *"abcde"], [1, 1, 1, 2, 3, 2, 3, 2], [None, None, None, 1.5, 2.5, 3.5, 4.5, 5.5]
    write(folder, buys={"kind": kind, "flag": flag, "late": late, "gaps": [1.5, 2.5, 3.5, None, 1.0, 1.0, 1.0, 1.0]})
    store = ingest(**database() | {"max_categories": 2})
    assert store.manifest.fit_before == seconds("2022-10-01")
    buys = next(one for one in store.manifest.node_types if one.name == "buys")
    kinds = {feature.column: feature.kind for feature in buys.features}
    numbers = {f"buys.{name}": "numeric" for name in ("paid", "gaps", "gaps_missing")}
    assert kinds == numbers | {"buys.kind": "categorical"}


def test_times_are_days_before_the_row_and_never_later(ingest: Ingest, folder: Path) -> None:
    shipped = ["2022-01-31", "", *["2023-01-01"] * 6]
    write(folder, buys={"shipped": shipped})
    store = ingest(**database())
    buys = store.read("nodes/buys")
    days = buys["buys.shipped"].to_pylist()
    assert days[0] == 1
    known = [i for i, day in enumerate(ROWS["buys"]["day"]) if shipped[i] and day >= shipped[i]]
    assert [i for i in range(8) if not np.isnan(days[i])] == known
    assert buys["buys.shipped_missing"].to_pylist() == [float(i not in known) for i in range(8)]
    assert any("(column shipped): 2 times are later than their own row's" in one for one in store.manifest.warnings)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_texts_stay_texts(ingest: Ingest, folder: Path, ending: str) -> None:
    notes = ["A late, LATE parcel!", "", None, "Straße 7", "12", "ab", "the parcel was late", "x" * 300]
    write(folder, ending, buys={"note": notes})
    section = database(**{name: {"files": f"{name}.{ending}"} for name in ROWS})
    assert not any("note" in one.column for one in ingest(**section).manifest.node_types[2].features)
    section["tables"]["buys"]["columns"] = {"note": "text"}
    store = ingest(**section)
    found = store.read("nodes/buys", ["buys.note"])["buys.note"]
    assert found.to_pylist() == [note or "" for note in notes]
    assert [one.kind for one in store.manifest.node_types[2].features if one.column == "buys.note"] == ["text"]


def test_whole_numbers_as_times(ingest: Ingest, folder: Path) -> None:
    write(folder, people={"since": [0, 1, 2, 30]}, buys={"day": [5, 7, 12, 20, 25, 31, 35, 40]})
    predict = {"at": [8, 13, 18], "horizon": 5}
    store = ingest(**database(predict=predict))
    assert store.column("nodes/task", "time").tolist() == [8, 8, 8, 13, 13, 13, 18, 18, 18]
    assert store.column("nodes/task", "label")[:, 0].tolist() == [1, 0, 0, 0, 0, 0, 0, 0, 1]  # 12, 20; 7 is too early
    assert store.read("ids/task")["original_id"].to_pylist()[:2] == ["10@8", "11@8"]
    with pytest.raises(RecipeError, match=r"predict\.horizon: 5d is a length in days"):
        ingest(**database(predict={**predict, "horizon": "5d"}))
    with pytest.raises(RecipeError, match=r"predict\.at: 2022-04-01 is a date, and the tables' times are whole"):
        ingest(**database(predict={"horizon": 5}))
    milliseconds = {"since": [0, 1, 2, 3], "day": [(19_000 + 60 * i) * DAY * 1000 for i in range(8)]}
    write(folder, people={"since": milliseconds["since"]}, buys={"day": milliseconds["day"]})
    epoch = {"epoch": "milliseconds"}
    store = ingest(**database(people=epoch, buys=epoch, predict={"horizon": "20d"}))
    assert store.column("nodes/buys", "time").tolist() == [(19_000 + 60 * i) * DAY for i in range(8)]


def test_policies_leave_rows_and_edges_out(ingest: Ingest, folder: Path) -> None:
    write(
        folder,
        buys={"buy": [0, 1, 2, 3, 4, 5, 6, 6], "who": [10, 11, 10, 99, 10, 13, 12, 10]},
        people={"since": ["2022-01-01", "", "2022-01-03", "2023-03-01"]},
        lines={"buy": [0, 0, 1, 2, 3, 4, 5, 6, 7]},
    )
    drop = database(
        people={"on_missing_time": "drop", "on_unknown_id": "count", "foreign": {}},
        buys={"on_unknown_id": "drop", "on_duplicate_id": "last"},
        lines={"on_unknown_id": "count"},
    )
    store = ingest(**drop)
    assert store.read("ids/people")["original_id"].to_pylist() == [10, 12, 13]
    assert store.read("ids/buys")["original_id"].to_pylist() == [0, 2, 4, 5, 6]  # 1 and 3 name nobody, 6 stood twice
    assert [(s, d) for s, d, _ in edges(store, "buys__who__people")] == [(0, 0), (1, 0), (2, 0), (3, 2), (4, 0)]
    assert [(s, d) for s, d, _ in edges(store, "buys__lines__things")] == [
        (0, 0), (0, 1), (1, 2), (2, 2), (3, 0), (4, 1),
    ]  # fmt: skip
    assert store.manifest.adjusted == {
        "people.csv: rows without a time dropped": 1,
        "buys.csv: rows with a foreign key that names no row dropped": 2,
        "buys.csv: rows of a repeated key dropped": 1,
        "lines.csv: foreign keys buy that name no row dropped": 3,
    }
    always = ingest(**database(people={"on_missing_time": "always", "on_unknown_id": "count"}, buys={"on_unknown_id": "count", "on_duplicate_id": "first"}, lines={"on_unknown_id": "count"}))  # fmt: skip # noqa: E501
    assert always.column("nodes/people", "time")[1] == -(2**62)
    assert 1 in always.column("edges/task__of__people", "dst")[:2]


def test_decimals_with_gaps_are_foreign_keys(ingest: Ingest, folder: Path) -> None:
    """Many tools write 3.0 for 3 where a column has empty cells."""
    write(folder, "parquet", people={"boss": pa.array([np.nan, 10.0, 10.0, 12.0])})
    store = ingest(**database(**{name: {"files": f"{name}.parquet"} for name in ROWS}))
    assert [(s, d) for s, d, _ in edges(store, "people__boss__people")] == [(1, 0), (2, 0), (3, 2)]


def test_foreign_keys_may_lead_in_circles_and_a_link_table_be_nodes(ingest: Ingest, folder: Path) -> None:
    """People name their last purchase, and purchases people: the edge is there once both rows are."""
    write(folder, people={"last": [7, 1, None, 5]})
    store = ingest(**database(people={"foreign": {"boss": "people", "last": "buys"}}, lines={"link": False}))
    day = [seconds(one) for one in ROWS["buys"]["day"]]
    assert store.column("edges/lines__buy__buys", "time").tolist() == [day[buy] for buy in ROWS["lines"]["buy"]]
    assert "lines__thing__things" in [one.name for one in store.manifest.edge_types]
    assert edges(store, "people__last__buys") == [(0, 7, day[7]), (1, 1, day[1]), (3, 5, day[5])]
    assert any("3 rows of people name by last a row of buys that is younger" in one for one in store.manifest.warnings)


def test_a_duckdb_file_is_read_as_its_tables_are(ingest: Ingest, folder: Path) -> None:
    import duckdb

    write(folder)
    with duckdb.connect("all.duckdb") as connection:
        for name in ROWS:
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM read_csv('{name}.csv')")
    section = database(**{name: {"files": "all.duckdb"} for name in ROWS})
    assert ingest(**section).manifest.node_types == ingest(**database()).manifest.node_types
    section["tables"]["buys"]["table"] = "buyz"
    with pytest.raises(Exception, match=r"all\.duckdb: has no table 'buyz' \(did you mean 'buys'\?\)"):
        ingest(**section)


def test_recipes_that_mix_times_are_refused() -> None:
    def recipe(**change: Any) -> Any:
        plain = {"name": "x", "dataset": database(), "model": "graphsage"}
        return build_recipe({**plain, **change})

    assert not recipe().preprocess.deduplicate
    assert not recipe(preprocess={"symmetrize": True}).preprocess.deduplicate
    for change, message in (
        ({"preprocess": {"deduplicate": True}}, "preprocess.deduplicate merges edges of different relations and times"),
        ({"preprocess": {"transforms": ["degree"]}}, "degree counts edges of all times"),
        ({"snapshot": {"as_of": 2023}}, "snapshot.as_of: database has moments of its own"),
    ):
        with pytest.raises(RecipeError, match=message):
            recipe(**change)


@pytest.mark.parametrize("name", ["", "Unnamed: 0", "__index_level_0__"])
def test_row_numbers_that_pandas_wrote_are_no_feature(ingest: Ingest, folder: Path, name: str) -> None:
    """They tell which rows came before which, and in later data have values that nobody saw."""
    write(folder, "parquet", buys={name: [3, 5, 6, 7, 9, 10, 12, 13]}, things={name: ["x", "y", "y"]})
    section = database(**{table: {"files": f"{table}.parquet"} for table in ROWS})
    columns = [one.column for kind in ingest(**section).manifest.node_types for one in kind.features]
    assert f"buys.{name}" not in columns
    assert f"things.{name}" in columns  # no numbers
    section["tables"]["buys"]["columns"] = {name: "number"}
    columns = [one.column for kind in ingest(**section).manifest.node_types for one in kind.features]
    assert f"buys.{name}" in columns
