"""Which rows of two states of a database are the same, and which rows of a moment its seeds see all the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from tasks.arrays import Array, offsets
from tasks.ingest.database.configs import DatabaseConfig
from tasks.stage import Parent
from tasks.storage.dataset_store import DatasetStore


def same_ids(before: DatasetStore, after: DatasetStore, config: DatabaseConfig, moment: int) -> Array:
    """Return what each node of `after` is called in `before`, int64 (N,), in preprocess's id space.

    By the users' keys; in tables without any, the first row that is older than `moment` is the first of those before,
    and so on. Below 0: it is new.
    """
    first = offsets([one.num_nodes for one in before.manifest.node_types])
    parts, new = [], 0
    for number, one in enumerate(before.manifest.node_types):
        table = config.tables.get(one.name)
        if table is None or table.key is not None:
            then, now = _keys(before, one.name), _keys(after, one.name)
            kind = then.type if then.type == now.type else pa.string()
            place = compute.index_in(now.cast(kind), value_set=then.cast(kind))
            rows = np.asarray(compute.fill_null(place, -1), np.int64)
        else:
            times, others = _times(before, one.name), _times(after, one.name)
            counted = not config.predict.computed and config.predict.table == one.name
            if times is None or others is None or counted:  # no row went, and none came
                rows = np.arange(one.num_nodes)
            else:
                rows = _of_older(times, others, moment)
        names = np.where(rows >= 0, first[number] + rows, -1 - new - np.arange(len(rows)))
        new += len(rows)
        parts.append(names)
    return np.concatenate(parts)


def _keys(store: DatasetStore, kind: str) -> Any:
    """Return the users' keys of a node type; numbers from 0 where these are the keys."""
    name = f"ids/{kind}"
    if name in store:
        return store.read(name, ["original_id"])["original_id"]
    count = next(one.num_nodes for one in store.manifest.node_types if one.name == kind)
    return pa.chunked_array([pa.array(np.arange(count))])


def _times(store: DatasetStore, kind: str) -> Array | None:
    """Return the times of a node type's rows; None: they have none, and nothing of them was changed."""
    table = f"nodes/{kind}"
    return np.asarray(store.column(table, "time")) if "time" in store.table(table).columns else None


def _of_older(before: Array, after: Array, moment: int) -> Array:
    """Return the row before of each row after, int64 (n,); -1 of rows that are not older."""
    rows = np.full(len(after), -1, np.int64)
    old, place = np.flatnonzero(before < moment), np.flatnonzero(after < moment)
    count = min(len(old), len(place))
    rows[place[:count]] = old[:count]
    return rows


def known_rows(data: Parent, moment: int, kind: str, rows: Array) -> dict[str, Array]:
    """Return by node type the rows of a moment that rows of then may see: themselves and what they name, as far.

    A row is known together with its keys, and so is what they lead to, where that is of the same moment.

    `rows`, int64 (n,), are of the node type `kind` of what ingest made; `moment` is in the data's unit.
    """
    store = DatasetStore(data.folder, data.manifest)
    seen: dict[str, set[int]] = {kind: _of_moment(store, kind, rows, moment)}
    fresh = dict(seen)
    while fresh:
        reached: dict[str, set[int]] = {}
        for edges in data.manifest.edge_types:
            if edges.name in data.manifest.foreign_keys and edges.source in fresh:
                source, target = (store.column(f"edges/{edges.name}", end) for end in ("src", "dst"))
                named = target[np.isin(source, list(fresh[edges.source]))]
                reached.setdefault(edges.target, set()).update(_of_moment(store, edges.target, named, moment))
        fresh = {one: more for one, rows in reached.items() if (more := rows - seen.get(one, set()))}
        for one, more in fresh.items():
            seen[one] = seen.get(one, set()) | more
    return {one: np.array(sorted(rows), np.int64) for one, rows in seen.items()}


def _of_moment(store: DatasetStore, kind: str, rows: Array, moment: int) -> set[int]:
    """Return which rows of a type are of a moment."""
    if "time" not in store.manifest.tables[f"nodes/{kind}"].columns:
        return set()
    return {int(row) for row in rows[store.column(f"nodes/{kind}", "time")[rows] == moment]}
