"""Splits of a snapshot by time.

Nodes (or edges) stand in one order: by when they began to exist, equal times by a hash. Train takes the oldest share,
test the newest. A later snapshot goes on with the same order behind them, so whatever trains now trains in all later
snapshots too: a model that begins with an earlier one's weights has never learnt from what it is tested on.

Memory: 24 bytes a node; on link tasks 16 bytes an edge for a moment, less than their pairs take, and some 40 bytes a
held-out edge and a negative.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from configs.schema import SnapshotConfig
from tasks.arrays import Array
from tasks.edge_ends import find_ends
from tasks.negatives import draw_candidates, draw_pool, split_pairs
from tasks.preprocess.splits.snapshot import ALWAYS, Cut, Snapshot, pair_keys
from tasks.storage.dataset_store import to_numpy
from tasks.storage.graph_store import ArrayWriter
from tasks.storage.manifests import SPLITS


@dataclass(frozen=True)
class WrittenSplits:
    """What became of the splits."""

    sizes: dict[str, int]
    times: dict[str, list[int]] = field(default_factory=dict)
    """Of a snapshot: split to the oldest and the newest time in it, in the unit of the data's times."""
    messages: Cut | None = None
    """Of a snapshot: the last edge that carries messages; None: all do."""


class PairGroup(NamedTuple):
    """Some pairs that exist."""

    src: Array
    """int64 (n,), ids of the data set."""
    dst: Array
    births: Array
    """int64 (n,): when they begin to exist."""
    columns: dict[str, Array]
    """What else a pair carries, (n,) each."""


PairGroups = Callable[[], Iterator[PairGroup]]
"""Yields pairs, row group by row group."""


def cut_ranks(count: int, options: SnapshotConfig) -> tuple[int, int]:
    """Return how many of `count` go to train, and how many to train and valid together; of three each gets one."""
    train = min(max(1, round(options.train * count)), max(0, count - 2))
    both = min(max(train + 1, round((options.train + options.valid) * count)), max(0, count - 1))
    return train, both


def span(times: Array) -> list[int]:
    """Return the oldest and the newest time; nothing where there is none."""
    known_times = times[times != ALWAYS]
    return [int(known_times.min()), int(known_times.max())] if len(known_times) else []


def write_by_time(
    groups: PairGroups, snapshot: Snapshot, writer: ArrayWriter, options: SnapshotConfig, table: str
) -> WrittenSplits:
    """Deal all pairs that exist out by time; those that train carry messages.

    `table` has the columns of all pairs: of those, weights and relations are written beside them.
    """
    cuts = _find_cuts(groups, snapshot, options)

    def coded() -> Iterator[tuple[PairGroup, Array]]:
        """Yield the pairs, and each one's split, int8 (n,)."""
        for group in groups():
            first, second = (cut.is_before(group.births, group.src, group.dst) for cut in cuts)
            yield group, first.astype(np.int8) + second

    counts = sum((np.bincount(codes, minlength=3) for _, codes in coded()), np.zeros(3, np.int64))
    sizes: dict[str, int] = dict(zip(SPLITS, counts.tolist(), strict=True))
    columns = snapshot.store.table(table).columns
    pairs = {name: writer.create(f"{name}_edges", (sizes[name], 2), snapshot.ids.id_type) for name in SPLITS}
    beside = {}
    if "relation" in columns:
        beside = {(name, "relation"): writer.create(f"{name}_relation", (sizes[name],), np.int32) for name in SPLITS}
    if "weight" in columns:
        beside["train", "weight"] = writer.create("train_edge_weight", (sizes["train"],), np.float32)
    place, times = dict.fromkeys(SPLITS, 0), {name: np.empty(0, np.int64) for name in SPLITS}
    for group, codes in coded():
        for code, name in enumerate(SPLITS):
            chosen = np.flatnonzero(codes == code)
            rows = slice(place[name], place[name] + len(chosen))
            pairs[name][rows, 0] = snapshot.new_id[group.src[chosen]]
            pairs[name][rows, 1] = snapshot.new_id[group.dst[chosen]]
            for (split, column), values in beside.items():
                if split == name:
                    values[rows] = group.columns[column][chosen]
            place[name] += len(chosen)
            times[name] = np.array(span(np.concatenate([times[name], group.births[chosen]])), np.int64)
    for code, split in enumerate(SPLITS[1:]):
        if f"split/{split}_negative" in snapshot.store:
            _draw_negatives(snapshot, writer, options.seed, code, split)
    return WrittenSplits(sizes, {name: ends.tolist() for name, ends in times.items()}, cuts[0])


def _find_cuts(groups: PairGroups, snapshot: Snapshot, options: SnapshotConfig) -> tuple[Cut, Cut]:
    births = np.concatenate([np.empty(0, np.int64), *(group.births for group in groups())])
    ranks = [rank for rank in cut_ranks(len(births), options) if 0 < rank < len(births)]
    if len(ranks) < 2 or ranks[0] == ranks[1]:
        return Cut(snapshot.until), Cut(snapshot.until)  # too few: refused as empty splits
    births.partition([rank - 1 for rank in ranks])
    times = [int(births[rank - 1]) for rank in ranks]
    older = [int(np.count_nonzero(births < time)) for time in times]
    del births
    cuts = []
    for time, rank, before in zip(times, ranks, older, strict=True):
        keys = []  # of the edges of that time
        for group in groups():
            at_time = group.births == time
            keys.append(pair_keys(options.seed, group.src[at_time], group.dst[at_time]))
        place = rank - before - 1
        cuts.append(Cut(time, int(np.partition(np.concatenate(keys), place)[place]), options.seed))
    return cuts[0], cuts[1]


def _draw_negatives(snapshot: Snapshot, writer: ArrayWriter, seed: int, code: int, split: str) -> None:
    """Draw pairs that exist and are no edges yet, as many as the data set gives: its own are of all times."""
    store, table = snapshot.store, f"split/{split}_negative"
    edges = split_pairs(lambda name: writer.read(name) if name in writer.entries else None)
    directed = store.manifest.directed
    drawn: Any = (snapshot.ids.num_nodes, seed, edges)
    options: Any = {
        "directed": directed and not snapshot.ids.symmetrize,
        "ends": find_ends(edges, snapshot.ids.num_nodes, directed=directed),
    }
    _, group = next(store.row_groups(table, ["src", "dst"]))
    candidates = max(to_numpy(group.column(name)).shape[1:] for name in ("src", "dst"))
    if not candidates:
        pool = draw_pool(code, store.table(table).num_rows, *drawn, **options)
        writer.write(f"{split}_negative", np.stack([pool["src"], pool["dst"]], 1))
        return
    sources = writer.read(f"{split}_edges")[:, 0]
    writer.write(f"{split}_negative", draw_candidates(code, sources, *candidates, *drawn, **options, path=table))
