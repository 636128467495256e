"""A data set in which everything from a moment on is something else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.parquet as pq

from tasks.arrays import Array
from tasks.stage import Parent
from tasks.storage.artifacts import MANIFEST_NAME, describe_files, link_or_copy, write_atomic
from tasks.storage.file_names import joined_name
from tasks.storage.manifests import DatasetManifest

_ENDS = ("src", "dst")
_KEPT = frozenset({"node_id", "time", "src"})
_FACTOR = 1000.0


def change_from(data: Parent, moment: int, folder: Path, seed: int = 0) -> Parent:
    """Write a copy of an ingest artifact in which rows of `moment` and later have other cells.

    Numbers and categories get other values, labels other labels, and edges other targets, those of each other. How many
    rows there are, their times, which entity a task is of and the splits stay, so that seeds are the same.

    Args:
        data: what ingest made of tables with times.
        moment: in the data's unit.
        folder: a new folder; files in which nothing changes are linked.
        seed: which other values.
    """
    manifest: DatasetManifest = data.manifest
    random = np.random.default_rng([seed, moment % (1 << 63)])
    folder.mkdir(parents=True)
    tasks_of = {
        f"edges/{e.name}" for e in manifest.edge_types if e.source == manifest.target_type and e.relation == "of"
    }
    for name, table in manifest.tables.items():
        changes = name.startswith(("nodes/", "edges/")) and "time" in table.columns and name not in tasks_of
        for shard in table.shards:
            source, target = data.folder / shard, folder / shard
            target.parent.mkdir(parents=True, exist_ok=True)
            found = pq.read_table(source) if changes else None
            if found is not None:
                late = np.flatnonzero(np.asarray(found["time"]) >= moment)
                if len(late):
                    pq.write_table(_changed(found, late, random), target)
                    continue
            link_or_copy(source, target)
    key = joined_name(("changed", manifest.key, str(moment)))
    made = manifest.model_copy(update={"files": describe_files(folder), "key": key})
    write_atomic(folder / MANIFEST_NAME, made.model_dump_json().encode())
    return Parent(made, folder)


def _changed(table: pa.Table, late: Array, random: np.random.Generator) -> pa.Table:
    """Return a table with other values in the rows `late`, int64 (n,), of all columns but keys and times."""
    for place, name in enumerate(table.column_names):
        if name in _KEPT:
            continue
        column = table[name].combine_chunks()
        is_list = pa.types.is_fixed_size_list(column.type)
        width = column.type.list_size if is_list else 1
        flat = column.flatten() if is_list else column
        rows = (late[:, None] * width + np.arange(width)).reshape(-1)
        changed = _other_values(flat, rows, random, swaps=name in _ENDS)
        if is_list:
            changed = pa.FixedSizeListArray.from_arrays(changed, type=column.type)
        table = table.set_column(place, table.schema.field(place), changed)
    return table


def _other_values(column: pa.Array, rows: Array, random: np.random.Generator, *, swaps: bool) -> pa.Array:
    """Return a column with other values in some rows, int64 (n,); `swaps`: with each other's."""
    if swaps or not pa.types.is_floating(column.type):
        order = np.arange(len(column))
        order[rows] = random.permutation(rows) if swaps else random.integers(len(column), size=len(rows))
        return column.take(pa.array(order))
    values = np.array(compute.fill_null(column, np.nan), np.float64)
    values[rows] = np.nan_to_num(values[rows]) * random.uniform(2, 3, len(rows)) + _FACTOR * random.normal(
        size=len(rows)
    )
    return pa.array(values.astype(column.type.to_pandas_dtype()), column.type)
