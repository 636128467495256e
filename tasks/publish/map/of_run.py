"""The map of a run's layout: one page to look at, and pictures for papers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from configs.errors import RecipeError
from configs.matching import did_you_mean
from configs.schema import Recipe
from tasks.arrays import Array
from tasks.kinds.points import AXES, IDS, OF_EDGES
from tasks.publish.map.colors import CATEGORIES, INK, NUMBERS, OTHER, PAPER
from tasks.publish.map.columns import (
    MAX_CATEGORIES,
    MapPoints,
    pack_column,
    packed,
    packed_ids,
    packed_text,
    quantized,
    read_column,
)
from tasks.publish.map.picture import draw_map
from tasks.stage import Parent
from tasks.storage.artifacts import write_atomic
from tasks.storage.graph_store import GraphStore

HERE = Path(__file__).parent
SCRIPTS = ("columns.js", "legend.js", "table.js", "view.js", "map.js")


def write_map(points: MapPoints, path: Path) -> int:
    """Write the page to `path` and return its size in bytes; nothing is left there when it fails."""
    page = render(points).encode("utf-8", "replace")
    write_atomic(path, page)
    return len(page)


def render(points: MapPoints) -> str:
    """Return the page as text; see `write_map`."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    # Inside a script element only "<" could end it early; JSON has another way to write it.
    data = json.dumps(_packed(points), ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    return environment.get_template("map.jinja").render(
        title=points.title,
        count=len(points.ids),
        deep=np.shape(points.coordinates)[1] == 3,
        style=Markup(_text("map.css")),
        script=Markup("\n".join(_text(name) for name in SCRIPTS)),
        library=packed_text(_text("scatterplot.js")),
        licences=_text("scatterplot.LICENSE.txt"),
        data=Markup(data),
    )


def _text(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def _packed(points: MapPoints) -> dict[str, Any]:
    steps_ND, corner, step = quantized(points.coordinates)
    count = len(steps_ND)
    columns = [pack_column(name, values) for name, values in points.columns.items()]
    colors, edges = [column["name"] for column in columns if column["kind"] != "text"], None
    if points.edges is not None:  # by their first end, in half of the pairs' size: how many begin at each, and the ends
        edges_M2 = np.asarray(points.edges)
        order = np.lexsort((edges_M2[:, 1], edges_M2[:, 0]))
        starts = np.bincount(edges_M2[:, 0], minlength=count)
        ends = edges_M2[order, 1].astype(np.uint32)
        edges = {"starts": packed(starts.astype(np.uint32)), "ends": packed(ends)}
    return {
        "count": count,
        "corner": corner,
        "step": step,
        "axes": [packed(axis_N) for axis_N in steps_ND.T],
        "ids": packed_ids([str(identity) for identity in points.ids]),
        "columns": columns,
        "edges": edges,
        "colors": {"categories": CATEGORIES, "numbers": NUMBERS, "paper": PAPER, "ink": INK, "other": OTHER},
        "color": points.color or (colors[0] if colors else ""),
    }


MAPS = ("map.html", "map.png", "map.svg")
_MOST_EDGES = 2_000_000
"""Edges that go into a page, which is to stay below some 15 MB."""
_FIRST = ("label", "prediction", "type")
"""What colours a map first, by what there is; then the data's own categories, and what edges say."""
_MOST_ON_ONE = 0.9
"""Components of which one holds more points than this share tell nothing apart."""


def write_maps(folder: Path, recipe: Recipe, parents: Mapping[str, Parent], warn: Callable[[str], None]) -> list[str]:
    """Write what shows a run's layout, where it has one, into a folder; return the files' names, the page first."""
    evaluate = parents["evaluate"]
    if evaluate.manifest.layout is None:
        return []
    table = pq.read_table(evaluate.folder / evaluate.manifest.layout)
    graph = GraphStore(parents["partition"].folder, parents["partition"].manifest)
    color = "" if recipe.evaluate.layout is None else recipe.evaluate.layout.color or ""
    if color and (trouble := cannot_color(columns_of(table), color)):  # hours of training shall not end with this
        warn(f"evaluate.layout.color: {trouble}")
        color = ""
    are_nodes = not graph.manifest.split_rows.are_graphs and table.num_rows == graph.manifest.num_nodes
    moment = "" if recipe.snapshot.as_of is None else f" as of {recipe.snapshot.as_of}"
    points = map_points(table, f"{recipe.name}{moment}", edges_of(graph) if are_nodes else None, color)
    for name in MAPS:
        write_picture(points, folder / name)
    return list(MAPS)


def write_picture(points: MapPoints, path: Path) -> None:
    """Write what shows points, by the file's ending: `.html`, a page; `.png` and `.svg`, pictures without edges."""
    (write_map if path.suffix == ".html" else draw_map)(points, path)


def map_points(table: pa.Table, title: str, edges: Array | None = None, color: str = "") -> MapPoints:
    """Return what a map shows of a table as `write_points` writes it; `color`: the column that colours first.

    Raises RecipeError: there is no such column, or it cannot colour.
    """
    axes = [name for name in AXES if name in table.column_names]
    ids = table.column("id").to_pylist()
    columns = columns_of(table)
    if color and (trouble := cannot_color(columns, color)):
        raise RecipeError(f"--color: {trouble}")
    coordinates = np.column_stack([np.asarray(table.column(name)) for name in axes])
    color = color or first_color(columns)
    return MapPoints(title=title, coordinates=coordinates, ids=ids, columns=columns, edges=edges, color=color)


def columns_of(table: pa.Table) -> dict[str, pa.Array]:
    """Return what is known of points, without their ids and coordinates."""
    return {name: table.column(name).combine_chunks() for name in table.column_names if name not in (*AXES, *IDS)}


def cannot_color(columns: Mapping[str, pa.Array], color: str) -> str:
    """Return why a column cannot colour a map; "": it can."""
    if color in columns and read_column(color, columns[color]).kind != "text":
        return ""
    others = [name for name, values in columns.items() if name != color and read_column(name, values).kind != "text"]
    by = f"the map can be coloured by {', '.join(others)}" if others else "nothing else is known of the points"
    if color in columns:
        return f"{color!r} has over {MAX_CATEGORIES:,} different values that are no numbers; {by}"
    return f"no column {color!r}{did_you_mean(color, others)}; {by}"


def first_color(columns: Mapping[str, pa.Array]) -> str:
    """Return the column that tells points best apart at first sight; "": whichever can colour."""
    for name in _FIRST:
        if name in columns:
            return name
    for name, values in columns.items():  # a few groups, each of which has a colour
        if name in (*OF_EDGES, "split", "result") or not pa.types.is_string(values.type):
            continue
        if 2 <= len(values.drop_null().unique()) <= min(len(CATEGORIES), len(values) // 2):
            return name
    components = columns.get("component")
    if components is not None and len(components):
        largest = max(components.value_counts().field("counts").to_pylist())
        if largest <= _MOST_ON_ONE * len(components):
            return "component"
    return "degree" if "degree" in columns else ""


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
