"""Folders called KEY=VALUE: their keys are columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

from configs.errors import DataError
from configs.load import build_recipe
from tasks.ingest.database.proposal.recipe import propose_recipe
from tasks.ingest.stage import STAGE
from tasks.ingest.tables.files import TableFiles
from tasks.ingest.tables.paths import named_files
from tasks.stage import run_stage
from tasks.storage.home import Home


def write(place: Path, *, csv: bool = False, **columns: Any) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    (pc.write_csv if csv else pq.write_table)(pa.table(columns), place)


def rows(pattern: Path | str, *columns: str, **options: Any) -> list[tuple[Any, ...]]:
    table = pa.Table.from_batches([one.data for one in TableFiles((str(pattern),)).batches(columns, **options)])
    return [tuple(row[name] for name in columns) for row in table.to_pylist()]


@pytest.mark.parametrize("csv", [False, True])
def test_keys_are_columns(csv: bool, tmp_path: Path) -> None:
    ending = "csv" if csv else "parquet"
    for year, land in ((2021, "de"), (2022, "__HIVE_DEFAULT_PARTITION__"), (2022, "a%2Fb")):
        write(tmp_path / f"t/year={year}/land={land}/part-0.{ending}", csv=csv, id=[year, year + 1])
    (tmp_path / "t/_SUCCESS").touch()
    (tmp_path / "t/year=2021/.part.crc").touch()
    assert TableFiles((f"{tmp_path}/t",)).column_names() == ["id", "year", "land"]
    expected = [(2021, 2021, "de"), (2022, 2021, "de"), (2022, 2022, None), (2023, 2022, None)]
    expected += [(2022, 2022, "a/b"), (2023, 2022, "a/b")]
    assert sorted(rows(tmp_path / "t", "id", "year", "land"), key=str) == sorted(expected, key=str)
    assert sorted(rows(tmp_path / "t/*/*/*", "id", "year", "land"), key=str) == sorted(expected, key=str)
    assert rows(tmp_path / "t/year=2021", "id", "land") == [(2021, "de"), (2022, "de")]
    assert rows(tmp_path / "t/year=2021", "land") == [("de",), ("de",)]
    assert rows(tmp_path / "t/year=2021/*/*", "land", texts=["land"]) == [("de",), ("de",)]
    assert {type(year) for (year,) in rows(tmp_path / "t", "year", numbers=["year"])} == {float}
    assert {type(year) for (year,) in rows(tmp_path / "t", "year", texts=["year"])} == {str}


def test_a_key_of_some_files_is_no_column(tmp_path: Path) -> None:
    write(tmp_path / "t/year=2021/x.parquet", id=[1])
    write(tmp_path / "t/month=3/x.parquet", id=[1])
    with pytest.raises(DataError, match=r"keys year, and .* in those with month"):
        rows(tmp_path / "t", "id")


def test_a_column_that_is_a_key_too_is_the_files(tmp_path: Path) -> None:
    write(tmp_path / "t/year=2021/x.parquet", id=[1], year=[1999])
    assert rows(tmp_path / "t", "year") == [(1999,)]


def test_where_a_file_lies_says_what_it_holds(tmp_path: Path) -> None:
    write(tmp_path / "t/year=2021/x.parquet", id=[1])
    assert [name for name, _ in named_files((f"{tmp_path}/t",), [])] == ["year=2021/x.parquet"]
    assert [name for name, _ in named_files((f"{tmp_path}/t/year=2021/x.parquet",), [])] == ["year=2021/x.parquet"]


def test_keys_are_features_times_and_proposed(tmp_path: Path) -> None:
    ids = list(range(20))
    write(tmp_path / "in/people.parquet", id=ids, y=[i % 2 for i in ids])
    for year in (2021, 2022, 2023):
        for land in ("de", "fr"):
            write(tmp_path / f"in/visits/year={year}/land={land}/x.parquet", person=ids, price=[0.5 * i for i in ids])
    text = propose_recipe([f"{tmp_path}/in"])
    assert "visits" in text
    assert "year" in text
    visits = {"files": f"{tmp_path}/in/visits", "foreign": {"person": "people"}, "time": "year"}
    dataset = {
        "name": "database",
        "tables": {"people": {"files": f"{tmp_path}/in/people.parquet", "key": "id"}, "visits": visits},
        "predict": {"table": "people", "label": "y", "split": {"valid": 0.2, "test": 0.2}},
    }
    recipe = build_recipe({"name": "t", "dataset": dataset, "model": {"name": "heterosage"}})
    made = run_stage(STAGE, recipe, {}, Home.open(str(tmp_path / "home"))).manifest
    features = {one.column for kind in made.node_types for one in kind.features}
    assert {"visits.land", "visits.price"} <= features
