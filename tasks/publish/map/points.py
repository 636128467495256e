"""What a map shows, and what of it no map can show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tasks.publish.map.columns import MapColumn, read_column


@dataclass(frozen=True)
class MapPoints:
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


def check_points(points: MapPoints, count: int) -> None:
    """Raise ValueError where the points' parts do not fit `count` coordinates."""
    for name, values in [("ids", points.ids), *points.columns.items()]:
        if len(values) != count:
            raise ValueError(f"the map has {count} points and {len(values)} values of {name}: give one a point")
    if points.edges is None:
        return
    edges_M2 = np.asarray(points.edges)
    if edges_M2.ndim != 2 or edges_M2.shape[1] != 2 or edges_M2.dtype.kind not in "iu":
        raise ValueError(
            f"edges must be whole numbers of shape (edges, 2), these are {edges_M2.dtype} {edges_M2.shape}"
        )
    bad = np.flatnonzero(((edges_M2 < 0) | (edges_M2 >= count)).any(axis=1))
    if len(bad):
        raise ValueError(f"edge {bad[0]} joins {edges_M2[bad[0]].tolist()}, the map has points 0 to {count - 1}")


def check_folder(path: Path) -> None:
    """Raise ValueError where the file's folder is missing."""
    if not path.parent.is_dir():
        raise ValueError(f"{path}: there is no folder {path.parent} to write the map to: make it first")


def coloring(columns: Mapping[str, Any], color: str) -> MapColumn | None:
    """Return the column `color`, else the first that can colour; ValueError where that one cannot."""
    read = [read_column(name, values) for name, values in columns.items()]
    able = [column for column in read if column.kind != "text"]
    for column in able:
        if not color or column.name == color:
            return column
    if not color:
        return None
    raise ValueError(f"no column {color} to colour by; there are: {', '.join(one.name for one in able) or 'none'}")
