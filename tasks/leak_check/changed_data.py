"""A data set in which everything from a moment on is something else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.parquet as pq

from tasks.arrays import Array
from tasks.stage import Parent
from tasks.storage.artifacts import MANIFEST_NAME, describe_files, link_or_copy, write_atomic
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.file_names import joined_name
from tasks.storage.manifests import DatasetManifest

_ENDS = ("src", "dst")
_KEPT = frozenset({"node_id", "time", "src"})
_FACTOR = 1000.0


def change_from(
    data: Parent, moment: int, folder: Path, known: Mapping[str, Array] | None = None, seed: int = 0
) -> Parent:
    """Write a copy of an ingest artifact in which rows of `moment` and later have other cells.

    Numbers and categories get other values, labels other labels, and edges other targets, those of each other. How many
    rows there are, their times, which entity a task is of and the splits stay, so that seeds are the same. Of rows that
    are predicted by a column of their own all labels change, also earlier ones: no input has any.

    Args:
        data: what ingest made of tables with times.
        moment: in the data's unit.
        folder: a new folder; files in which nothing changes are linked.
        known: by node type, rows of the very moment, int64 (n,), that keep their cells and keys: see `known_rows`.
        seed: which other values.
    """
    manifest: DatasetManifest = data.manifest
    random = np.random.default_rng([seed, moment % (1 << 63)])
    folder.mkdir(parents=True)
    tasks_of = {
        f"edges/{e.name}" for e in manifest.edge_types if e.source == manifest.target_type and e.relation == "of"
    }
    known, foreign_keys = known or {}, {f"edges/{name}" for name in manifest.foreign_keys}
    kept_rows = {f"nodes/{kind}": ("node_id", rows) for kind, rows in known.items()}
    for edges in manifest.edge_types:
        if f"edges/{edges.name}" in foreign_keys and edges.source in known:
            kept_rows[f"edges/{edges.name}"] = ("src", known[edges.source])
    labelled = None if tasks_of else f"nodes/{manifest.target_type}"
    for name, table in manifest.tables.items():
        changes = name.startswith(("nodes/", "edges/")) and "time" in table.columns and name not in tasks_of
        for shard in table.shards:
            source, target = data.folder / shard, folder / shard
            target.parent.mkdir(parents=True, exist_ok=True)
            found = pq.read_table(source) if changes else None
            if found is not None:
                late = np.asarray(found["time"]) >= moment
                if name in kept_rows:
                    column, rows = kept_rows[name]
                    late &= ~np.isin(np.asarray(found[column]), rows)
                if name == labelled:
                    found = _changed(found, np.arange(len(found)), random, ["label"])
                if late.any():
                    others = [column for column in found.column_names if name != labelled or column != "label"]
                    found = _changed(found, np.flatnonzero(late), random, others)
                if late.any() or name == labelled:
                    pq.write_table(found, target)
                    continue
            link_or_copy(source, target)
    key = joined_name(("changed", manifest.key, str(moment)))
    made = manifest.model_copy(update={"files": describe_files(folder), "key": key})
    write_atomic(folder / MANIFEST_NAME, made.model_dump_json().encode())
    return Parent(made, folder)


def known_rows(data: Parent, moment: int, kind: str, rows: Array) -> dict[str, Array]:
    """Return by node type the rows of a moment that rows of then may see: themselves and what they name, as far.

    A row is known together with its keys, and so is what they lead to, where that is of the same moment.

    Args:
        data: what ingest made.
        moment: in the data's unit.
        kind: node type of the rows that are asked about.
        rows: int64 (n,) of that type.
    """
    store = DatasetStore(data.folder, data.manifest)
    found: dict[str, set[int]] = {kind: _of_moment(store, kind, rows, moment)}
    fresh = dict(found)
    while fresh:
        reached: dict[str, set[int]] = {}
        for edges in data.manifest.edge_types:
            if edges.name in data.manifest.foreign_keys and edges.source in fresh:
                source, target = (store.column(f"edges/{edges.name}", end) for end in ("src", "dst"))
                named = target[np.isin(source, list(fresh[edges.source]))]
                reached.setdefault(edges.target, set()).update(_of_moment(store, edges.target, named, moment))
        fresh = {one: more for one, rows in reached.items() if (more := rows - found.get(one, set()))}
        for one, more in fresh.items():
            found[one] = found.get(one, set()) | more
    return {one: np.array(sorted(rows), np.int64) for one, rows in found.items()}


def _of_moment(store: DatasetStore, kind: str, rows: Array, moment: int) -> set[int]:
    """Return which rows of a type are of a moment."""
    if "time" not in store.manifest.tables[f"nodes/{kind}"].columns:
        return set()
    return {int(row) for row in rows[store.column(f"nodes/{kind}", "time")[rows] == moment]}


def _changed(table: pa.Table, late: Array, random: np.random.Generator, columns: Sequence[str]) -> pa.Table:
    """Return a table with other values in the rows `late`, int64 (n,), of some columns, but never of keys and times."""
    for place, name in enumerate(table.column_names):
        if name in _KEPT or name not in columns:
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
