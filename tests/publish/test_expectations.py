"""Data beside what the champion was trained on: rows, age of the newest row, drift; said, or the end of the run."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from configs.errors import DataError, RecipeError
from configs.load import build_recipe, dump_recipe
from configs.schema import Recipe
from configs.values.expectations import ExpectConfig, age_seconds, bounds_of
from flows.pipeline.watched_data import DataWatch
from tasks.publish import profile
from tasks.publish.expectations import Reference, champion_of, check_arrival, check_drift
from tasks.stage import Parent
from tasks.storage.home import Home
from tests.publish.line import Line, customers, in_this_process, write_customers


class Heard:
    """What was said and warned of."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.warned: list[str] = []

    def arrival(self, recipe: Recipe, ingest: Parent, reference: Reference | None) -> Heard:
        check_arrival(recipe, ingest, reference, self.said.append, self.warned.append)
        return self

    def drift(self, recipe: Recipe, parents: dict[str, Parent], reference: Reference | None) -> Heard:
        check_drift(recipe, parents, reference, self.said.append, self.warned.append)
        return self


@pytest.fixture
def line(home: Home, monkeypatch: pytest.MonkeyPatch) -> Line:
    in_this_process(monkeypatch)
    return Line(home)


def cut(folder: Path, source: Path, share: float) -> None:
    """The first share of the customers, and who knows whom of these."""
    folder.mkdir()
    rows = pq.read_table(source / "customers.parquet")
    rows = rows.slice(0, int(share * len(rows)))
    pq.write_table(rows, folder / "customers.parquet")
    edges, there = pq.read_table(source / "knows.parquet"), rows["id"]
    mask = np.logical_and(*(np.isin(edges[end].to_numpy(), there.to_numpy()) for end in ("src", "dst")))
    pq.write_table(edges.filter(pa.array(mask)), folder / "knows.parquet")


def expecting(recipe: Recipe, **expect: Any) -> Recipe:
    return build_recipe({**dump_recipe(recipe), "expect": expect})


def test_data_that_was_cut_is_warned_of_or_ends_the_run(tmp_path: Path, line: Line) -> None:
    write_customers(tmp_path / "whole")
    cut(tmp_path / "third", tmp_path / "whole", 0.33)
    whole, third = customers(tmp_path / "whole"), customers(tmp_path / "third")
    assert champion_of(whole, line.home) is None, "a first run has no champion"
    line.run(whole)
    reference = champion_of(whole, line.home)
    assert reference is not None
    parents = line.run(third, until="partition")
    ingest = parents["ingest"]

    found = Heard().arrival(third, ingest, reference)
    assert found.warned[0] == "node has 198 rows, 33.0 % of the 600 that customers@1 was trained on"
    assert found.warned[1].startswith("node__to__node has ")
    assert found.said[0].startswith("newest row: node 20")
    for rows in ("90 %", ">= 90%", {"node": "90 %"}, {"node__to__node": ">= 50 %, <= 200 %"}, 300, ">= 5,000"):
        with pytest.raises(DataError, match=r"has \d[\d,]* rows, .* the recipe expects .* \(expect\.rows\)"):
            Heard().arrival(expecting(third, rows=rows), ingest, reference)
    for allowed in ({"node": "30 %"}, 100):
        Heard().arrival(expecting(third, rows=allowed), ingest, reference)
    with pytest.raises(RecipeError, match=r"expect\.rows: there is no table 'nod' \(did you mean 'node'\?\)"):
        Heard().arrival(expecting(third, rows={"nod": "90 %"}), ingest, reference)

    found = Heard().drift(third, parents, reference)
    assert found.said[0].startswith("data against that of customers@1: nodes 600 -> 198, ")
    assert found.warned == []
    rows = pq.read_table(tmp_path / "third" / "customers.parquet")
    moved = pa.array([[a + 5, b] for a, b in rows["x"].to_pylist()])
    pq.write_table(rows.set_column(1, "x", moved), tmp_path / "third" / "customers.parquet")
    parents = line.run(third, until="partition")
    found = Heard().drift(third, parents, reference)
    assert "the data is another population than that of customers@1, by stability index: node/x[0] " in found.warned[0]
    with pytest.raises(DataError, match=r"the recipe expects 0\.2 at most \(expect\.drift\)"):
        Heard().drift(expecting(third, drift=0.2), parents, reference)
    assert Heard().drift(expecting(third, drift=50), parents, reference).warned == []


def test_the_champions_own_data_says_nothing(tmp_path: Path, line: Line) -> None:
    write_customers(tmp_path)
    recipe = customers(tmp_path)
    parents = line.run(recipe)
    reference = champion_of(recipe, line.home)
    heard = Heard().arrival(expecting(recipe, rows="100 %", drift=0.01), parents["ingest"], reference)
    heard.drift(expecting(recipe, drift=0.01), parents, reference)
    assert heard.warned == []
    assert len(heard.said) == 1, "how old it is"


def test_without_a_champion_only_numbers_are_held_against_the_data(tmp_path: Path, line: Line) -> None:
    write_customers(tmp_path)
    recipe = customers(tmp_path)
    ingest = line.run(recipe, until="ingest")["ingest"]
    assert Heard().arrival(expecting(recipe, rows="90 %"), ingest, None).warned == []
    said: list[str] = []
    for has_champion in (False, True):  # a backfill has none to compare with, whoever is champion
        watch = DataWatch(line.home, expecting(recipe, rows="90 %"), has_champion=has_champion)
        watch.look("ingest", {"ingest": ingest.manifest.key}, said.append, said.append)
    assert [text for text in said if "no version" in text] == [
        "no version of this model is champion yet: what `expect` says beside one's data holds from then on"
    ]
    with pytest.raises(DataError, match=r"node has 600 rows; the recipe expects 1000"):
        Heard().arrival(expecting(recipe, rows={"node": 1000}), ingest, None)


def test_a_profile_that_cannot_be_read_is_said(tmp_path: Path, line: Line) -> None:
    write_customers(tmp_path / "a")
    write_customers(tmp_path / "b", seed=1)
    ingest = line.run(customers(tmp_path / "b"), until="ingest")["ingest"]
    folder = tmp_path / "model"
    folder.mkdir()
    for content in (None, {"features": {}}, []):  # none; damaged
        if content is not None:
            (folder / profile.FILE_NAME).write_text(json.dumps(content))
        warned = Heard().arrival(customers(tmp_path / "b"), ingest, Reference("customers@1", folder)).warned
        assert any("the profile of customers@1 cannot be read" in text for text in warned)


def test_data_that_has_not_come_is_old(tmp_path: Path, line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    write_customers(tmp_path)
    ingest = line.run(customers(tmp_path), until="ingest")["ingest"]
    day = 86_400
    newest = 1_748_736_000  # 2025-06-01
    monkeypatch.setattr(time, "time", lambda: newest + 3.2 * day)
    recipe = customers(tmp_path)
    assert Heard().arrival(recipe, ingest, None).said == ["newest row: node 2025-06-01, 3 days old"]
    for age in ("4d", {"node": "80h"}):
        Heard().arrival(expecting(recipe, newest=age), ingest, None)
    for age in ("3d", {"node": "76h"}):
        with pytest.raises(DataError, match=r"newest row of node is of 2025-06-01, 3 days old; .* \(expect\.newest\)"):
            Heard().arrival(expecting(recipe, newest=age), ingest, None)
    with pytest.raises(RecipeError, match=r"expect\.newest: node__to__node has no times; there are some in node"):
        Heard().arrival(expecting(recipe, newest={"node__to__node": "1d"}), ingest, None)
    monkeypatch.setattr(time, "time", lambda: newest - 3_700)
    assert Heard().arrival(recipe, ingest, None).said == ["newest row: node 2025-06-01, 1 hour ahead"]


def test_a_snapshots_age_is_by_its_moment(tmp_path: Path, line: Line) -> None:
    write_customers(tmp_path)
    recipe = customers(tmp_path, "snapshot.as_of=2024-06-03")
    ingest = line.run(recipe, until="ingest")["ingest"]
    assert Heard().arrival(recipe, ingest, None).said == ["newest row: node 2024-06-01, 2 days old"]
    with pytest.raises(DataError, match="2 days old"):
        Heard().arrival(expecting(recipe, newest="1d"), ingest, None)


def test_data_without_dates_has_no_age(tmp_path: Path, line: Line) -> None:
    write_customers(tmp_path)
    values = dump_recipe(customers(tmp_path))
    values["dataset"]["nodes"][0]["time"] = None
    recipe = build_recipe(values)
    ingest = line.run(recipe, until="ingest")["ingest"]
    assert Heard().arrival(recipe, ingest, None).said == []
    with pytest.raises(RecipeError, match=r"needs times that are dates .*dataset\.nodes\.time"):
        Heard().arrival(expecting(recipe, newest="1d"), ingest, None)


@pytest.mark.parametrize(
    ("text", "bounds"),
    [
        ("90 %", [(">=", 90, True)]),
        (">= 90%, <= 1,500", [(">=", 90, True), ("<=", 1500, False)]),
        ("1,000,000", [(">=", 1_000_000, False)]),
        ("12", [(">=", 12, False)]),
    ],
)
def test_bounds(text: str, bounds: list[Any]) -> None:
    assert bounds_of(text) == bounds


@pytest.mark.parametrize(
    ("expect", "said"),
    [
        ({"rows": 0.9}, "shares are written as 90 %"),
        ({"rows": "many"}, "is not a number of rows"),
        ({"rows": ">= 110 %, <= 90 %"}, "no number of rows is both"),
        ({"rows": True}, "is not a number of rows"),
        ({"rows": {}}, "no table is named"),
        ({"rows": {"node": None}}, "is not a number of rows"),
        ({"drift": 0}, "greater than 0"),
        ({"newest": 3}, "is not an age"),
        ({"newest": "3y"}, "is not an age"),
        ({"fresh": "3d"}, "unknown key 'fresh'"),
    ],
)
def test_what_nobody_can_expect_is_refused(expect: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ExpectConfig.model_validate(expect)
    assert age_seconds("1.5h") == 5400
