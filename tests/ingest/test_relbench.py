"""A database in RelBench's layout, made here: keys and times from the files' metadata, labels from a task's tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from configs.errors import DataError, RecipeError, UserError
from configs.load import build_recipe
from tests.ingest.conftest import Ingest

DRIVERS = 8


def save(path: Path, frame: dict[str, Any], foreign: dict[str, str], key: str | None, time: str | None) -> None:
    """As relbench.base.Table.save."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pandas(pd.DataFrame(frame), preserve_index=False)
    known = {"fkey_col_to_pkey_table": foreign, "pkey_col": key, "time_col": time}
    metadata = {name: json.dumps(value).encode() for name, value in known.items()}
    pq.write_table(table.replace_schema_metadata({**(table.schema.metadata or {}), **metadata}), path)


def days(*numbers: int) -> Any:
    return pd.Timestamp("2010-01-01") + pd.to_timedelta(list(numbers), unit="D")


@pytest.fixture
def formula(folder: Path) -> Path:
    return write_formula(folder)


def write_formula(folder: Path) -> Path:
    """Like rel-f1: drivers, races with times, results that name both."""
    rng = np.random.default_rng(0)
    drivers = {"driverId": np.arange(DRIVERS), "nationality": ["de", "fr"] * 4, "code": [None] * DRIVERS}
    save(folder / "rel/db/drivers.parquet", drivers, {}, "driverId", None)
    races = {"raceId": np.arange(20), "date": days(*range(0, 200, 10)), "round": np.arange(20) % 5}
    save(folder / "rel/db/races.parquet", races, {}, "raceId", "date")
    race = np.repeat(np.arange(20), 4)
    driver = pd.array([*rng.integers(0, DRIVERS, 79), None], "Int64")
    results = {"resultId": np.arange(80), "raceId": race, "driverId": driver, "points": rng.random(80)}
    foreign = {"raceId": "races", "driverId": "drivers"}
    save(folder / "rel/db/results.parquet", results | {"date": days(*(race * 10))}, foreign, "resultId", "date")
    for split, moments in (("train", (30, 60, 90)), ("val", (120,)), ("test", (150,))):
        rows = {"date": days(*np.repeat(moments, DRIVERS)), "driverId": np.tile(np.arange(DRIVERS), len(moments))}
        finished, position = np.arange(len(rows["date"])) % 2, rng.random(len(rows["date"])) * 9
        for task, label in (("dnf", {"did_not_finish": finished}), ("position", {"position": position})):
            path = folder / f"rel/tasks/driver-{task}/{split}.parquet"
            save(path, {**rows, **label}, {"driverId": "drivers"}, None, "date")
    return folder / "rel"


def test_tables_keys_times_and_a_task(ingest: Ingest, formula: Path) -> None:
    store = ingest(name="relbench", folder=str(formula), predict="driver-dnf")
    manifest = store.manifest
    assert (manifest.dataset, manifest.task_type, manifest.metric) == ("rel", "binary", "rocauc")
    nodes = {one.name: one.num_nodes for one in manifest.node_types}
    assert nodes == {"drivers": 8, "races": 20, "results": 80, "task": 40}
    edges = {one.name: one.num_edges for one in manifest.edge_types}
    assert edges == {"results__driverId__drivers": 79, "results__raceId__races": 80, "task__of__drivers": 40}
    assert manifest.splits == {"train": 24, "valid": 8, "test": 8}
    assert store.column("ids/task", "original_id").tolist()[0] == "0@2010-01-31"
    assert manifest.fit_before == pd.Timestamp("2010-05-01").timestamp()


def test_a_regression_by_mean_absolute_error(ingest: Ingest, formula: Path) -> None:
    manifest = ingest(name="relbench", folder=str(formula), predict="driver-position").manifest
    assert (manifest.task_type, manifest.metric) == ("regression", "mae")
    manifest = ingest(name="relbench", folder=str(formula), predict="driver-dnf", task_type="regression").manifest
    assert manifest.task_type == "regression"
    path = formula / "tasks" / "driver-position" / "train.parquet"
    table = pq.read_table(path)
    large = pa.array([2**53 + 1] * len(table))  # float64 has its neighbours only
    pq.write_table(table.set_column(table.schema.get_field_index("position"), "position", large), path)
    assert ingest(name="relbench", folder=str(formula), predict="driver-position").manifest.task_type == "regression"


def test_options_of_tables_and_tables_left_out(ingest: Ingest, formula: Path) -> None:
    options = {"leave_out": ["races"], "tables": {"results": {"columns": {"points": "ignore"}}}}
    store = ingest(name="relbench", folder=str(formula), predict="driver-dnf", **options)
    assert [one.name for one in store.manifest.edge_types] == ["results__driverId__drivers", "task__of__drivers"]
    results = next(one for one in store.manifest.node_types if one.name == "results")
    assert not [one.column for one in results.features if "points" in one.column]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"predict": "driver-dns"}, r"no task 'driver-dns' \(did you mean 'driver-dnf'\?\); tasks/ has driver-dnf"),
        ({"leave_out": ["race"]}, r"leave_out: there is no table 'race' \(did you mean 'races'"),
        ({"leave_out": ["drivers"]}, r"there is no table 'drivers'"),
        ({"tables": {"results": {"colums": {}}}}, r"tables.results.*colums"),
        ({"folder": "nowhere"}, r"no folder db/"),
    ],
)
def test_options_that_do_not_fit(ingest: Ingest, formula: Path, options: dict[str, Any], message: str) -> None:
    given = {"folder": str(formula), "predict": "driver-dnf", **options}
    with pytest.raises(UserError, match=message):
        ingest(name="relbench", **given)


def test_files_that_are_not_relbench_s(ingest: Ingest, formula: Path) -> None:
    def tried(message: str, kind: type[Exception] = DataError) -> None:
        with pytest.raises(kind, match=message):
            ingest(name="relbench", folder=str(formula), predict="driver-dnf")

    races, test = formula / "db" / "races.parquet", formula / "tasks" / "driver-dnf" / "test.parquet"
    whole, rows = races.read_bytes(), test.read_bytes()
    pq.write_table(pq.read_table(races).replace_schema_metadata({}), races)
    tried(r"races.parquet.*no fkey_col_to_pkey_table in its schema's metadata.*graphmill inspect")
    save(races, {"raceId": [1]}, {}, "race", None)
    tried(r"races.parquet.*no column 'race'.*dataset.tables.races.key")
    races.write_bytes(b"PAR1")
    tried(r"races.parquet")
    races.write_bytes(whole)
    save(test, {"date": days(150), "driverId": [1]}, {"driverId": "drivers"}, None, "date")
    tried(r"test.parquet.*did_not_finish.*masked labels")
    save(test, {"date": days(150), "driverId": [[1, 2]]}, {"driverId": "drivers", "date": "races"}, None, "date")
    tried(r"test.parquet.*another key or time column")
    empty = {"date": days(), "driverId": [], "did_not_finish": np.array([], np.int64)}
    save(test, empty, {"driverId": "drivers"}, None, "date")
    tried(r"test.parquet.*no rows with a moment")
    spans = pa.array([150], pa.duration("us"))
    save(test, {"date": spans, "driverId": [1], "did_not_finish": [0]}, {"driverId": "drivers"}, None, "date")
    tried(r"test.parquet.*date.*is duration\[us\]; moments are time stamps")
    test.write_bytes(rows)
    test.unlink()
    tried("test.parquet")
    section = {"name": "relbench", "folder": str(formula), "predict": "driver-dnf"}
    with pytest.raises(RecipeError, match="deduplicate"):
        build_recipe({"name": "x", "dataset": section, "model": "heterosage", "preprocess": {"deduplicate": True}})
