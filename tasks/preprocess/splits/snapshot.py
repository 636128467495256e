"""What exists as of a moment: which nodes, and which entries of a sorted shard.

Shards are sorted (and rows transformed, where nothing was learned) in the data set's ids, once for all snapshots; what
does not exist is dropped where shards are put together, before anything is merged, counted or fitted. Nodes that exist
are numbered anew in their old order, so that sorted shards stay sorted; `node_ids` leads back to the data set's ids.

A node exists from its time on. Nodes of a type without times, where edges have some, exist from their first edge on (as
in data that was collected then), those that never have one always. An edge exists if its own time has come and both of
its ends exist: it is as old as the youngest of the three.

Memory: 21 bytes a node of the data set, and some 30 bytes an edge of one shard.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numba import njit

from configs.errors import DataError, RecipeError
from configs.moments import TimeUnit, last_time
from configs.schema import Recipe
from models.kernels.simd.prefetch import AHEAD
from models.kernels.simd.vector import prefetch_item
from tasks.arrays import Array
from tasks.counter_random import bits
from tasks.preprocess.edges.edge_kernels import Runs
from tasks.preprocess.id_space import IdSpace
from tasks.storage.dataset_store import DatasetStore, ShardRef, iter_row_groups
from tasks.storage.manifests import HELD_OUT, SPLITS, DatasetManifest, NodeType, Table
from tasks.storage.snapshots import no_times, time_unit

ALWAYS = np.iinfo(np.int64).min
_NEVER = np.iinfo(np.int64).max
LAST_KEY = np.iinfo(np.uint64).max
_HELD_OUT = ("split/valid", "split/test")


@dataclass(frozen=True)
class Cut:
    """The last edge that counts, in the order of time; equal times are ordered by `pair_keys`."""

    time: int
    key: int = LAST_KEY
    seed: int = 0

    def is_before(self, births: Array, src: Array, dst: Array) -> Array:
        """Return which edges come behind it, bool (n,): `births` say when they begin to exist."""
        behind = births > self.time
        if self.key != LAST_KEY:
            ties = np.flatnonzero(births == self.time)
            behind[ties] = pair_keys(self.seed, src[ties], dst[ties]) > np.uint64(self.key)
        return behind


@dataclass(frozen=True)
class Snapshot:
    """The part of a data set that exists."""

    unit: TimeUnit
    """What the data's times count."""
    until: int
    """The last time that has come."""
    source: IdSpace
    """Ids of the data set."""
    ids: IdSpace
    """Ids of the graph: of what exists."""
    store: DatasetStore
    """The tables; on link tasks that are split by time one table of edges holds all of them."""
    births: Array
    """int64 (N,): when each node of the data set begins to exist; ALWAYS without a time."""
    kept: Array
    """int64 (n,), ascending: nodes that exist, as ids of the data set."""
    new_id: Array
    """id (N,): what they are called in the graph; -1 for those that do not exist."""

    @property
    def type_offsets(self) -> tuple[int, ...]:
        """First id of each node type in the data set, and the id behind the last that exists: not how many will."""
        *first, _ = self.source.type_offsets
        return (*first, max(first[-1], int(self.kept[-1]) + 1))

    def kept_rows(self, type_index: int, first: int, count: int) -> Array:
        """Return which of the rows first to first + count of a type's node table exist, counted from `first`."""
        start = self.source.type_offsets[type_index] + first
        low, high = np.searchsorted(self.kept, [start, start + count])
        return self.kept[low:high] - start

    def edges_up_to(self, cut: Cut | None) -> Callable[[Runs, ShardRef], Runs]:
        """Return what leaves of a sorted shard the edges that exist, up to `cut`, and gives them the graph's ids."""
        last = cut or Cut(self.until)

        def keep(runs: Runs, shard: ShardRef) -> Runs:
            times = np.empty(0, np.int64)
            if "time" in shard.columns:
                groups = iter_row_groups(shard, ["time"])
                times = np.concatenate([times, *(group.column("time").to_numpy() for group in groups)])[runs.table_rows]
            dst = np.repeat(runs.rows, runs.counts)
            births = edge_births(runs.cols, dst, times, self.births)
            left = runs.only(~last.is_before(births, runs.cols, dst))
            return left._replace(rows=self.new_id[left.rows], cols=self.new_id[left.cols])

        return keep


@njit(cache=True, nogil=True)
def pair_keys(seed: int, src: Array, dst: Array) -> Array:
    """Return a random uint64 for each pair of nodes, (n,): both directions of an edge have the same."""
    keys = np.empty(len(src), np.uint64)
    for i in range(len(src)):
        keys[i] = bits(seed, min(src[i], dst[i]), max(src[i], dst[i]))
    return keys


@njit(cache=True, nogil=True)
def edge_births(src: Array, dst: Array, times: Array, births: Array) -> Array:
    """Return when each edge begins to exist: its own time or the later birth of its ends; all int64, (E,).

    `src` and `dst` (E,) are ids of the data set, `times` (E,) the edges' own or empty, `births` (N,) those of nodes.
    """
    out, last = np.empty(len(src), np.int64), len(src) - 1
    for e in range(len(src)):
        prefetch_item(births, np.int64(src[min(e + AHEAD, last)]))
        born = max(births[src[e]], births[dst[e]])
        out[e] = max(born, times[e]) if len(times) > 0 else born
    return out


def take_snapshot(recipe: Recipe, store: DatasetStore, source: IdSpace) -> Snapshot | None:
    """Find out what exists as of the recipe's moment; None where it names none.

    Raises:
        RecipeError: the data has no times, holds graphs or links of several relations, or nothing exists yet.
        DataError: a link task's edges lack times, or have features: they cannot be split anew.
    """
    as_of, manifest = recipe.time_moment, store.manifest
    if as_of is None:
        return None
    if manifest.task == "graph":
        raise RecipeError(f"snapshot.as_of={as_of}: a set of graphs has no times; leave it out")
    tables = {f"edges/{kind.name}": (kind.source, kind.target) for kind in manifest.edge_types}
    triples = [f"split/{split}" for split in SPLITS] if manifest.task == "triple" else []
    splits_links = manifest.task == "link"
    if splits_links:
        tables |= dict.fromkeys(_HELD_OUT, next(iter(tables.values())))
    timed = {name for name, table in manifest.tables.items() if "time" in table.columns}
    if timed.isdisjoint([*(f"nodes/{name}" for name in source.node_types), *tables, *triples]):
        raise no_times(recipe)
    unit = time_unit(recipe)
    until = last_time(as_of, unit)
    if manifest.num_relations and splits_links:
        raise RecipeError(
            "snapshot.as_of is not for links that are predicted by relation; leave it out, and split by time with "
            "dataset.split.by=time"
        )
    for name in _HELD_OUT if splits_links else ():
        if f"edges/{manifest.edge_types[0].name}" in timed and name not in timed:
            raise DataError(
                "the held-out edges have no times, so it is unknown which of them existed; let the table of edges hold "
                "all of them and split it (dataset.split.by=time or ratio)",
                path=name,
            )
    births = _entity_births(store, source, triples) if triples else _node_births(store, source, tables, timed)
    kept = np.flatnonzero(births <= until)
    if not len(kept):
        first = int(births.min())
        shown = str(datetime.fromtimestamp(first, UTC).date()) if unit == "seconds" else str(first)
        raise RecipeError(f"snapshot.as_of={as_of}: nothing exists yet; the oldest node is from {shown}")
    new_id = np.full(source.num_nodes, -1, source.id_type)
    new_id[kept] = np.arange(len(kept), dtype=source.id_type)
    ends = np.searchsorted(kept, source.type_offsets)
    node_types = tuple(
        NodeType(name=kind.name, num_nodes=int(last - first), features=kind.features)
        for kind, first, last in zip(manifest.node_types, ends, ends[1:], strict=False)
    )
    existing = manifest.model_copy(update={"node_types": node_types})
    if recipe.snapshot.split == "time" and (splits_links or triples):
        existing = _with_held_out(existing, of_links=splits_links)
    ids = IdSpace(existing, source.symmetrize, source.add_loops)
    return Snapshot(unit, until, source, ids, DatasetStore(store.folder, existing), births, kept, new_id)


def _node_births(store: DatasetStore, source: IdSpace, tables: dict[str, tuple[str, str]], timed: set[str]) -> Array:
    """Return when each node begins to exist: int64 (N,), ALWAYS where that is not known.

    `tables` hold edges, those held out included, with the node types of their ends.
    """
    births = np.full(source.num_nodes, ALWAYS, np.int64)
    waiting = set()
    for index, name in enumerate(source.node_types):
        first, last = source.type_offsets[index : index + 2]
        if f"nodes/{name}" in timed:
            for row, group in store.row_groups(f"nodes/{name}", ["time"]):
                births[first + row : first + row + group.num_rows] = group.column("time").to_numpy()
        elif any(name in ends and table in timed for table, ends in tables.items()):
            births[first:last] = _NEVER
            waiting.add(name)
    for table, ends in tables.items():
        if table in timed:
            for column, name in zip(("src", "dst"), ends, strict=True):
                for _, group in store.row_groups(table, [column, "time"]) if name in waiting else ():
                    nodes, times = group.column(column).to_numpy(), group.column("time").to_numpy()
                    np.minimum.at(births[source.offset(name) :], nodes, times)
    births[births == _NEVER] = ALWAYS
    return births


def _entity_births(store: DatasetStore, source: IdSpace, splits: list[str]) -> Array:
    """Return when each entity is first named by a triple: int64 (N,), ALWAYS where none names it."""
    births = np.full(source.num_nodes, _NEVER, np.int64)
    for name in splits:
        for _, group in store.row_groups(name, ["src", "dst", "time"]):
            times = group.column("time").to_numpy()
            for end in ("src", "dst"):
                np.minimum.at(births, group.column(end).to_numpy(), times)
    births[births == _NEVER] = ALWAYS
    return births


def _with_held_out(manifest: DatasetManifest, *, of_links: bool) -> DatasetManifest:
    """Describe the data set with held-out edges among the others of their types.

    Raises DataError where edges of links carry features, which held-out ones do not have.
    """
    tables, edge_types = dict(manifest.tables), []
    for kind in manifest.edge_types:
        name = f"edges/{kind.name}"
        if of_links and kind.features:
            raise DataError(
                "a split by time makes training edges of held-out ones, and those have no features in the data set; "
                "keep its own split (snapshot.split=keep), or leave dataset.edges.features and categorical out",
                path=name,
            )
        parts = [name, *(_HELD_OUT if of_links else (f"{HELD_OUT}/{kind.name}",))]
        joined = [manifest.tables[part] for part in parts if part in manifest.tables]
        columns = joined[0].columns
        tables[name] = Table(  # with the columns that all have
            num_rows=sum(table.num_rows for table in joined),
            columns={column: columns[column] for column in columns if all(column in table.columns for table in joined)},
            shards=tuple(shard for table in joined for shard in table.shards),
            shard_rows=tuple(rows for table in joined for rows in table.shard_rows),
        )
        edge_types.append(kind.model_copy(update={"num_edges": tables[name].num_rows}))
    return manifest.model_copy(update={"tables": tables, "edge_types": tuple(edge_types)})
