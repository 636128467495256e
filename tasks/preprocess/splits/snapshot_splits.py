"""Splits of a snapshot: by time, or the data set's own as far as it exists.

By time, nodes (or edges) stand in one order: by when they began to exist, equal times by a hash. Train takes the oldest
share, test the newest. A later snapshot goes on with the same order behind them, so whatever trains now trains in all
later snapshots too: a model that begins with an earlier one's weights has never learnt from what it is tested on.

Memory: 24 bytes a node; on link tasks 16 bytes an edge for a moment, less than their pairs take, and some 40 bytes a
held-out edge and a negative.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from configs.errors import RecipeError
from configs.layout_options import LAYOUT
from configs.moments import TimeUnit
from configs.schema import Recipe, SnapshotConfig
from tasks.arrays import Array, blocks
from tasks.counter_random import bits
from tasks.edge_ends import find_ends
from tasks.ingest.labels import has_label
from tasks.negatives import draw_negatives, draw_pool, no_others, replace_gone
from tasks.preprocess.splits.arrays import read_pairs, write_no_splits
from tasks.preprocess.splits.snapshot import ALWAYS, Cut, EdgeFilter, Snapshot, edge_births, pair_key
from tasks.storage.dataset_store import to_numpy
from tasks.storage.graph_store import ArrayWriter
from tasks.storage.manifests import LEFT_OUT, SPLITS

_CHUNK_ROWS = 1 << 20
_NODES = 0x5A11  # stream of the hash that orders nodes of one time


@dataclass(frozen=True)
class Dealt:
    """What became of the splits."""

    sizes: dict[str, int]
    times: dict[str, list[int]]
    """Split to the oldest and the newest time in it, in the unit of the data's times."""
    edges: EdgeFilter
    """Which edges carry messages."""
    unit: TimeUnit


def write_snapshot_splits(recipe: Recipe, snapshot: Snapshot, writer: ArrayWriter) -> Dealt:
    """Write `train_idx`, ..., or `train_edges`, ... and negatives; `label` is written before.

    Raises:
        RecipeError: a split is empty.
    """
    task, by_time = snapshot.store.manifest.task, recipe.snapshot.split == "time"
    if task == LAYOUT:
        return Dealt(write_no_splits(snapshot.layout, writer), {}, snapshot.edges_up_to(), snapshot.unit)
    if task == "link":
        dealt = (_EdgeSplitter if by_time else _OwnEdges)(recipe.snapshot, snapshot, writer).write()
    elif task == "triple":
        dealt = (_TripleSplitter if by_time else _OwnTriples)(recipe.snapshot, snapshot, writer).write()
    else:
        dealt = _write_nodes(recipe.snapshot, snapshot, writer)
    empty = [name for name in SPLITS if not dealt.sizes[name]]
    if empty:
        raise RecipeError(
            f"snapshot.as_of={recipe.snapshot.as_of}: the {' and '.join(empty)} split is empty (sizes: {dealt.sizes}); "
            + ("take a later moment or other shares" if by_time else "take a later moment, or snapshot.split=time")
        )
    return dealt


# ---- nodes


def _write_nodes(options: SnapshotConfig, snapshot: Snapshot, writer: ArrayWriter) -> Dealt:
    births, layout = snapshot.births[snapshot.kept], snapshot.layout
    sizes, times = {}, {}
    splits = _by_time(options, snapshot, writer) if options.split == "time" else _own_nodes(snapshot)
    for split, nodes in splits:
        writer.write(f"{split}_idx", np.sort(nodes).astype(layout.id_type))
        sizes[split], times[split] = len(nodes), _span(births[nodes])
    return Dealt(sizes, times, snapshot.edges_up_to(), snapshot.unit)


def _by_time(options: SnapshotConfig, snapshot: Snapshot, writer: ArrayWriter) -> Iterator[tuple[str, Array]]:
    """Yield the labelled nodes of each split."""
    layout, store = snapshot.layout, snapshot.store
    index = layout.type_index(store.manifest.target_type)
    first, last = layout.type_offsets[index : index + 2]
    nodes = first + np.flatnonzero(has_label(writer.read("label")[first:last]))
    own = snapshot.kept[nodes]
    keys = node_keys(options.seed, own - snapshot.source.offset(store.manifest.target_type))
    nodes = nodes[np.lexsort((keys, snapshot.births[own]))]
    yield from zip(SPLITS, np.split(nodes, cut_ranks(len(nodes), options)), strict=True)


def _own_nodes(snapshot: Snapshot) -> Iterator[tuple[str, Array]]:
    """Yield the data set's own splits, as far as they exist."""
    store = snapshot.store
    offset = snapshot.source.offset(store.manifest.target_type)
    for split in SPLITS:
        nodes = snapshot.new_id[store.column(f"split/{split}", "node_id").astype(np.int64) + offset]
        yield split, nodes[nodes >= 0].astype(np.int64)


@njit(cache=True, nogil=True)
def node_keys(seed: int, nodes: Array) -> Array:
    """Return a random uint64 for each node by its id within its type, which other types that grow do not move."""
    keys = np.empty(len(nodes), np.uint64)
    for i in range(len(nodes)):
        keys[i] = bits(seed, _NODES, nodes[i])
    return keys


def cut_ranks(count: int, options: SnapshotConfig) -> tuple[int, int]:
    """Return how many of `count` go to train, and how many to train and valid together; of three each gets one."""
    train = min(max(1, round(options.train * count)), max(0, count - 2))
    both = min(max(train + 1, round((options.train + options.valid) * count)), max(0, count - 1))
    return train, both


def _span(times: Array) -> list[int]:
    known = times[times != ALWAYS]
    return [int(known.min()), int(known.max())] if len(known) else []


# ---- edges


class _EdgeSplitter:
    """Deals all edges that exist out by time; those that train carry messages."""

    def __init__(self, options: SnapshotConfig, snapshot: Snapshot, writer: ArrayWriter) -> None:
        self.options, self.snapshot, self.writer = options, snapshot, writer
        self.store, self.layout = snapshot.store, snapshot.layout
        self.table = f"edges/{self.store.manifest.edge_types[0].name}"
        self.directed = self.store.manifest.directed and not self.layout.symmetrize

    def write(self) -> Dealt:
        """Find the two cuts, then write the pairs."""
        cuts = self._find_cuts()
        counts = sum((np.bincount(codes, minlength=3) for *_, codes in self._coded(cuts)), np.zeros(3, np.int64))
        sizes = dict(zip(SPLITS, counts.tolist(), strict=True))
        times = self._write_pairs(cuts, sizes)
        for code, split in enumerate(SPLITS[1:]):
            self._draw_negatives(code, split)
        return Dealt(sizes, times, self.snapshot.edges_up_to(cuts[0]), self.snapshot.unit)

    def _groups(self, table: str | None = None) -> Iterator[tuple[Array, Array, Array, dict[str, Array]]]:
        """Yield a row group's edges that exist: ids of their ends in the data set, births, other columns.

        `table`: another one than that of all edges.
        """
        source, kind = self.snapshot.source, self.store.manifest.edge_types[0]
        offsets = source.offset(kind.source), source.offset(kind.target)
        table = table or self.table
        names = [name for name in self.store.table(table).columns if name in ("src", "dst", "time", "weight")]
        for _, group in self.store.row_groups(table, names):
            columns = {name: group.column(name).to_numpy() for name in names}
            src, dst = (columns.pop(n).astype(np.int64) + o for n, o in zip(("src", "dst"), offsets, strict=True))
            births = np.empty(len(src), np.int64)
            edge_births(src, dst, columns.pop("time", np.empty(0, np.int64)), self.snapshot.births, births)
            there = np.flatnonzero(births <= self.snapshot.until)
            yield src[there], dst[there], births[there], {name: x[there] for name, x in columns.items()}

    def _find_cuts(self) -> tuple[Cut, Cut]:
        """Return the last edge of train and the last one of valid."""
        births = np.concatenate([np.empty(0, np.int64), *(born for *_, born, _ in self._groups())])
        ranks = [rank for rank in cut_ranks(len(births), self.options) if 0 < rank < len(births)]
        if len(ranks) < 2 or ranks[0] == ranks[1]:
            return Cut(self.snapshot.until), Cut(self.snapshot.until)  # too few: refused as empty splits
        births.partition([rank - 1 for rank in ranks])
        times = [int(births[rank - 1]) for rank in ranks]
        before = [int(np.count_nonzero(births < time)) for time in times]
        del births
        first, second = (
            Cut(time, self._tie_key(time, rank - older), self.options.seed)
            for time, rank, older in zip(times, ranks, before, strict=True)
        )
        return first, second

    def _tie_key(self, time: int, count: int) -> int:
        """Return the key of the edge that is number `count`, from 1, among those of one time."""
        keys = [
            pair_keys(self.options.seed, src[born == time], dst[born == time]) for src, dst, born, _ in self._groups()
        ]
        return int(np.partition(np.concatenate(keys), count - 1)[count - 1])

    def _coded(self, cuts: tuple[Cut, Cut]) -> Iterator[tuple[Array, Array, Array, dict[str, Array], Array]]:
        """Yield what `_groups` does, and each edge's split, int8 (n,)."""
        for src, dst, births, columns in self._groups():
            codes = np.zeros(len(src), np.int8)
            keys = pair_keys(self.options.seed, src, dst)
            for cut in cuts:
                codes += (births > cut.time) | ((births == cut.time) & (keys > np.uint64(cut.key)))
            yield src, dst, births, columns, codes

    def _write_pairs(self, cuts: tuple[Cut, Cut], sizes: dict[str, int]) -> dict[str, list[int]]:
        new_id, id_type = self.snapshot.new_id, self.layout.id_type
        pairs = {name: self.writer.create(f"{name}_edges", (sizes[name], 2), id_type) for name in SPLITS}
        relations = self._create_relations(sizes)
        weighted = "weight" in self.store.table(self.table).columns
        weight = self.writer.create("train_edge_weight", (sizes["train"],), np.float32) if weighted else None
        place, times = dict.fromkeys(SPLITS, 0), {name: np.empty(0, np.int64) for name in SPLITS}
        for src, dst, births, columns, codes in self._coded(cuts):
            for code, name in enumerate(SPLITS):
                chosen = np.flatnonzero(codes == code)
                rows = slice(place[name], place[name] + len(chosen))
                pairs[name][rows, 0], pairs[name][rows, 1] = new_id[src[chosen]], new_id[dst[chosen]]
                if relations:
                    relations[name][rows] = columns["relation"][chosen]
                if weight is not None and name == "train":
                    weight[rows] = columns["weight"][chosen]
                place[name] += len(chosen)
                times[name] = np.array(_span(np.concatenate([times[name], births[chosen]])), np.int64)
        return {name: span.tolist() for name, span in times.items()}

    def _create_relations(self, sizes: dict[str, int]) -> dict[str, Array]:
        """Return the arrays of relations to fill. Edges of link tasks have none."""
        return {}

    def _draw_negatives(self, code: int, split: str) -> None:
        """Draw pairs that exist and are no edges yet, as many as the data set gives: its own are of all times."""
        table = f"split/{split}_negative"
        if table not in self.store:
            return
        _, group = next(self.store.row_groups(table, ["src", "dst"]))
        wide = max(to_numpy(group.column(name)).shape[1:] for name in ("src", "dst"))
        many: Any = (self.layout.num_nodes, self.options.seed, self._written)
        ends = find_ends(self._written, self.layout.num_nodes, directed=self.store.manifest.directed)
        if not wide:
            pool = draw_pool(code, self.store.table(table).num_rows, *many, directed=self.directed, ends=ends)
            self.writer.write(f"{split}_negative", np.stack([pool["src"], pool["dst"]], 1))
            return
        positive = self.writer.read(f"{split}_edges")  # candidates of each edge: its source stays
        src = np.repeat(positive[:, 0], wide[0])
        dst = np.empty_like(src)
        if len(draw_negatives(code, src, dst, *many, directed=self.directed, ends=ends, keep_src=True)):
            raise no_others(table)
        self.writer.write(f"{split}_negative", np.stack([src, dst], 1).reshape(-1, *wide, 2))

    def _written(self) -> Iterator[tuple[Array, Array]]:
        """Yield the pairs of all splits, and those that the data set puts in none, in chunks."""
        for split in SPLITS:
            pairs = self.writer.read(f"{split}_edges")
            for rows in blocks(len(pairs), _CHUNK_ROWS):
                yield pairs[rows, 0], pairs[rows, 1]
        if f"split/{LEFT_OUT}" in self.store:
            for src, dst, _, _ in self._groups(f"split/{LEFT_OUT}"):
                yield self.snapshot.new_id[src], self.snapshot.new_id[dst]


@njit(cache=True, nogil=True)
def pair_keys(seed: int, src: Array, dst: Array) -> Array:
    """Return `pair_key` of each pair, uint64 (n,)."""
    keys = np.empty(len(src), np.uint64)
    for i in range(len(src)):
        keys[i] = pair_key(seed, src[i], dst[i])
    return keys


class _OwnEdges:
    """The data set's own split of edges, as far as it exists; its training edges carry messages."""

    def __init__(self, options: SnapshotConfig, snapshot: Snapshot, writer: ArrayWriter) -> None:
        self.snapshot, self.store, self.writer = snapshot, snapshot.store, writer

    def write(self) -> Dealt:
        """Write positives and negatives, without those that do not exist."""
        sizes, times = {}, {}
        for split in SPLITS:
            table = f"split/{split}"
            src, dst = np.ascontiguousarray(self._pairs(table).T, np.int64)
            columns = self.store.table(table).columns
            own = self.store.column(table, "time") if "time" in columns else np.empty(0, np.int64)
            born = np.empty(len(src), np.int64)
            edge_births(src, dst, own, self.snapshot.births, born)
            there = born <= self.snapshot.until
            if split != "train" and f"{table}_negative" in self.store:
                there = self._write_negatives(split, there)
            pairs = self.snapshot.new_id[np.stack([src[there], dst[there]], 1)]
            self.writer.write(f"{split}_edges", pairs.astype(self.snapshot.layout.id_type))
            if split == "train" and "weight" in columns:
                weight = self.store.column("split/train", "weight")[there].astype(np.float32)
                self.writer.write("train_edge_weight", weight)
            sizes[split], times[split] = len(pairs), _span(born[there])
        return Dealt(sizes, times, self.snapshot.edges_up_to(), self.snapshot.unit)

    def _pairs(self, table: str) -> Array:
        """Return ids in the data set, (n, 2) or (n, K, 2)."""
        kind = self.store.manifest.edge_types[0]
        return read_pairs(self.store, self.snapshot.source, table, (kind.source, kind.target))

    def _write_negatives(self, split: str, there: Array) -> Array:
        """Write the negatives whose ends exist; returns which positives stay: one without candidates goes."""
        negative = self.snapshot.new_id[self._pairs(f"split/{split}_negative")]
        if negative.ndim == 3:
            there = there.copy()
            some, negative = replace_gone(negative[there])
            there[there] = some
        else:
            negative = negative[(negative >= 0).all(1)]
        if not len(negative):
            raise RecipeError(
                f"snapshot.split=keep: none of the data set's negatives of {split} exists yet; take a later moment, or "
                "snapshot.split=time"
            )
        self.writer.write(f"{split}_negative", negative.astype(self.snapshot.layout.id_type))
        return there


# ---- triples


class _TripleSplitter(_EdgeSplitter):
    """Deals all triples that exist out by time; two of the same ends and time go to the same split."""

    def __init__(self, options: SnapshotConfig, snapshot: Snapshot, writer: ArrayWriter) -> None:
        super().__init__(options, snapshot, writer)
        self.table = "split/train"

    def _groups(self, table: str | None = None) -> Iterator[tuple[Array, Array, Array, dict[str, Array]]]:
        """Yield a row group's triples that exist: ids of their ends in the data set, times, other columns."""
        for split in SPLITS:
            names = list(self.store.table(f"split/{split}").columns)
            for _, group in self.store.row_groups(f"split/{split}", names):
                columns = {name: group.column(name).to_numpy() for name in names}
                src, dst = (columns.pop(name).astype(np.int64) for name in ("src", "dst"))
                times = columns.pop("time").astype(np.int64)
                there = np.flatnonzero(times <= self.snapshot.until)
                yield src[there], dst[there], times[there], {name: x[there] for name, x in columns.items()}

    def _create_relations(self, sizes: dict[str, int]) -> dict[str, Array]:
        return {name: self.writer.create(f"{name}_relation", (sizes[name],), np.int32) for name in SPLITS}


class _OwnTriples:
    """The data set's own split of triples, as far as they exist."""

    def __init__(self, options: SnapshotConfig, snapshot: Snapshot, writer: ArrayWriter) -> None:
        self.snapshot, self.store, self.writer = snapshot, snapshot.store, writer

    def write(self) -> Dealt:
        """Write the triples of each split."""
        sizes, times = {}, {}
        for split in SPLITS:
            table = f"split/{split}"
            born = self.store.column(table, "time").astype(np.int64)
            there = born <= self.snapshot.until
            ends = np.stack([self.store.column(table, name).astype(np.int64)[there] for name in ("src", "dst")], 1)
            self.writer.write(f"{split}_edges", self.snapshot.new_id[ends].astype(self.snapshot.layout.id_type))
            self.writer.write(f"{split}_relation", self.store.column(table, "relation")[there].astype(np.int32))
            if split == "train" and "weight" in self.store.table(table).columns:
                self.writer.write("train_edge_weight", self.store.column(table, "weight")[there].astype(np.float32))
            sizes[split], times[split] = int(there.sum()), _span(born[there])
        return Dealt(sizes, times, self.snapshot.edges_up_to(), self.snapshot.unit)
