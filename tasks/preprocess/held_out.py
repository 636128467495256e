"""Links that are held out stay out of what a model learns from: its training edges and the edges that carry messages.

A pair of nodes belongs to one split. Which one keeps a pair that stands in several is a rule:

| rule | where | a pair that stands in several splits |
|---|---|---|
| `hold_out` | a data set's own split | is tested, else validated; its other edges are taken out |
| `first_split` | snapshots by time | stays where it came up first: what trains now trains in all later snapshots |
| `keep` | data sets that OGB lists | stays in all, as OGB has it: else scores would not compare with published ones |

Whatever the rule, an edge that carries messages goes if its pair is held out and does not train. Where edges have no
direction, or preprocess adds reverses, both directions are one pair. Held-out edges name no relation, so a pair is
taken out of all relations. Parallel edges go all; self-loops are pairs like any other (those that preprocess adds come
later and stay).

Memory: some 60 bytes a held-out edge; the training edges are read in pieces, and in whole where some of them go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from numba import njit

from configs.errors import DataError
from tasks.graph_store import Array, ArrayWriter
from tasks.ingest.negatives import pair_numbers
from tasks.preprocess.splits import SPLITS
from tasks.stage import StageContext

Rule = Literal["hold_out", "first_split", "keep"]
_CHUNK_ROWS = 1 << 20


class HeldOut:
    """Takes the pairs of a link task's validation and test splits out of the rest."""

    def __init__(self, writer: ArrayWriter, num_nodes: int, rule: Rule, *, directed: bool) -> None:
        """Settle which split each pair belongs to.

        Args:
            writer: has `train_edges`, `valid_edges` and `test_edges` and what goes with them; rewritten where some go.
            num_nodes: of the graph.
            rule: which split keeps a pair that stands in several.
            directed: whether a pair and its reverse are two.

        Raises:
            DataError: a split would be empty.
        """
        self.num_nodes, self.rule, self.directed = num_nodes, rule, directed
        self._splits = _SplitPairs(writer, num_nodes, directed=directed)
        valid, test = (self._splits.numbers(split) for split in SPLITS[1:])
        self.pairs = np.union1d(valid, test)
        """int64 (n,), ascending: numbers of the pairs that are held out (see `pair_numbers`)."""
        self.in_train = self._splits.seen("train", self.pairs)
        """bool (n,): which of them stand in the training split, as it was given."""
        self.left_out = dict.fromkeys(SPLITS, 0)
        """Edges that went from each split."""
        if rule == "hold_out":
            self.left_out["valid"] = self._splits.drop("valid", test)
            self.left_out["train"] = self._splits.drop("train", self.pairs)
        elif rule == "first_split":
            train = self.pairs[self.in_train]
            self.left_out["valid"] = self._splits.drop("valid", train)
            self.left_out["test"] = self._splits.drop("test", np.union1d(train, valid))
        self._refuse_empty()
        # Pairs that train by right may carry messages.
        self._hidden = self.pairs if rule == "hold_out" else self.pairs[~self.in_train]
        self._lookup = self._both_ways(self._hidden)
        self._met = np.zeros(len(self._lookup), np.bool_)

    @property
    def sizes(self) -> dict[str, int]:
        """Edges of each split."""
        return {split: self._splits.size(split) for split in SPLITS}

    def __call__(self, found: dict[str, Any]) -> dict[str, Any]:
        """Return a shard's runs (`tasks.preprocess.edges.sort_edge_shard`) without held-out pairs.

        Ids are the graph's own.
        """
        if not len(self._lookup):
            return found
        rows, counts, cols, table_rows = (found[name].copy() for name in ("rows", "counts", "cols", "table_rows"))
        num_rows, size = drop_pairs(rows, counts, cols, table_rows, self.num_nodes, self._lookup, self._met)
        kept = {"rows": rows[:num_rows], "counts": counts[:num_rows], "cols": cols[:size]}
        return {**found, **kept, "table_rows": table_rows[: min(size, len(table_rows))]}

    def report(self) -> dict[str, Any]:
        """Return counts for the manifest; all shards have passed by.

        `pairs` that are held out, `in_train` those of them that stood in the training split, `taken_out` those that
        trained or carried messages and do so no longer; `left_out`: edges that went from each split.
        """
        counts = {"pairs": len(self.pairs), "in_train": int(self.in_train.sum()), "taken_out": self._taken_out()}
        return {"rule": self.rule, **counts, "left_out": self.left_out}

    def tell(self, context: StageContext) -> None:
        """Warn of what was found; all shards have passed by."""
        found, sizes, left_out = self.report(), self.sizes, self.left_out
        way = "" if self.directed else " (in one direction or the other)"
        total = f"{found['pairs']:,} held-out pairs"
        if found["taken_out"]:
            context.warn(
                f"{found['taken_out']:,} of {total} stood among the edges that train or carry messages{way}: they do "
                f"neither now; {left_out['train']:,} training edges went"
            )
        for split in SPLITS[1:]:
            if left_out[split]:
                why = "stand in the test split too: they are tested only"
                if self.rule == "first_split":
                    why = "join pairs that came up in an earlier split: a model knows them by heart, so they go"
                count = f"{left_out[split]:,} of {left_out[split] + sizes[split]:,}"
                context.warn(f"{count} {split} edges{way} {why}; {sizes[split]:,} are left")
        if self.rule == "keep" and found["in_train"]:
            context.warn(
                f"{found['in_train']:,} of {total} train too{way}, as OGB has it: a model may know them by heart; they "
                "stay, so that scores compare with published ones"
            )

    def _taken_out(self) -> int:
        """Return how many pairs trained or carried messages and do so no longer."""
        dst, src = np.divmod(self._lookup[self._met], self.num_nodes)
        met: Array = np.isin(self.pairs, pair_numbers(src, dst, self.num_nodes, directed=self.directed))
        return int((met | self.in_train if self.rule == "hold_out" else met).sum())

    def _both_ways(self, pairs: Array) -> Array:
        """Return destination * num_nodes + source of the edges that pairs are, int64, ascending."""
        src, dst = np.divmod(pairs, self.num_nodes)
        keys = [dst * self.num_nodes + src] + ([] if self.directed else [pairs])
        return np.unique(np.concatenate(keys))

    def _refuse_empty(self) -> None:
        for split, size in self.sizes.items():
            if size or not self.left_out[split]:
                continue
            why, way_out = "is held out in another split too", "give splits that do not overlap"
            if self.rule == "first_split":
                why = "came up in an earlier split already"
                way_out = "take other shares, or snapshot.split=keep with dataset.split.by=ratio, which deals out pairs"
            raise DataError(f"every pair of the {split} split {why}; {way_out}", path=f"split/{split}")


class _SplitPairs:
    """The pairs of each split, on disk."""

    def __init__(self, writer: ArrayWriter, num_nodes: int, *, directed: bool) -> None:
        self.writer, self.num_nodes, self.directed = writer, num_nodes, directed

    def size(self, split: str) -> int:
        """Return how many edges a split has."""
        return self.writer.entries[f"{split}_edges"].shape[0]

    def _chunks(self, split: str) -> Iterator[Array]:
        """Yield the numbers of a split's pairs, int64, in order."""
        path = self.writer.folder / f"{split}_edges.npy"
        pairs = np.load(path, mmap_mode="r" if self.size(split) else None)
        for start in range(0, len(pairs), _CHUNK_ROWS):
            some = np.asarray(pairs[start : start + _CHUNK_ROWS])
            yield pair_numbers(some[:, 0], some[:, 1], self.num_nodes, directed=self.directed)

    def numbers(self, split: str) -> Array:
        """Return the numbers of a split's pairs, int64, ascending, each once."""
        return np.unique(np.concatenate([np.empty(0, np.int64), *self._chunks(split)]))

    def seen(self, split: str, known: Array) -> Array:
        """Return which of `known`, ascending numbers, occur in a split: bool (len(known),)."""
        met = np.zeros(len(known), np.bool_)
        for numbers in self._chunks(split):
            at, among = _find(numbers, known)
            met[at[among]] = True
        return met

    def drop(self, split: str, known: Array) -> int:
        """Leave the pairs of `known`, ascending numbers, out of a split; returns how many edges went."""
        stays = ~np.concatenate([np.empty(0, np.bool_), *(_find(numbers, known)[1] for numbers in self._chunks(split))])
        gone = len(stays) - int(np.count_nonzero(stays))
        for name in (f"{split}_edges", f"{split}_edge_weight", f"{split}_negative") if gone else ():
            entry = self.writer.entries.get(name)
            # A pool of negatives belongs to no edge in particular; candidates (n, K, 2) follow theirs.
            if entry is not None and (name != f"{split}_negative" or len(entry.shape) == 3):
                self.writer.write(name, np.load(self.writer.folder / entry.path)[stays])
        return gone


def _find(numbers: Array, known: Array) -> tuple[Array, Array]:
    """Return the place of each number in `known` (ascending), and whether it is there: bool."""
    if not len(known):
        return np.zeros(len(numbers), np.int64), np.zeros(len(numbers), np.bool_)
    at = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
    return at, known[at] == numbers


@njit(cache=True, nogil=True)
def drop_pairs(
    rows: Array, counts: Array, cols: Array, table_rows: Array, num_nodes: int, lookup: Array, met: Array
) -> tuple[int, int]:
    """Drop entries of a sorted shard that are in `lookup`, in place: both ascend, so one pass finds them.

    Args:
        rows: id (R,), destinations, ascending, changed.
        counts: int64 (R,), changed: entries of each.
        cols: id (E,), sources, ascending within a row, changed.
        table_rows: int (E,) or empty, changed.
        num_nodes: of the graph.
        lookup: int64 (n,), ascending: destination * num_nodes + source.
        met: bool (n,), set where an entry was dropped.

    Returns:
        how many rows and entries there are now.
    """
    read = size = num_rows = 0
    for r in range(len(rows)):
        begin, row, count = size, np.int64(rows[r]), counts[r]
        at = np.searchsorted(lookup, row * num_nodes)
        for i in range(read, read + count):
            key = row * num_nodes + np.int64(cols[i])
            while at < len(lookup) and lookup[at] < key:
                at += 1
            if at < len(lookup) and lookup[at] == key:
                met[at] = True
                continue
            cols[size] = cols[i]
            if len(table_rows) > 0:
                table_rows[size] = table_rows[i]
            size += 1
        read += count
        if size > begin:
            rows[num_rows], counts[num_rows] = rows[r], size - begin
            num_rows += 1
    return num_rows, size
