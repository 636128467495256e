"""Leaks that are planted in ingest itself are found in the users' own files, and clean databases are clean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

from configs.load import build_recipe
from configs.schema import Recipe
from tasks.ingest.database import ingest, relations
from tasks.ingest.database.configs import DatabaseConfig
from tasks.ingest.database.features import TableFeatures
from tasks.ingest.database.predicted import targets
from tasks.ingest.database.survey import Profile
from tasks.ingest.tables.intake import Intake, table_files
from tasks.leak_check.changed_tables import change_tables, changed, swapped
from tasks.leak_check.check import LeakCheck, check_leaks
from tasks.stage import Listener, StageContext
from tasks.storage.home import Home
from tasks.storage.home_files.caching import PickleCache

DAYS, MOMENT = 400, 320
PEOPLE, VISITS = 150, 1500


def tables(kinds: int = 4) -> dict[str, dict[str, Any]]:
    """People who visit and write notes, which have no keys; what they had is a link table with a kind each."""
    random = np.random.default_rng(1)
    day = np.sort(random.integers(1, DAYS, VISITS))
    day[-1] = DAYS
    who = random.integers(PEOPLE, size=VISITS)
    return {
        "people": {
            "person": [f"p{i}" for i in range(PEOPLE)],
            "since": np.where(np.arange(PEOPLE) % 5, 0, random.integers(300, DAYS, PEOPLE)),
            "age": random.integers(20, 80, PEOPLE),
            "town": random.choice(["ulm", "köln", "a,b"], PEOPLE),
        },
        "visits": {
            "visit": np.arange(VISITS),
            "who": [f"p{i}" for i in who],
            "day": day,
            "rooms": random.integers(0, 2, VISITS),
            "paid": np.where(random.random(VISITS) < 0.1, np.nan, random.random(VISITS).round(3)),
        },
        "notes": {
            "who": [f"p{i}" for i in random.permutation(np.resize(who, 700))],
            "day": random.permutation(day)[:700],
            "stars": random.random(700).round(2),
        },
        "things": {"thing": np.arange(30), "price": random.random(30).round(2)},
        "lines": {
            "visit": random.integers(VISITS, size=900),
            "thing": random.integers(30, size=900),
            "how": random.choice([f"k{i}" for i in range(kinds)], 900),
        },
    }


def database(folder: Path, ending: str, **predict: Any) -> Recipe:
    folder.mkdir(exist_ok=True)
    for name, columns in tables().items():
        table = pa.table({key: pa.array(cells, from_pandas=True) for key, cells in columns.items()})
        path = folder / f"{name}.{ending}"
        pc.write_csv(table, path) if ending == "csv" else pq.write_table(table, path)

    def files(name: str) -> dict[str, str]:
        return {"files": str(folder / f"{name}.{ending}")}

    section = {
        "name": "database",
        "tables": {
            "people": {**files("people"), "key": "person", "time": "since"},
            "visits": {**files("visits"), "key": "visit", "time": "day", "foreign": {"who": "people"}},
            "notes": {**files("notes"), "time": "day", "foreign": {"who": "people"}},
            "things": {**files("things"), "key": "thing"},
            "lines": {**files("lines"), "foreign": {"visit": "visits", "thing": "things"}},
        },
        "predict": {
            "table": "people",
            "target": {"count": "visits"},
            "at": [200, 240, MOMENT, 360],
            "horizon": 40,
            **predict,
        },
    }
    return build_recipe(
        {
            "name": "people",
            "dataset": section,
            "preprocess": {"transforms": [{"name": "standardize"}]},
            "model": {"name": "heterosage", "num_layers": 3},
            "train": {"loader": {"name": "relational", "choose": "uniform"}},
        }
    )


def check(folder: Path, recipe: Recipe) -> LeakCheck:
    return check_leaks(recipe, Home.open(folder / "home"), 12)


@pytest.mark.parametrize("ending", ["csv", pytest.param("parquet", marks=pytest.mark.slow)])
def test_a_clean_database_is_clean(tmp_path: Path, ending: str) -> None:
    found = check(tmp_path, database(tmp_path / "data", ending))
    assert found.ok, found
    assert (found.moments, found.seeds) == ([MOMENT, 360], 24)


def test_dates_of_other_forms_stay_dates_and_copies_are_read_without_a_word(tmp_path: Path) -> None:
    """Later cells of a column that time_format names change places: any other text would be refused."""
    recipe = database(tmp_path / "data", "csv")
    notes = tmp_path / "data" / "notes.csv"
    born = [f"{i % 28 + 1:02d}.{i % 12 + 1:02d}.{1950 + i % 40}" for i in range(700)]
    table = pc.read_csv(notes).append_column("born", pa.array(born)).append_column("left", pa.array(born))
    pc.write_csv(table, notes)
    forms = {"born": "%d.%m.%Y", "left": "%d.%m.%Y"}
    update = {"time_format": forms, "columns": {"left": "ignore"}, "time": None}
    one = recipe.dataset.tables["notes"]
    tables = {**recipe.dataset.tables, "notes": one.model_copy(update=update)}
    recipe = recipe.model_copy(update={"dataset": recipe.dataset.model_copy(update={"tables": tables})})
    heard: list[str] = []

    class Heard(Listener):
        def message(self, stage: str, text: str) -> None:
            heard.append(f"{stage}: {text}")

    assert check_leaks(recipe, Home.open(tmp_path / "home"), 3, Heard()).ok
    assert sum("notes: 700 rows" in line for line in heard) == 1
    assert [line for line in heard if line.startswith("check-leaks")] == [
        f"check-leaks: reading the tables again, with other rows from {moment} on" for moment in (MOMENT, 360)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("figure", [{"mean": "visits.paid"}, {"none": "visits"}])
def test_other_targets_are_clean(tmp_path: Path, figure: dict[str, str]) -> None:
    active = {"any": "visits", "within": 200}
    assert check(tmp_path, database(tmp_path / "data", "csv", target=figure, active=active)).ok


@pytest.mark.slow
def test_labels_in_files_are_clean(tmp_path: Path) -> None:
    random, count = np.random.default_rng(0), 400
    who = random.choice(np.flatnonzero(tables()["people"]["since"] == 0), count)
    moment = random.choice([200, 240, MOMENT, 360], count)
    pairs = np.unique(np.stack([who, moment], 1), axis=0)
    rows = {"who": [f"p{i}" for i, _ in pairs], "at": pairs[:, 1], "left": random.integers(0, 2, len(pairs))}
    recipe = database(tmp_path / "data", "csv")
    pc.write_csv(pa.table(rows), tmp_path / "data" / "left.csv")
    labels = {"files": str(tmp_path / "data" / "left.csv"), "key": "who", "time": "at", "label": "left"}
    recipe = database(tmp_path / "data", "csv", target=None, at=None, labels=labels)
    assert check(tmp_path, recipe).ok


def test_a_kind_that_all_rows_decide_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`rooms` is 0 or 1, a category; behind the moment it gets other whole numbers."""
    add = Profile.add
    monkeypatch.setattr(Profile, "add", lambda self, batch, column, decide=None: add(self, batch, column))
    found = check(tmp_path, database(tmp_path / "data", "csv"))
    assert "categories of visits" in found.changed, found


def later_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = targets._figure
    monkeypatch.setattr(targets, "_figure", lambda f, events, moment, horizon, n: figure(f, events, moment, 70, n))


def edges_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relations, "edge_times", lambda src, *_: (np.zeros(len(src), np.int64), 0))


def categories_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    learn = TableFeatures.learn_categories
    monkeypatch.setattr(TableFeatures, "learn_categories", lambda self, batch, _: learn(self, batch, None))


def no_fitting_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    deal = ingest.deal
    monkeypatch.setattr(ingest, "deal", lambda *a: deal(*a)._replace(first_valid=DAYS))


PLANTED = {
    later_labels: "labels of splits that end before the moment",
    edges_at_once: "categories of edges of visits__lines__things",
    categories_of_all: "categories of edges of visits__lines__things",
    no_fitting_moment: "numbers of visits",
}


@pytest.mark.slow
@pytest.mark.parametrize("plant", PLANTED)
def test_planted_leaks_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: Any) -> None:
    plant(monkeypatch)
    found = check(tmp_path, database(tmp_path / "data", "parquet"))
    assert any(name.startswith(PLANTED[plant]) for name in found.changed), found


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_earlier_rows_stay_and_later_ones_are_others(tmp_path: Path, ending: str) -> None:
    config = database(tmp_path / "data", ending).dataset
    assert isinstance(config, DatabaseConfig)
    (tmp_path / "work").mkdir()
    home = Home.open(tmp_path / "home")
    context = StageContext("check-leaks", tmp_path / "work", home, PickleCache(home))
    spared = {"people": np.flatnonzero(tables()["people"]["since"] >= MOMENT)[:2]}
    other = change_tables(config, context, MOMENT, spared)
    for name in ("visits", "notes", "people"):
        time = config.tables[name].time
        columns = list(tables()[name])
        one, two = (rows(some.tables[name], columns) for some in (config, other))
        place = columns.index(time or "")
        assert [r for r in one if int(r[place]) < MOMENT] == [r for r in two if int(r[place]) < MOMENT]
        late = [{r for r in some if int(r[place]) >= MOMENT} for some in (one, two)]
        assert not late[0] & late[1] or (name == "people" and len(late[0] & late[1]) == 2)
        assert max(int(r[place]) for r in one) == max(int(r[place]) for r in two)
        if name != "people":
            keys = [{r[0] for r in some} for some in late]
            assert name == "notes" or (keys[0] - keys[1] and keys[1] - keys[0])
            assert len(late[1]) != len(late[0])
    kinds = [table_files(some.tables["things"]) for some in (config, other)]
    assert [next(iter(some.batches(["thing"]))).data.num_rows for some in kinds] == [30, 30]
    assert rows(config.tables["things"], ["thing", "price"]) == rows(other.tables["things"], ["thing", "price"])


def rows(table: Any, columns: list[str]) -> list[tuple[Any, ...]]:
    data = pa.Table.from_batches([batch.data for batch in Intake().batches(table, columns)])
    return [tuple(map(repr, row)) for row in zip(*(data[name].to_pylist() for name in columns), strict=True)]


@pytest.mark.parametrize(
    "cells",
    [
        pa.array([1, 2, None, 4, 5, 6], pa.int8()),
        pa.array([1, 2, None, 4, 5, 2**63], pa.uint64()),
        pa.array([0.5, float("nan"), None, 1.0, 2.0, 3.0], pa.float32()),
        pa.array(["1", " 22", None, "-4", "007", "9"]),
        pa.array(["1.5", "2e3", None, "-.4", "7", "9."]),
        pa.array(["2024-01-31", "x", None, "true", "y", ""]),
        pa.array([[1.0, 2.0], [3.0, 4.0], None, [], [5.0, 6.0, 7.0], [8.0, 9.0]]),
        pa.array([[1, 2]] * 6, pa.list_(pa.int16(), 2)),
        pa.array([True, False, None, True, False, True]),
    ],
)
def test_cells_change_and_keep_their_kind(cells: pa.Array) -> None:
    random = np.random.default_rng(0)
    late = np.array([1, 2, 3, 5])
    other = changed(cells, late, random)
    assert other.type == cells.type
    assert [other[i].as_py() for i in (0, 4)] == [cells[i].as_py() for i in (0, 4)]
    assert other.null_count == cells.null_count
    assert str(changed(cells, late[:0], random)) == str(cells)
    assert sorted(map(repr, swapped(cells, late, random).to_pylist())) == sorted(map(repr, cells.to_pylist()))
    if pa.types.is_string(cells.type):
        number = r"^\s*[+-]?[0-9.]+(e[0-9]+)?\s*$"
        like = [pa.compute.match_substring_regex(one, number).to_pylist() for one in (cells, other)]
        assert like[0].count(True) == like[1].count(True)
