"""Links that are held out stay out of what a model learns from: its training edges and the edges that carry messages.

A pair that stands in several splits is tested, else validated (`hold_out`); of snapshots by time it stays where it
came up first (`first_split`); of OGB's own data and `known_pairs: keep` in all (`keep`). Whatever the rule, an edge
that carries messages goes if its pair is held out and does not train. docs/pages/held-out.md has the rest. Self-loops
are pairs like any other; those that preprocess adds come later and stay.

Memory: some 50 bytes a held-out edge; the training edges are read in pieces, and in whole where some of them go.

And what links are ranked against: pairs as they can be, given ones checked, missing ones drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
from numba import njit

from configs.errors import DataError
from tasks.arrays import Array, blocks
from tasks.edge_ends import Pairs, find_ends, write_ends
from tasks.negatives import among_edges, draw_candidates, draw_pool, graph_pairs, split_pairs
from tasks.pair_set import PairSet
from tasks.preprocess.edges.edge_kernels import Runs
from tasks.preprocess.transforms.base import GraphView
from tasks.stage import StageContext
from tasks.storage.graph_store import ArrayWriter
from tasks.storage.manifests import SPLITS, DatasetManifest

PairRule = Literal["hold_out", "first_split", "keep"]
_CHUNK_ROWS = 1 << 20
# Marks of a held-out pair: in which splits it stands, and whether messages would have passed along it.
_IN = {"train": 1, "valid": 2, "test": 4}
_MESSAGES = 8


class HeldOut:
    """Takes the pairs of a link task's validation and test splits out of the rest."""

    def __init__(
        self,
        writer: ArrayWriter,
        num_nodes: int,
        rule: PairRule,
        *,
        directed: bool,
        num_relations: int = 0,
        has_context: bool = False,
    ) -> None:
        """Settle which split each pair belongs to; `num_relations`: of those that pairs name, 0 where they name none.

        `has_context`: pairs are those of the first relation, and edges of the others stay, whatever they join.
        `writer` has the edges of the splits and what goes with them, which are written anew where some go. `directed`:
        a pair and its reverse are two. Raises DataError where a split would be empty.
        """
        self.writer, self.num_nodes, self.rule, self.directed = writer, num_nodes, rule, directed
        self.num_relations, self.has_context = num_relations, has_context
        # Pairs of relations have their ends in order already, and the relation in the first one.
        held_out = sum(self._size(split) for split in SPLITS[1:])
        self.pairs = PairSet(held_out, num_nodes, directed=directed or num_relations > 0)
        for split in SPLITS[1:]:
            for src, dst in self._chunks(split):
                self.pairs.add(src, dst, _IN[split])
        for src, dst in self._chunks("train"):
            self.pairs.mark(src, dst, _IN["train"])
        others = {
            "hold_out": {"train": _IN["valid"] | _IN["test"], "valid": _IN["test"]},
            "first_split": {"valid": _IN["train"], "test": _IN["train"] | _IN["valid"]},
            "keep": {},
        }[rule]
        self.left_out = {split: self._drop(split, others[split]) if split in others else 0 for split in SPLITS}
        """Edges that went from each split."""
        for split, size in self.sizes.items():
            if self.left_out[split] and not size:
                why, way_out = "is held out in another split too", "give splits that do not overlap"
                if rule == "first_split":
                    why = "came up in an earlier split already"
                    way_out = (
                        "take other shares, or snapshot.split=keep with dataset.split.by=ratio, which deals out pairs"
                    )
                raise DataError(f"every pair of the {split} split {why}; {way_out}", path=f"split/{split}")
        # Pairs that train by right may carry messages.
        src, dst = self.pairs.pairs(without=0 if rule == "hold_out" else _IN["train"])
        relation = src // num_nodes
        self._lookups = []
        """Of each relation, or of all: destination * num_nodes + source of the pairs' edges, int64, ascending."""
        for number in range(max(1, num_relations)):
            first, second = src[relation == number] % num_nodes, dst[relation == number]
            both = [second * num_nodes + first] + ([] if directed else [first * num_nodes + second])
            self._lookups.append(np.sort(np.concatenate(both)))
        self._met = [np.zeros(len(lookup), np.bool_) for lookup in self._lookups]

    @property
    def sizes(self) -> dict[str, int]:
        """Edges of each split."""
        return {split: self._size(split) for split in SPLITS}

    def __call__(self, runs: Runs, relation: int) -> Runs:
        """Return the runs of a shard of a relation, in the graph's own ids, without held-out pairs."""
        number = relation if self.num_relations else 0
        if not len(self._lookups[number]) or (self.has_context and relation):
            return runs
        return runs.only(leave_pairs(runs, self.num_nodes, self._lookups[number], self._met[number]))

    def report(self) -> dict[str, Any]:
        """Return counts for the manifest; all shards have passed by.

        `pairs` that are held out, `in_train` those of them that stood in the training split, `taken_out` those that
        trained or carried messages and do so no longer; `left_out`: edges that went from each split.
        """
        for number, (lookup, met) in enumerate(zip(self._lookups, self._met, strict=True)):
            dst, src = np.divmod(lookup[met], self.num_nodes)
            self.pairs.mark(*self._of_relation(src, dst, np.int64(number)), _MESSAGES)
        counts = {
            "pairs": self.pairs.count(_IN["valid"] | _IN["test"]),
            "in_train": self.pairs.count(_IN["train"]),
            "taken_out": self.pairs.count(_MESSAGES | _IN["train"] if self.rule == "hold_out" else _MESSAGES),
        }
        return {"rule": self.rule, **counts, "left_out": self.left_out}

    def report_counts(self, context: StageContext) -> None:
        """Warn of what was found; all shards have passed by."""
        counts, sizes, left_out = self.report(), self.sizes, self.left_out
        way = "" if self.directed else " (in one direction or the other)"
        total = f"{counts['pairs']:,} held-out pairs"
        if counts["taken_out"]:
            context.warn(
                f"{counts['taken_out']:,} of {total} were also among the edges that train or carry "
                f"messages{way}: they do "
                f"neither now; {left_out['train']:,} training edges went"
            )
        for split in SPLITS[1:]:
            if left_out[split]:
                why = "stand in the test split too: they are tested only"
                if self.rule == "first_split":
                    why = "join pairs that came up in an earlier split: a model knows them by heart, so they go"
                count = f"{left_out[split]:,} of {left_out[split] + sizes[split]:,}"
                context.warn(f"{count} {split} edges{way} {why}; {sizes[split]:,} are left")
        if self.rule == "keep" and counts["in_train"]:
            context.warn(
                f"{counts['in_train']:,} of {total} train too{way}, as the split has it: a model may know them by "
                "heart; they stay, so that scores compare with published ones"
            )

    def _size(self, split: str) -> int:
        return self.writer.entries[f"{split}_edges"].shape[0]

    def _chunks(self, split: str) -> Iterator[tuple[Array, Array]]:
        pairs = self.writer.read(f"{split}_edges")
        relation = self.writer.read(f"{split}_relation") if self.num_relations else None
        for rows in blocks(len(pairs), _CHUNK_ROWS):
            some = np.asarray(pairs[rows])
            yield self._of_relation(some[:, 0], some[:, 1], None if relation is None else np.asarray(relation[rows]))

    def _of_relation(self, src: Array, dst: Array, relation: Any) -> tuple[Array, Array]:
        """Return pairs as the set has them: with relations src + num_nodes * relation, the smaller end first."""
        if not self.num_relations:
            return src, dst
        src, dst = src.astype(np.int64), dst.astype(np.int64)
        if not self.directed:
            src, dst = np.minimum(src, dst), np.maximum(src, dst)
        return src + self.num_nodes * np.asarray(relation, np.int64), dst

    def _drop(self, split: str, marks: int) -> int:
        """Leave the pairs with one of the marks out of a split; returns how many edges went."""
        parts = [self.pairs.marks(src, dst) & marks == 0 for src, dst in self._chunks(split)]
        stays = np.concatenate([np.empty(0, np.bool_), *parts])
        if stays.all():
            return 0
        for beside in ("edges", "edge_weight", "relation", "negative"):
            entry = self.writer.entries.get(f"{split}_{beside}")
            # A pool of negatives belongs to no edge in particular; candidates (n, K, 2) follow theirs.
            if entry is not None and (beside != "negative" or len(entry.shape) == 3):
                self.writer.write(f"{split}_{beside}", self.writer.read(f"{split}_{beside}")[stays])
        return int(np.count_nonzero(~stays))


@njit(cache=True, nogil=True)
def leave_pairs(runs: Runs, num_nodes: int, lookup: Array, met: Array) -> Array:
    """Return which edges of a sorted shard are not in `lookup`, bool (E,): both ascend, so one pass finds them.

    `lookup` is int64 (n,): destination * num_nodes + source; `met`, bool (n,), is set where an edge is one of them.
    """
    rows, counts, cols, _ = runs
    stays, place = np.empty(len(cols), np.bool_), 0
    for r in range(len(rows)):
        row = np.int64(rows[r]) * num_nodes
        at = np.searchsorted(lookup, row)
        for i in range(place, place + counts[r]):
            key = row + np.int64(cols[i])
            while at < len(lookup) and lookup[at] < key:
                at += 1
            stays[i] = at == len(lookup) or lookup[at] != key
            if not stays[i]:
                met[at] = True
        place += counts[r]
    return stays


_SEED = 0
_CHECKED_AT_ONCE = 1 << 24  # pairs; some 40 bytes each


def complete_negatives(
    context: StageContext,
    graph: GraphView,
    writer: ArrayWriter,
    manifest: DatasetManifest,
    *,
    directed: bool,
    names: Sequence[str] = (),
) -> list[str]:
    """Draw negatives for splits that have none, as many as edges; warn of given ones that are no negatives.

    Drawn ones could be edges (`tasks/edge_ends.py`), and are edges of no split and none that carries messages;
    `directed`: the reverse of an edge is none. Given ones stay as they are. What training draws from is written too, by
    the training edges alone.

    `names`: of the relations that links are predicted in. Returns what a negative joins, in words, for each of them.
    Raises DataError: nearly all pairs of nodes are edges.
    """
    num_nodes = graph.num_nodes
    ends = find_ends(split_pairs(graph.get), num_nodes, directed=manifest.directed)
    write_ends(find_ends(split_pairs(graph.get, ["train"]), num_nodes, directed=manifest.directed), num_nodes, writer)
    for code, split in enumerate(SPLITS[1:]):
        given = graph.get(f"{split}_negative")
        if given is None and not manifest.ranks_targets:
            positive = graph[f"{split}_edges"]
            edges = (split_pairs if manifest.has_context else graph_pairs)(graph.get)
            drawn: Any = (num_nodes, _SEED, edges)
            options: Any = {"directed": directed, "ends": ends}
            if manifest.num_candidates:
                negative = draw_candidates(code, positive[:, 0], manifest.num_candidates, *drawn, **options)
            else:
                pool = draw_pool(code, len(positive), *drawn, **options)
                negative = np.stack([pool["src"], pool["dst"]], 1)
            writer.write(f"{split}_negative", negative)
        elif given is not None and not manifest.negative_kinds:  # those of events are meant to be edges at other times
            pairs, relation = given.reshape(-1, 2), graph.get(f"{split}_negative_relation")
            num_edges = _count_edges(pairs, graph, relation, directed)
            if num_edges:
                context.warn(
                    f"{num_edges:,} of {len(pairs):,} given negatives of the {split} split are edges of the training, "
                    "validation or test split: a model that ranks them high is counted as wrong"
                )
            chunks = blocks(len(pairs), _CHECKED_AT_ONCE) if manifest.ogb_name is None else ()
            num_within = sum(
                int(np.count_nonzero(ends.within_a_side(pairs[rows, 0], pairs[rows, 1], num_nodes))) for rows in chunks
            )
            if num_within:
                context.warn(
                    f"{num_within:,} of {len(pairs):,} given negatives of the {split} split join nodes of one side of "
                    "the graph, which is bipartite: no edge does, and that alone tells them. Leave the negatives out, "
                    "and they are drawn from what could be an edge"
                )
    each = f", {manifest.num_candidates} for each held-out edge," if manifest.num_candidates else ""
    texts = [] if names else [f"negatives{each} join {ends.text(num_nodes)}"]
    for number, name in enumerate(names):
        ends = find_ends(_pairs_of(graph, number), num_nodes, directed=manifest.directed)
        texts.append(f"negatives of {name} join {ends.text(num_nodes)}")
    context.message("; ".join(texts))
    return texts


def _count_edges(pairs: Array, graph: GraphView, relation: Array | None, directed: bool) -> int:
    """Return how many pairs (n, 2) are edges of any split; of their own relation (n,), where they name one."""
    parts = [(pairs, split_pairs(graph.get))]
    if relation is not None:
        parts = [(pairs[relation == r], _pairs_of(graph, int(r))) for r in np.unique(relation)]
    count = 0
    for some, edges in parts:
        for rows in blocks(len(some), _CHECKED_AT_ONCE):
            is_edge = among_edges(some[rows, 0], some[rows, 1], graph.num_nodes, edges, directed=directed)
            count += int(np.count_nonzero(is_edge))
    return count


def _pairs_of(graph: GraphView, relation: int) -> Pairs:
    """Return the reader of the edges of all splits in a relation."""

    def read() -> Iterator[tuple[Array, Array]]:
        for split in SPLITS:
            pairs = graph[f"{split}_edges"]
            pairs = pairs[np.asarray(graph[f"{split}_relation"]) == relation]
            yield pairs[:, 0], pairs[:, 1]

    return read
