"""New points in a layout that stays as it is: of vectors that came later, or of a graph that has grown."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from configs.errors import DataError
from models.kernels.threads import num_threads
from models.layout.base import LayoutModel
from tasks.apply.job import MappedData
from tasks.arrays import Array
from tasks.inference.opened import Opened
from tasks.kinds.points import LAYOUT_FILE, OF_EDGES, point_columns, renamed, write_points
from tasks.layout.place import place_vectors
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import GraphStore
from tasks.storage.ids import IdMap
from tasks.storage.manifests import NEIGHBORS
from tasks.train.layout.engine import place_among_neighbors

PLACED = "placed"
"""Column that tells points of the layout from those that are new."""


def write_placed(opened: Opened, model: LayoutModel, mapped: MappedData, work: Path, seed: int) -> tuple[str, int]:
    """Write the points of a layout, and among them those of other data; return the file's name and their number.

    Raises DataError: vectors that cannot be compared, or a graph without a node of the layout.
    """
    store, dataset = GraphStore.open(mapped.graph), DatasetStore.open(mapped.dataset)
    points = np.asarray(model.table)
    if NEIGHBORS not in store.manifest.report:
        return _write_nodes(opened, store, dataset, points, work, seed)
    metric, feat = store.manifest.report[NEIGHBORS]["metric"], opened.store["feat"]
    threads = num_threads()
    new = place_vectors(feat, store["feat"], points, model.config, metric=metric, seed=seed, threads=threads)
    before = renamed(point_columns(store, dataset, IdMap(store, dataset), np.arange(len(points))), (PLACED,))
    after = renamed(point_columns(opened.store, opened.dataset, opened.ids, np.arange(len(new))), (PLACED,))
    after = {name: column for name, column in after.items() if name not in OF_EDGES}  # new points have no edges
    parts = [
        pa.table({**before, PLACED: pa.repeat("before", len(points))}),
        pa.table({**after, PLACED: pa.repeat("now", len(new))}),
    ]
    table = end_to_end(parts)
    columns = {name: table[name].combine_chunks() for name in table.column_names}
    write_points(work / LAYOUT_FILE, np.concatenate([points, new]), columns)
    return LAYOUT_FILE, table.num_rows


def end_to_end(parts: list[pa.Table]) -> pa.Table:
    """Return tables end to end; a column that is not of one type in all becomes numbers, else texts."""
    for name in sorted(set.intersection(*(set(part.column_names) for part in parts))):
        kinds = [part.schema.field(name).type for part in parts]
        if len(set(kinds) - {pa.null()}) > 1:
            numeric = name != "id" and all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in kinds)
            kind = pa.float64() if numeric else pa.string()
            at = [part.column_names.index(name) for part in parts]
            parts = [
                part.set_column(i, name, part[i].cast(kind, safe=False)) for i, part in zip(at, parts, strict=True)
            ]
    return pa.concat_tables(parts, promote_options="permissive")


def _write_nodes(
    opened: Opened, store: GraphStore, dataset: DatasetStore, points: Array, work: Path, seed: int
) -> tuple[str, int]:
    """Write the nodes of the present graph: those that the layout has as it has them, others among their neighbours."""
    names = opened.ids.lookup(np.arange(opened.store.manifest.num_nodes))
    then = IdMap(store, dataset).lookup(np.arange(store.manifest.num_nodes))
    if names.type != then.type:  # numbers that have become texts
        names, then = names.cast(pa.string()), then.cast(pa.string())
    row = compute.index_in(names, value_set=then)
    is_known = np.asarray(row.is_valid())
    if not is_known.any():
        raise DataError(f"{opened.store.manifest.dataset}: none of its nodes is in the layout; lay it out alone")
    placed = np.zeros((len(names), points.shape[1]), np.float32)
    placed[is_known] = points[np.asarray(row.drop_null())]
    place_among_neighbors(placed, is_known.copy(), opened.store, seed)
    columns = renamed(point_columns(opened.store, opened.dataset, opened.ids, np.arange(len(placed))), (PLACED,))
    columns[PLACED] = pa.array(np.where(is_known, "before", "now"))
    write_points(work / LAYOUT_FILE, placed, columns)
    return LAYOUT_FILE, len(placed)
