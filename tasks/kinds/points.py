"""What a map can say of its points, and colour them by: whatever the graph and the data set know of nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from tasks.arrays import Array
from tasks.components.connected import number_components
from tasks.kinds.judged import split_column, splits_of
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import ALWAYS, GraphStore
from tasks.storage.ids import IdMap, class_names
from tasks.storage.manifests import NEIGHBORS, SPLITS, FeatureColumn
from tasks.storage.outputs.tables import ParquetOutput

LAYOUT_FILE = "layout.parquet"
AXES = ("x", "y", "z")
IDS = ("id", "row")


def renamed(columns: Mapping[str, pa.Array], taken: Collection[str]) -> dict[str, pa.Array]:
    """Return columns, those whose names are taken under others with `_` behind: none is lost, or taken for another."""
    kept = {name: column for name, column in columns.items() if name not in taken}
    for name, column in columns.items():
        new = name
        while new in taken or (new != name and new in columns):
            new += "_"
        kept[new] = column
    return kept


def write_points(path: Path, points: Array, columns: Mapping[str, pa.Array]) -> None:
    """Write coordinates, float32 (n, 2) or (n, 3), and columns (n,), those of ids among them."""
    axes = {name: pa.array(np.ascontiguousarray(points[:, axis])) for axis, name in enumerate(AXES[: points.shape[1]])}
    ids = {name: columns[name] for name in IDS if name in columns}
    others = renamed({name: column for name, column in columns.items() if name not in ids}, AXES)
    with ParquetOutput(path) as file:
        file.write(pa.table({**ids, **axes, **others}))


MOST_COLUMNS = 24
"""Of the data set's own columns."""
MOST_CATEGORIES = 10_000
OF_EDGES = frozenset({"part", "component", "degree"})
"""Columns that edges decide on."""
_OWN = frozenset({"node_id", "src", "dst", "label", "time", "feat"})
"""Columns of tables that are told in another way, or are matrices."""

_MOMENTS = (("us", None), ("us", "UTC"), ("ns", None), ("ns", "UTC"))
"""Units and zones of times that texts may be."""


def point_columns(
    store: GraphStore, dataset: DatasetStore, ids: IdMap, nodes: Array, wanted: Collection[str] = ()
) -> dict[str, pa.Array]:
    """Return columns of nodes, int64 (n,): ids first, then what is known of them.

    `id`; `type`, where the nodes are of several; `label`; `split`; `part` and `component`, where there are several;
    `degree`, of a graph with edges of its own; `time`; and columns of the data set's node tables, MOST_COLUMNS of
    them, those `wanted` before others.
    """
    point_table = ids.columns(nodes)
    point_table |= _known_of_graph(store, dataset, ids, nodes)
    if NEIGHBORS not in store.manifest.report:
        point_table["degree"] = pa.array(np.diff(store["csc_indptr"])[nodes])
    for name, column in _own_columns(store, dataset, ids, nodes, wanted):
        while name in point_table or name in IDS:
            name += "_"
        point_table[name] = column
    return point_table


def _known_of_graph(store: GraphStore, dataset: DatasetStore, ids: IdMap, nodes: Array) -> dict[str, pa.Array]:
    manifest, node_columns = store.manifest, {}
    types = type_names(manifest.node_types, ids.type_numbers()[nodes])
    if types is not None:
        node_columns["type"] = types
    labels = _labels(store, dataset, nodes)
    if labels is not None:
        node_columns["label"] = labels
    if any(f"{split}_idx" in store and len(store[f"{split}_idx"]) for split in SPLITS):
        split = splits_of(store, nodes, manifest.num_nodes)
        node_columns["split"] = split_column(split, slice(None), len(nodes))
    offsets = getattr(manifest, "part_offsets", ())
    if len(offsets) > 2:
        part = np.searchsorted(np.asarray(offsets), nodes, side="right") - 1
        node_columns["part"] = _texts(part)
    component = _components(store)
    if component is not None:
        node_columns["component"] = _texts(component[nodes])
    if "node_time" in store:
        never = ALWAYS if len(manifest.node_types) == 1 or manifest.fit_before is not None else -1
        node_columns["time"] = times_column(np.asarray(store["node_time"][nodes]), manifest.time_unit, never)
    return node_columns


def type_names(names: tuple[str, ...], kinds: Array) -> pa.Array | None:
    """Return names of types by their numbers (n,); None: there is one, as where one type is predicted."""
    return pa.array(np.array(names, object)[kinds]) if len(np.unique(kinds)) > 1 else None


def _labels(store: GraphStore, dataset: DatasetStore, nodes: Array) -> pa.Array | None:
    """Return the first label of nodes: names of classes, or numbers."""
    if "label" not in store or store.manifest.heads:
        return None
    label = np.asarray(store["label"][nodes])
    if label.ndim == 1:
        missing, names = label < 0, class_names(dataset)
        if names is None:
            return pa.array(label.astype(str).astype(object), pa.string(), mask=missing)
        return pa.array(names, pa.string()).take(pa.array(np.where(missing, 0, label), mask=missing))
    if store.manifest.label_type.is_number:
        return pa.array(label[:, 0], pa.float32(), mask=np.isnan(label[:, 0]))
    if label.shape[1] == 1:
        return pa.array(np.where(label[:, 0] > 0.5, "1", "0").astype(object), mask=np.isnan(label[:, 0]))
    return None


def _components(store: GraphStore) -> Array | None:
    """Return each node's connected component by size, 0 the largest; None: there is one."""
    count, component = number_components(store)
    if count < 2:
        return None
    place = np.empty(count, np.int64)
    place[np.argsort(-np.bincount(component, minlength=count), kind="stable")] = np.arange(count)
    return place[component]


def times_column(times: Array, unit: str, never: int) -> pa.Array:
    """Return times (n,) of a unit as moments, numbers where they are of no clock; `never` is none."""
    missing = times == never
    if unit in ("", "seconds"):
        return pa.array(np.where(missing, 0, times).astype("datetime64[s]"), mask=missing)
    return pa.array(times, mask=missing)


def _texts(numbers: Array) -> pa.Array:
    return compute.cast(pa.array(numbers), pa.string())


def _own_columns(
    store: GraphStore, dataset: DatasetStore, ids: IdMap, nodes: Array, wanted: Collection[str]
) -> Iterator[tuple[str, pa.Array]]:
    """Yield scalar columns of the target type's table; nodes of other types have none."""
    kind = store.manifest.target_type
    if store.manifest.num_graphs > 1 or f"nodes/{kind}" not in dataset:
        return
    described = [t for t in dataset.manifest.node_types if t.name == kind]
    inside = pa.array(ids.of_target_type(nodes))
    rows = pa.array(np.where(inside, ids.rows(nodes), 0), mask=~np.asarray(inside))
    features = [feature for one in described for feature in one.features]
    yield from table_columns(dataset, f"nodes/{kind}", f"categories/{kind}", features, rows, wanted)


def table_columns(
    dataset: DatasetStore,
    table: str,
    categories: str,
    features: Iterable[FeatureColumn],
    rows: pa.Array,
    wanted: Collection[str],
) -> Iterator[tuple[str, pa.Array]]:
    """Yield scalar columns of some rows, int64 (n,) with nulls, of a table: at most MOST_COLUMNS, those `wanted` first.

    `categories`: the folder of tables that name codes; `features` describe columns.
    """
    kinds, columns = {feature.column: feature for feature in features}, dataset.table(table).columns
    names = [c for c, arrow in columns.items() if c not in _OWN and not arrow.startswith(("list", "fixed"))]
    for column in sorted(names, key=lambda name: name not in wanted)[:MOST_COLUMNS]:
        values = dataset.read(table, [column]).column(0).take(rows).combine_chunks()
        named = _named(dataset, f"{categories}/{column}", kinds.get(column), values)
        if named is not None:
            yield column, named


def _named(dataset: DatasetStore, table: str, feature: FeatureColumn | None, values: pa.Array) -> pa.Array | None:
    """Return values, of categories their names; None: codes that nobody names."""
    if feature is None or feature.kind == "numeric":
        return told(values)
    if table not in dataset:
        return None
    names = dataset.read(table, ["name"]).column("name")
    return told(names.take(values).combine_chunks()) if len(names) <= MOST_CATEGORIES else None


def told(values: pa.Array) -> pa.Array:
    """Return values with null for empty texts; texts that are dates or moments (ISO 8601), all of them, become such."""
    if not pa.types.is_string(values.type):
        return values
    values = compute.if_else(compute.equal(values, ""), None, values)
    if values.null_count == len(values):
        return values
    for unit, zone in _MOMENTS:
        try:
            return values.cast(pa.timestamp(unit, zone))
        except pa.ArrowInvalid:
            continue
    return values
