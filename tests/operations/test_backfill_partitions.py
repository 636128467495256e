"""Partitions of a backfill, without any server: calendars, grids, versions of tables."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from configs.errors import RecipeError
from configs.load import build_recipe
from flows.backfill import actions
from flows.backfill.actions import check_order, over_versions, settled
from flows.backfill.spec import Backfill, check_id, default_id, parse_grid
from tasks.readers.table_formats.opened import OPENED
from tests.ingest.versioned_tables import append_delta, set_moment, write_delta


def names(**asked: object) -> list[str]:
    return [partition.name for partition in Backfill(id="x", deployment="d", **asked).partitions()]  # type: ignore[arg-type]


def snapshots(**asked: object) -> list[str | None]:
    return [partition.snapshot for partition in Backfill(id="x", deployment="d", **asked).partitions()]  # type: ignore[arg-type]


def test_years() -> None:
    assert names(first="2021", last="2024", every="year") == ["2021", "2022", "2023", "2024"]
    assert names(first="2021-07-01", last="2022-02", every="year") == ["2021", "2022"]
    assert names(first="2021", last="2023", every="year", reverse=True) == ["2023", "2022", "2021"]


@pytest.mark.parametrize(
    ("first", "last", "every", "number", "begins", "ends"),
    [
        ("2021", "2022", "month", 24, "2021-01", "2022-12"),
        ("2024-06", "2024-07", "day", 61, "2024-06-01", "2024-07-31"),
        ("2024", "2024", "day", 366, "2024-01-01", "2024-12-31"),
        ("2024-02-28", "2024-02-29", "hour", 48, "2024-02-28T00", "2024-02-29T23"),
        ("2024-02-28T05", "2024-02-28T06", "hour", 2, "2024-02-28T05", "2024-02-28T06"),
        ("2024-12", "2024-12", "week", 6, "2024-W48", "2025-W01"),
        ("2021-07", "2022-02", "year", 2, "2021", "2022"),
    ],
)
def test_what_is_named_counts_from_its_beginning_to_its_end(
    first: str, last: str, every: str, number: int, begins: str, ends: str
) -> None:
    found = names(first=first, last=last, every=every)
    assert (len(found), found[0], found[-1]) == (number, begins, ends)


def test_a_range_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(RecipeError, match="--from 2022 is after --to 2021-12"):
        names(first="2022", last="2021-12", every="month")
    assert names(first="2022-03", last="2022", every="month")[-1] == "2022-12"
    with pytest.raises(RecipeError, match="--to '9999' is not a date"):
        names(first="9998", last="9999", every="year")


def test_weeks_begin_on_monday_and_are_taken_as_of_sunday() -> None:
    # 2024-12-31 is a Tuesday: ISO week 1 of 2025.
    assert names(first="2024-12-28", last="2025-01-06", every="week") == ["2024-W52", "2025-W01", "2025-W02"]
    assert snapshots(first="2024-12-28", last="2025-01-06", every="week") == ["2024-12-29", "2025-01-05", "2025-01-12"]


def test_the_last_year_of_the_calendar() -> None:
    assert names(first="9998", last="9999-12-30", every="year") == ["9998", "9999"]


def test_hours_are_taken_as_of_their_end() -> None:
    assert names(first="2024-02-28T23", last="2024-02-29T00", every="hour") == ["2024-02-28T23", "2024-02-29T00"]
    assert snapshots(first="2024-02-28T23", last="2024-02-28T23", every="hour") == ["2024-02-28T23:59:59+00:00"]


def test_a_grid_is_all_combinations_times_all_snapshots() -> None:
    grid = parse_grid(["model.name=gcn,gat", "seed=0..2"])
    assert grid == {"model.name": ("gcn", "gat"), "seed": ("0", "1", "2")}
    found = Backfill(id="x", deployment="d", at=("2021", "2023"), grid=grid, overrides=("train.epochs=2",)).partitions()
    assert len(found) == 12
    assert found[0].name == "2021 model.name=gcn seed=0"
    assert found[-1].name == "2023 model.name=gat seed=2"
    assert found[-1].overrides == ("train.epochs=2", "model.name=gat", "seed=2")
    assert found[-1].snapshot == "2023"


def test_values_with_commas_are_lists_in_yaml() -> None:
    assert parse_grid(["train.loader.fanout=[[15,10],[10,5]]"]) == {"train.loader.fanout": ("[15, 10]", "[10, 5]")}


@pytest.mark.parametrize(
    "text", ["seed", "seed=", "=1", "seed=4..0", "seed=0..99999999", "seed=,", "seed=[]", "seed=[1"]
)
def test_wrong_grids_are_refused(text: str) -> None:
    with pytest.raises(RecipeError):
        parse_grid([text])


def test_too_many_partitions_are_refused() -> None:
    huge = parse_grid([f"{key}=1..9999" for key in ("seed", "train.epochs", "model.hidden_dim")])
    with pytest.raises(RecipeError, match="999,700,029,999 partitions are more than 10,000"):
        Backfill(id="x", deployment="d", grid=huge).partitions()
    with pytest.raises(RecipeError, match="more than"):
        names(first="1900", last="2026", every="hour")


def test_ids_are_short_and_differ_where_what_is_asked_differs() -> None:
    assert default_id("nightly", ["2021", "2026", "year"]) == "nightly-2021-2026-year"
    one, other = (default_id("nightly", [f"model.name={'gcn,' * 30}{last}"]) for last in ("gat", "gin"))
    assert one != other
    assert len(one) <= 60
    assert check_id(one) == one
    for bad in ("", "A", "a_b", "-a", "a" * 61):
        with pytest.raises(RecipeError):
            check_id(bad)


@pytest.mark.parametrize(
    ("options", "words"), [({"reverse": True}, "--reverse"), ({"max_active": 2}, "--max-active 2")]
)
def test_snapshots_that_begin_with_each_other_run_in_order(options: dict[str, object], words: str) -> None:
    backfill = Backfill(id="x", deployment="d", first="2021", last="2022", every="year", **options)  # type: ignore[arg-type]
    (first, _) = backfill.partitions()
    values = {"name": "x", "dataset": {"name": "synthetic"}, "model": {"name": "gcn"}}
    cold, warm = (
        build_recipe({**values, "snapshot": {"as_of": "2021", "warm_start": warm_start}})
        for warm_start in (False, True)
    )
    check_order(backfill, first, cold)
    check_order(backfill.model_copy(update={"reverse": False, "max_active": 1}), first, warm)
    with pytest.raises(RecipeError, match=f"{words}.*snapshot.warm_start=false"):
        check_order(backfill, first, warm)


HOUR = 3_600_000


def test_writes_that_lie_close_together_are_one() -> None:
    assert settled([0, 1000, 2 * HOUR, 5 * HOUR, 5 * HOUR + 1, 5 * HOUR + 1001]) == (
        "1970-01-01T00:00:01+00:00",
        "1970-01-01T02:00:00+00:00",
        "1970-01-01T05:00:01+00:00",
    )


@pytest.fixture
def nightly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    OPENED.clear()
    write_delta(tmp_path / "nodes", [("2025-01-10", {"id": [1, 2], "kind": ["a", "b"]})])
    write_delta(tmp_path / "edges", [("2025-01-10T00:20:00", {"src": [1], "dst": [2]})])
    append_delta(tmp_path / "edges", "2025-02-10", {"src": [2], "dst": [1]})
    append_delta(tmp_path / "edges", "2025-03-10", {"src": [2], "dst": [1]})
    dataset = {
        "name": "tables",
        "nodes": {"files": f"delta:{tmp_path}/nodes", "label": "kind"},
        "edges": {"files": f"delta:{tmp_path}/edges"},
    }
    recipe = tmp_path / "lake.yaml"
    recipe.write_text(yaml.safe_dump({"name": "lake", "dataset": dataset, "model": {"name": "gcn"}}))
    deployment = SimpleNamespace(parameters={"recipe": str(recipe), "snapshot": "scheduled"})
    monkeypatch.setattr(actions, "find_deployment", lambda client, name, **options: deployment)
    return recipe


def test_a_partition_for_each_version(nightly: Path) -> None:
    def partitions(**options: Any) -> list[str | None]:
        asked = Backfill(id="x", deployment="nightly", every="version", **options)
        asked.partitions()  # refuses nothing before the tables are known
        return [one.snapshot for one in over_versions(None, asked).partitions()]

    months = [f"2025-{month}-10T00:{minute}:00+00:00" for month, minute in (("01", 20), ("02", "00"), ("03", "00"))]
    assert partitions() == months
    assert partitions(reverse=True) == months[::-1]
    assert partitions(first="2025-02", last="2025-02") == months[1:2]
    recipe = actions.partition_recipe(
        SimpleNamespace(parameters={"recipe": str(nightly)}),
        over_versions(None, Backfill(id="x", deployment="nightly", every="version")).partitions()[0],
    )
    assert recipe.version_moment == months[0]
    with pytest.raises(RecipeError, match="no version in that time"):
        partitions(first="2024", last="2024")


def test_they_begin_when_every_table_is_there(nightly: Path) -> None:
    set_moment(nightly.parent / "edges", 0, "2024-11-10")  # the nodes came two months later
    partitions = over_versions(None, Backfill(id="x", deployment="nightly", every="version")).partitions()
    assert [one.snapshot for one in partitions] == [f"2025-{month}-10T00:00:00+00:00" for month in ("01", "02", "03")]


def test_files_have_no_versions(nightly: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = SimpleNamespace(parameters={"recipe": str(nightly)})
    monkeypatch.setattr(actions, "find_deployment", lambda client, name, **options: deployment)
    nightly.write_text(nightly.read_text().replace("delta:", ""))
    with pytest.raises(RecipeError, match="--every version: no table is one that keeps its versions"):
        over_versions(None, Backfill(id="x", deployment="nightly", every="version"))
