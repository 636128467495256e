"""The points of a layout as one Parquet file: what people read, and what maps are drawn from.

Columns: the users' `id` (and `row`, where ids repeat), `x`, `y` and in three dimensions `z`, float32; others colour a
map, see `columns.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from tasks.arrays import Array
from tasks.storage.outputs.parquet_output import ParquetOutput

LAYOUT_FILE = "layout.parquet"
AXES = ("x", "y", "z")
IDS = ("id", "row")


def renamed(columns: Mapping[str, pa.Array], taken: Collection[str]) -> dict[str, pa.Array]:
    """Return columns, those whose names are taken under others with `_` behind: none is lost, or taken for another."""
    found = {name: column for name, column in columns.items() if name not in taken}
    for name, column in columns.items():
        new = name
        while new in taken or (new != name and new in columns):
            new += "_"
        found[new] = column
    return found


def write_points(path: Path, points: Array, columns: Mapping[str, pa.Array]) -> None:
    """Write coordinates, float32 (n, 2) or (n, 3), and columns (n,), those of ids among them."""
    axes = {name: pa.array(np.ascontiguousarray(points[:, axis])) for axis, name in enumerate(AXES[: points.shape[1]])}
    ids = {name: columns[name] for name in IDS if name in columns}
    others = renamed({name: column for name, column in columns.items() if name not in ids}, AXES)
    with ParquetOutput(path) as file:
        file.write(pa.table({**ids, **axes, **others}))
