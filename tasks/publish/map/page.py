"""Write a map: coordinates, ids and columns as one HTML file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from tasks.publish.map.colors import CATEGORIES, INK, NUMBERS, OTHER, PAPER
from tasks.publish.map.columns import (
    MapPoints,
    check_folder,
    check_points,
    pack_column,
    packed,
    packed_ids,
    packed_text,
    quantized,
)
from tasks.storage.artifacts import write_atomic

__all__ = ["MapPoints", "render", "write_map"]

HERE = Path(__file__).parent
SCRIPTS = ("columns.js", "legend.js", "table.js", "view.js", "map.js")


def write_map(points: MapPoints, path: Path) -> int:
    """Write the page to `path` and return its size in bytes; nothing is left there when it fails.

    Raises ValueError where lengths differ, a coordinate is not finite, an edge's point is not there, `color` is no
    column, or the folder is missing.
    """
    check_folder(path)
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
    check_points(points, count)
    columns = [pack_column(name, values) for name, values in points.columns.items()]
    colors, edges = [column["name"] for column in columns if column["kind"] != "text"], None
    if points.edges is not None:  # by their first end, in half of the pairs' size: how many begin at each, and the ends
        edges_M2 = np.asarray(points.edges)
        order = np.lexsort((edges_M2[:, 1], edges_M2[:, 0]))
        starts = np.bincount(edges_M2[:, 0], minlength=count)
        ends = edges_M2[order, 1].astype(np.uint32)
        edges = {"starts": packed(starts.astype(np.uint32)), "ends": packed(ends)}
    if points.color and points.color not in colors:
        raise ValueError(f"no column {points.color} to colour by; there are: {', '.join(colors) or 'none'}")
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
