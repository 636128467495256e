"""The map of a run's layout: one page to look at, and pictures for papers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from configs.errors import RecipeError
from configs.matching import did_you_mean
from configs.schema import Recipe
from tasks.arrays import Array
from tasks.evaluate.layouts.points_file import AXES, IDS
from tasks.publish.map.page import write_map
from tasks.publish.map.picture import draw_map
from tasks.publish.map.points import Points
from tasks.stage import Parent
from tasks.storage.graph_store import GraphStore

MAPS = ("map.html", "map.png", "map.svg")
_MOST_EDGES = 2_000_000
"""Edges that go into a page, which is to stay below some 15 MB."""
_FIRST = ("label", "prediction", "community", "type", "component", "degree")
"""What colours a map first, by what there is."""


def write_maps(folder: Path, recipe: Recipe, parents: Mapping[str, Parent], warn: Callable[[str], None]) -> list[str]:
    """Write what shows a run's layout, where it has one, into a folder; return the files' names, the page first."""
    evaluate = parents["evaluate"]
    if evaluate.manifest.layout is None:
        return []
    table = pq.read_table(evaluate.folder / evaluate.manifest.layout)
    graph = GraphStore(parents["partition"].folder, parents["partition"].manifest)
    color = "" if recipe.evaluate.layout is None else recipe.evaluate.layout.color or ""
    if color and color not in colors_of(table):  # hours of training shall not end with this
        warn(f"evaluate.layout.color: {no_color(color, table)}")
        color = ""
    are_nodes = graph.manifest.task != "graph" and table.num_rows == graph.manifest.num_nodes
    points = map_points(table, title(recipe), edges_of(graph) if are_nodes else None, color)
    for name in MAPS:
        write_picture(points, folder / name)
    return list(MAPS)


def write_picture(points: Points, path: Path) -> None:
    """Write what shows points, by the file's ending: `.html`, a page; `.png` and `.svg`, pictures without edges."""
    if path.suffix == ".html":
        write_map(points, path)
    else:
        draw_map(replace(points, edges=None), path)


def title(recipe: Recipe) -> str:
    """Return what stands above a map."""
    moment = "" if recipe.snapshot.as_of is None else f" as of {recipe.snapshot.as_of}"
    return f"{recipe.name}{moment}"


def colors_of(table: pa.Table) -> list[str]:
    """Return the columns that can colour a map of points: all but ids and coordinates."""
    return [name for name in table.column_names if name not in (*AXES, *IDS)]


def no_color(color: str, table: pa.Table) -> str:
    """Return what is to be said where no column of points is called so, or it cannot colour a map."""
    columns = colors_of(table)
    there = f"it can be coloured by {', '.join(columns)}" if columns else "there is none to colour it by: leave it out"
    return f"no column {color!r}{did_you_mean(color, columns)} for the map's colours; {there}"


def map_points(table: pa.Table, title: str, edges: Array | None = None, color: str = "") -> Points:
    """Return what a map shows of a table as `points_file.py` describes it; `color`: the column that colours first.

    Raises RecipeError: there is no such column.
    """
    axes = [name for name in AXES if name in table.column_names]
    ids = table.column("id").to_pylist()
    columns: dict[str, Any] = {name: table.column(name).combine_chunks() for name in colors_of(table)}
    if color and color not in columns:
        raise RecipeError(no_color(color, table))
    coordinates = np.column_stack([np.asarray(table.column(name)) for name in axes])
    color = color or next((name for name in _FIRST if name in columns), "")
    return Points(title=title, coordinates=coordinates, ids=ids, columns=columns, edges=edges, color=color)


def edges_of(graph: GraphStore) -> Array | None:
    """Return the edges of a graph, each once, as rows of its nodes (M, 2); None: too many for a page."""
    if graph.manifest.num_edges > _MOST_EDGES * (2 if graph.manifest.symmetric else 1):
        return None
    targets = np.repeat(np.arange(graph.manifest.num_nodes), np.diff(graph["csc_indptr"]))
    sources = np.asarray(graph["csc_indices"])
    if graph.manifest.symmetric:
        once = sources < targets
        sources, targets = sources[once], targets[once]
    return np.column_stack([sources, targets])
