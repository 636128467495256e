"""Which rows of a moment seeds of that moment see all the same."""

from __future__ import annotations

import numpy as np

from tasks.arrays import Array
from tasks.stage import Parent
from tasks.storage.dataset_store import DatasetStore


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
