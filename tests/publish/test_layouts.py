"""Layouts from tables to a published map: whose points they are, what colours them, how nights follow each other."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from configs.errors import DataError, RecipeError
from configs.load import build_recipe, dump_recipe
from configs.schema import Recipe
from tasks.kinds.points import told, type_names, write_points
from tasks.publish.map.columns import MAX_CATEGORIES
from tasks.publish.map.of_run import cannot_color, edges_of, first_color, map_points, write_maps
from tasks.stage import Parent
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home
from tasks.storage.ids import IdMap
from tasks.train.job import BEST, Job, WarmStart
from tasks.train.state.checkpoint import load_model
from tests.publish.line import Line, customers, in_this_process, write_customers
from tests.train.test_tables import train

SMALL = {"samples": 200_000, "threads": 1}


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    in_this_process(monkeypatch)


def layout_recipe(folder: Path, *overrides: str, **sections: Any) -> Recipe:
    """A layout of the customers: what they are and whom they know, nothing held out."""
    plain = dump_recipe(customers(folder))
    dataset = {**plain["dataset"], "task": "layout"}
    del plain["train"], plain["evaluate"]
    return build_recipe(
        {**plain, "name": "people", "dataset": dataset, "model": "largevis", "train": SMALL, **sections}, overrides
    )


def points_of(parents: dict[str, Parent]) -> pa.Table:
    evaluate = parents["evaluate"]
    return pq.read_table(evaluate.folder / evaluate.manifest.layout)


def test_a_layout_from_tables_to_its_map(tmp_path: Path, tracked_home: Home) -> None:
    write_customers(tmp_path)
    line = Line(tracked_home)
    parents = line.run(layout_recipe(tmp_path))
    points = points_of(parents)
    assert points.column_names[:3] == ["id", "x", "y"]
    assert {"label", "degree", "time"} <= set(points.column_names)
    assert sorted(points.column("id").to_pylist()) == sorted(f"c{i}" for i in range(600))
    wanted = pq.read_table(tmp_path / "customers.parquet")
    kinds = dict(zip(wanted["id"].to_pylist(), wanted["kind"].to_pylist(), strict=True))
    assert dict(zip(points["id"].to_pylist(), points["label"].to_pylist(), strict=True)) == kinds
    evaluation = parents["evaluate"].manifest
    assert evaluation.metric == "graph_neighbors_kept"
    assert evaluation.metrics["all"]["graph_neighbors_kept"] > 0.1
    publish = parents["publish"]
    assert publish.manifest.champion
    assert "map.html" in publish.manifest.maps
    for name in publish.manifest.maps:
        assert (publish.folder / name).stat().st_size > 1000


def test_a_newer_layout_takes_over_and_an_older_does_not(tmp_path: Path, tracked_home: Home) -> None:
    write_customers(tmp_path)
    line = Line(tracked_home)
    found = {}
    for year in (2024, 2025, 2023):
        found[year] = line.run(layout_recipe(tmp_path, f"snapshot.as_of={year}"))["publish"].manifest
    assert [found[year].champion for year in (2024, 2025, 2023)] == [True, True, False]
    assert found[2025].gate.reason.startswith("the newest layout")
    assert "of newer data (as of 2025" in found[2023].gate.reason


def test_a_nightly_layout_does_not_jump(tmp_path: Path, tracked_home: Home) -> None:
    write_customers(tmp_path)
    line = Line(tracked_home)
    recipes = {year: layout_recipe(tmp_path, f"snapshot.as_of={year}") for year in (2024, 2025)}
    parts = {year: line.run(one, until="partition") for year, one in recipes.items()}
    before, places = trained(recipes[2024], parts[2024], tmp_path / "then")
    earlier = WarmStart("2024", "key", places, parts[2024]["partition"].folder, *[parts[2024]["ingest"].folder] * 2)
    cold, _ = trained(recipes[2025], parts[2025], tmp_path / "cold")
    warm, _ = trained(recipes[2025], parts[2025], tmp_path / "warm", earlier)
    assert moved(before, warm) < 0.5 < 0.7 < moved(before, cold)
    assert len(warm) > len(before)


def trained(
    recipe: Recipe, parts: dict[str, Parent], work: Path, warm: WarmStart | None = None
) -> tuple[dict[str, Any], Path]:
    """Train a layout; return its points by id, and where its weights are."""
    work.mkdir()
    graph = parts["partition"]
    train(Job.make(recipe, graph.folder, graph.manifest.digest, work, warm))
    ids = IdMap(GraphStore.open(graph.folder), DatasetStore.open(parts["ingest"].folder))
    table = load_model(work / BEST).table
    return dict(zip(ids.lookup(np.arange(len(table))).to_pylist(), table.numpy(), strict=True)), work / BEST


def moved(before: dict[str, Any], after: dict[str, Any]) -> float:
    """Median distance that points moved, in the layout's own size."""
    gaps = [np.linalg.norm(after[name] - place) for name, place in before.items()]
    return float(np.median(gaps) / np.std(list(before.values())))


@pytest.mark.parametrize("task_type", ["multiclass", "regression"])
def test_what_a_model_has_learnt_is_laid_out(tmp_path: Path, tracked_home: Home, task_type: str) -> None:
    write_customers(tmp_path)
    options = ["evaluate.layout.method=umap", "evaluate.layout.neighbors.k=10", "train.epochs=2"]
    parents = Line(tracked_home).run(customers(tmp_path, *options, task_type=task_type), until="evaluate")
    points = points_of(parents)
    expected = {"label", "split", "prediction", "error" if task_type == "regression" else "result"}
    assert expected <= set(points.column_names)
    if task_type == "multiclass":
        same = np.array(points["label"].to_pylist()) == np.array(points["prediction"].to_pylist())
        assert (np.array(points["result"].to_pylist()) == np.where(same, "right", "wrong")).all()
    graph = GraphStore(parents["partition"].folder, parents["partition"].manifest)
    edges = edges_of(graph)
    assert (edges[:, 0] < edges[:, 1]).all()
    assert len(edges) == graph.manifest.num_edges // 2


def test_a_map_is_coloured_by_what_there_is() -> None:
    table = pa.table({"id": [1, 2], "x": [0.0, 1.0], "y": [0.0, 1.0], "degree": [3, 4], "kind": ["a", "b"]})
    assert map_points(table, "demo").color == "degree"
    assert map_points(table, "demo", color="kind").color == "kind"
    for color, message in (
        ("kinds", r"--color: no column 'kinds' \(did you mean 'kind'\?\); .* coloured by degree, kind$"),
        ("x", "no column 'x'"),
        ("id", "no column 'id'"),
    ):
        with pytest.raises(RecipeError, match=message):
            map_points(table, "demo", color=color)


def test_a_column_of_too_many_texts_cannot_colour() -> None:
    columns = {"title": pa.array(map(str, range(MAX_CATEGORIES + 1))), "price": pa.array(range(MAX_CATEGORIES + 1))}
    assert not cannot_color(columns, "price")
    assert cannot_color(columns, "title") == (
        "'title' has over 65,534 different values that are no numbers; the map can be coloured by price"
    )


@pytest.mark.parametrize(
    ("columns", "first"),
    [
        ({"degree": [1, 2] * 5, "country": ["DE", "FR"] * 5, "label": ["1", "2"] * 5}, "label"),
        ({"degree": [1, 2] * 5, "name": [*"abcdefghij"], "country": ["DE", None] * 4 + ["FR"] * 2}, "country"),
        ({"degree": [1, 2] * 5, "component": ["0"] * 10, "country": ["DE"] * 10}, "degree"),
        ({"degree": [1, 2] * 5, "component": ["0"] * 5 + ["1"] * 5, "split": ["train", "test"] * 5}, "component"),
        ({"degree": [1, 2] * 50, "component": ["0"] * 99 + ["1"]}, "degree"),
        ({"name": [*"abcdefghij"]}, ""),
    ],
)
def test_what_tells_points_apart_colours_a_map_first(columns: dict[str, list[Any]], first: str) -> None:
    assert first_color({name: pa.array(values) for name, values in columns.items()}) == first


def test_types_are_told_where_there_are_several() -> None:
    found = type_names(("shop", "user"), np.array([1, 0, 1]))
    assert found.to_pylist() == ["user", "shop", "user"]
    assert type_names(("shop", "user"), np.array([1, 1])) is None


def test_texts_of_dates_are_dates_and_empty_ones_missing() -> None:
    days = told(pa.array(["2024-01-31", "", "2023-12-01 12:30"]))
    assert days.to_pylist() == [datetime(2024, 1, 31), None, datetime(2023, 12, 1, 12, 30)]
    assert told(pa.array(["2024-01-31T00:00:00+01:00"])).to_pylist() == [datetime(2024, 1, 30, 23, tzinfo=UTC)]
    assert told(pa.array(["2024-01-31", "", "soon"])).to_pylist() == ["2024-01-31", None, "soon"]
    assert told(pa.array(["2024", "2023"])).to_pylist() == ["2024", "2023"]
    assert told(pa.array(["", ""])).to_pylist() == [None, None]
    assert told(pa.array([2024, 2023])).to_pylist() == [2024, 2023]


def test_columns_called_as_ours_are_kept(tmp_path: Path) -> None:
    columns = {name: pa.array([name, "b"]) for name in ("id", "x", "x_", "z", "kind")}
    write_points(tmp_path / "p.parquet", np.array([[1, 2], [3, 4]], np.float32), columns)
    table = pq.read_table(tmp_path / "p.parquet")
    assert table.column_names == ["id", "x", "y", "x_", "kind", "x__", "z_"]
    assert table["x__"].to_pylist() == ["x", "b"]
    points = map_points(table, "p")
    assert points.coordinates.tolist() == [[1, 2], [3, 4]]
    assert list(points.columns) == ["x_", "kind", "x__", "z_"]


def test_a_run_ends_whatever_its_map_is_coloured_by(tmp_path: Path, home: Home) -> None:
    write_customers(tmp_path)
    recipe = layout_recipe(tmp_path, "evaluate.layout.color=x")
    parents, told = Line(home).run(recipe, until="evaluate"), []
    assert write_maps(tmp_path, recipe, parents, told.append) == ["map.html", "map.png", "map.svg"]
    columns = "label, component, time, degree"
    assert told == [f"evaluate.layout.color: no column 'x'; the map can be coloured by {columns}"]


def test_an_evaluation_stands_without_a_map(tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: Any) -> None:
        raise DataError("vectors: the largest number is 1e+30")

    monkeypatch.setattr("tasks.evaluate.model_layout.layout_of_vectors", refuses)
    write_customers(tmp_path)
    options = ["evaluate.layout.method=umap", "train.epochs=1"]
    evaluation = Line(home).run(customers(tmp_path, *options), until="evaluate")["evaluate"].manifest
    assert evaluation.layout is None
    assert evaluation.metrics["test"]
    assert "evaluate.layout: there is no map: vectors: the largest number is 1e+30" in evaluation.report["notes"]
