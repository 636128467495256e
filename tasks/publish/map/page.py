"""Write a map: coordinates, ids and columns as one HTML file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tasks.publish.map.columns import pack_column, packed, packed_ids, packed_text, quantized

HERE = Path(__file__).parent
SCRIPTS = ("columns.js", "legend.js", "table.js", "view.js", "map.js")


@dataclass(frozen=True)
class Points:
    """What a map shows.

    `coordinates` (N, 2) or (N, 3) numbers; `ids` N, shown and searched as text; `columns` by name, N values each:
    texts, truths, categories, numbers or datetimes; `edges` (M, 2) rows of the points that an edge joins; `color` the
    column that colours first.
    """

    title: str
    coordinates: np.ndarray[Any, Any]
    ids: Sequence[Any]
    columns: Mapping[str, Any] = field(default_factory=dict)
    edges: np.ndarray[Any, Any] | None = None
    color: str = ""


def write_map(points: Points, path: Path) -> int:
    """Write the page to `path` and return its size in bytes; nothing is left there when it fails.

    Raises ValueError where lengths differ, a coordinate is not finite, an edge's point is not there, `color` is no
    column, or the folder is missing.
    """
    if not path.parent.is_dir():
        raise ValueError(f"{path}: there is no folder {path.parent} to write the map to: make it first")
    page = render(points).encode("utf-8", "replace")
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_bytes(page)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return len(page)


def render(points: Points) -> str:
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


def _packed(points: Points) -> dict[str, Any]:
    steps_ND, corner, step = quantized(points.coordinates)
    count = len(steps_ND)
    for name, values in [("ids", points.ids), *points.columns.items()]:
        if len(values) != count:
            raise ValueError(f"the map has {count} points and {len(values)} values of {name}: give one a point")
    columns = [pack_column(name, values) for name, values in points.columns.items()]
    colors = [column["name"] for column in columns if column["kind"] != "text"]
    if points.color and points.color not in colors:
        raise ValueError(f"no column {points.color} to colour by; there are: {', '.join(colors) or 'none'}")
    return {
        "count": count,
        "corner": corner,
        "step": step,
        "axes": [packed(axis_N) for axis_N in steps_ND.T],
        "ids": packed_ids([str(identity) for identity in points.ids]),
        "columns": columns,
        "edges": _edges(points.edges, count),
        "color": points.color or (colors[0] if colors else ""),
    }


def _edges(edges_M2: np.ndarray[Any, Any] | None, count: int) -> dict[str, str] | None:
    """Pack edges by their first end, in half of the pairs' size: how many begin at each point, and where each leads."""
    if edges_M2 is None:
        return None
    edges_M2 = np.asarray(edges_M2)
    if edges_M2.ndim != 2 or edges_M2.shape[1] != 2 or edges_M2.dtype.kind not in "iu":
        raise ValueError(
            f"edges must be whole numbers of shape (edges, 2), these are {edges_M2.dtype} {edges_M2.shape}"
        )
    bad = np.flatnonzero(((edges_M2 < 0) | (edges_M2 >= count)).any(axis=1))
    if len(bad):
        raise ValueError(f"edge {bad[0]} joins {edges_M2[bad[0]].tolist()}, the map has points 0 to {count - 1}")
    order = np.lexsort((edges_M2[:, 1], edges_M2[:, 0]))
    starts = np.bincount(edges_M2[:, 0], minlength=count)
    return {"starts": packed(starts.astype(np.uint32)), "ends": packed(edges_M2[order, 1].astype(np.uint32))}
