"""Nodes of a graph that has grown, placed in the layout that it had."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from configs.errors import DataError, RecipeError
from tasks.apply.job import MappedData
from tasks.apply.placing import PLACED, end_to_end, write_placed
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home
from tasks.storage.ids import IdMap
from tests.publish.line import Line, customers, write_customers


@pytest.fixture
def snapshots(tmp_path: Path, home: Home) -> dict[int, Any]:
    """The customers at two moments, as far as their graphs."""
    write_customers(tmp_path)
    line = Line(home)
    return {year: line.run(customers(tmp_path, f"snapshot.as_of={year}"), until="partition") for year in (2024, 2025)}


def opened(parts: Any) -> Any:
    store, dataset = GraphStore.open(parts["partition"].folder), DatasetStore.open(parts["ingest"].folder)
    return SimpleNamespace(store=store, dataset=dataset, ids=IdMap(store, dataset))


def test_known_nodes_stay_and_new_ones_lie_among_their_neighbors(snapshots: dict[int, Any], tmp_path: Path) -> None:
    then, now = opened(snapshots[2024]), opened(snapshots[2025])
    points = np.random.default_rng(0).standard_normal((then.store.manifest.num_nodes, 2)).astype(np.float32)
    model: Any = SimpleNamespace(table=points)
    mapped = MappedData(snapshots[2024]["partition"].folder, snapshots[2024]["ingest"].folder)
    file, rows = write_placed(now, model, mapped, tmp_path, 0)
    table = pq.read_table(tmp_path / file)
    assert rows == table.num_rows == now.store.manifest.num_nodes
    places = dict(zip(then.ids.lookup(np.arange(len(points))).to_pylist(), points.tolist(), strict=True))
    found = dict(
        zip(table["id"].to_pylist(), zip(table["x"].to_pylist(), table["y"].to_pylist(), strict=True), strict=True)
    )
    told = dict(zip(table["id"].to_pylist(), table[PLACED].to_pylist(), strict=True))
    assert {name for name, when in told.items() if when == "before"} == set(places)
    assert all(found[name] == tuple(place) for name, place in places.items())
    assert np.isfinite(list(found.values())).all()


def test_columns_that_are_of_two_types_become_one() -> None:
    """A column of dates with a word in it tomorrow, amounts where there were whole numbers."""
    day = datetime(2024, 1, 31)
    before = pa.table({"id": [1], "day": [day], "stars": [5], "big": pa.array([2**63], pa.uint64()), "old": ["a"]})
    after = pa.table({"id": [2], "day": ["soon"], "stars": [4.5], "big": [-1], "label": ["b"]})
    assert end_to_end([before, after]).to_pylist() == [
        {"id": 1, "day": "2024-01-31 00:00:00.000000", "stars": 5.0, "big": float(2**63), "old": "a", "label": None},
        {"id": 2, "day": "soon", "stars": 4.5, "big": -1.0, "old": None, "label": "b"},
    ]
    assert end_to_end([before, before.set_column(0, "id", [["x"]])])["id"].to_pylist() == ["1", "x"]
    empty = before.set_column(1, "day", [pa.nulls(1)])
    assert end_to_end([before, empty])["day"].to_pylist() == [day, None]


def test_another_graph_is_refused(snapshots: dict[int, Any], tmp_path: Path) -> None:
    now = opened(snapshots[2025])
    now.ids = SimpleNamespace(lookup=lambda nodes: IdMap(now.store, None).lookup(nodes))  # numbers, not c1, c2, ...
    mapped = MappedData(snapshots[2024]["partition"].folder, snapshots[2024]["ingest"].folder)
    model: Any = SimpleNamespace(table=np.zeros((len(opened(snapshots[2024]).store["node_ids"]), 2), np.float32))
    with pytest.raises(DataError, match="none of its nodes is in the layout"):
        write_placed(now, model, mapped, tmp_path, 0)


def test_what_the_layout_was_made_of_has_to_be_there(home: Home) -> None:
    published: Any = SimpleNamespace(lineage={"partition": {"key": "x", "digest": "y"}}, name="people@1")
    with pytest.raises(RecipeError, match="what people@1 is a layout of, and this home no longer has it"):
        MappedData.of(published, home)
