"""Deal the edges of link tasks out to train, valid and test, read pairs that are held out, draw negatives of events."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from configs.errors import DataError, RecipeError
from tasks.arrays import Array
from tasks.edge_ends import ANY, EdgeEnds, are_never_joined, find_ends
from tasks.ingest.graph_tables.configs import NEGATIVE_KINDS, TablesConfig
from tasks.ingest.graph_tables.edges import EdgeReader
from tasks.ingest.graph_tables.nodes import SplitColumn
from tasks.ingest.graph_tables.splits import id_batches
from tasks.ingest.ids.node_set import UNKNOWN
from tasks.ingest.splits import pair_keys, pick_splits
from tasks.ingest.tables.batches import TableBatch
from tasks.ingest.tables.columns import numbers, rows_of
from tasks.ingest.tables.table_configs import EdgeTableConfig, FilesConfig
from tasks.ingest.tables.times import TimeReader, cut_by_time
from tasks.ingest.writer import written_columns, written_pairs
from tasks.negatives import draw_pool
from tasks.pair_set import pair_numbers
from tasks.sizes import BYTES_A_PAIR, need_memory
from tasks.storage.manifests import LEFT_OUT, SPLITS


class LinkSplitter:
    """Deals the edges of a link task out while they stream by; training edges stay, the others are held back."""

    def __init__(self, config: TablesConfig, reader: EdgeReader) -> None:
        """`reader`: of the edge table, whose rows are dealt out."""
        self.config, self.nodes, self.edges, self.intake = config, reader.source, reader.edges, reader.intake
        self.targets = reader.target
        self.relations, self.writer = reader.relations, reader.writer
        self.split = config.split
        self.column = self.split.column
        """Column of the edge table that the splitter reads."""
        self._column = SplitColumn(self.column) if self.column else None
        self.columns = self.texts = (self.column,) if self.column else ()
        """What it reads of the edge table, and which of that a CSV's must be texts."""
        self.numbers: tuple[str, ...] = ()
        self._kind = reader.kind
        self._codes = self._cut_times(self.edges) if self.split.by == "time" else None
        self._stack = ExitStack()
        self._tables = {name: self._stack.enter_context(self.writer.table(f"split/{name}")) for name in SPLITS}
        self._counts: dict[str, Array] = {}
        """Edges of each relation, by split; where relations have a column."""

    def _cut_times(self, edges: EdgeTableConfig) -> Array:
        if not edges.time:
            raise RecipeError("dataset.split.by: time needs a time column in the edges (edges.time)")
        clock = TimeReader(edges.time, edges.time_format)
        ends = (edges.source, edges.target)
        sides = dict(zip(ends, (self.nodes, self.targets), strict=True))
        texts = [*clock.texts, *(text for column, side in sides.items() for text in side.texts(column))]
        times, kept = [np.empty(0, np.int64)], [np.empty(0, np.bool_)]
        for batch in self.intake.batches(edges, [*ends, edges.time], texts, (), clock.inferred):
            times.append(clock.read(batch))
            kept.append(np.ones(batch.num_rows, np.bool_))
            if edges.on_unknown_id == "drop":  # shares are those of the edges that stay
                for column, side in sides.items():
                    kept[-1] &= side.look_up(batch, column) != UNKNOWN
        self.intake.problems.raise_any()  # a wrong time would move the cut, and be counted again with the edges
        there = np.concatenate(kept)
        codes = np.full(len(there), -1, np.int8)
        codes[there] = cut_by_time(
            np.concatenate(times)[there], self.split.train, self.split.valid, edges.names, edges.time
        )
        return codes

    def deal(self, batch: TableBatch, parts: dict[str, Array], first: int) -> dict[str, Array]:
        """Write each split's edges and return those that train."""
        codes = self._pick(batch, parts, first)
        dealt = SPLITS[:1] if self.split.by == "files" else SPLITS
        kept = {"src", "dst", "weight", "time", "relation"}
        for code, name in enumerate(dealt):
            chosen = codes == code
            self._write(name, {column: parts[column][chosen] for column in parts if column in kept})
        if (codes < 0).any():  # of no split: kept apart, for they are no negatives either
            self._keep(LEFT_OUT, {name: parts[name][codes < 0] for name in ("src", "dst", "time") if name in parts})
        return {column: rows_of(values, codes == 0) for column, values in parts.items()}

    def _pick(self, batch: TableBatch, parts: dict[str, Array], first: int) -> Array:
        if self._column is not None:
            return self._column.codes(batch)
        if self._codes is not None:
            codes = self._codes[first : first + batch.num_read]
            return codes if batch.kept is None else codes[batch.kept]
        if self.split.by == "files":
            return np.zeros(batch.num_rows, np.int8)
        # Both directions and all repetitions of a pair go to one split: a held-out edge is never trained on.
        src, dst = parts["src"], parts["dst"]
        if self.targets is not self.nodes:  # ids of two types are no directions of one pair
            src, dst = src.astype(np.int64), dst + np.int64(self.nodes.num_nodes)
        keys = pair_keys(src, dst)
        picked: Array = pick_splits(keys, self.split.seed, self.split.valid, self.split.test)
        return picked

    def finish(self) -> None:
        """Close the tables and draw negatives. Raises DataError where a split is empty."""
        if self.split.by == "files":
            for name in SPLITS[1:]:
                self._read_pairs(name)
        self._stack.close()
        sizes = {name: self._tables[name].num_rows for name in SPLITS}
        if LEFT_OUT in self._tables:
            count = self._tables[LEFT_OUT].num_rows
            self.intake.adjust(self.edges, "edges of no split left out", count)
            self.intake.hints.append(
                f"{self.edges.names} (column {self.split.column}): {count:,} edges are of no split, for "
                "their cell is empty; they neither train nor carry messages, and are no negatives either"
            )
        for name, size in sizes.items():
            if size == 0:
                where = self.split.column or self.split.files.get(name) or f"dataset.split, by {self.split.by}"
                way_out = f"; add edges, or raise dataset.split.{name}" if self.split.by == "ratio" else ""
                why = f"the {name} split is empty ({sum(sizes.values()):,} edges in all; {where}){way_out}"
                raise DataError(why, path=self.edges.names)
        counts = self._counts.get("train", np.zeros(0, np.int64))
        for code, name in enumerate(self.relations.names):
            if code >= len(counts) or not counts[code]:
                why = f"no edge of relation {name!r} trains: nothing is known of it; leave it out, or hold out less"
                raise DataError(why, path=self.edges.names)
        for code, name in enumerate(SPLITS[1:]):
            if f"{name}_negative" in self._tables or self.config.candidates or self.config.is_typed:
                continue  # given, or drawn by preprocess, which knows all types
            draw = self._draw_kinds if self.split.negatives else self._draw_pool
            self.writer.write(f"split/{name}_negative", draw(code, name))

    def _draw_pool(self, code: int, name: str) -> dict[str, Array]:
        """Draw the negatives of a split; of relations each has its own ends, and its share of the split's edges."""
        edges, count, num_nodes = written_pairs(self.writer), self.config.num_negatives, self.nodes.num_nodes
        if self.relations.column is None:
            return self._pool(code, count, find_ends(edges, num_nodes, directed=self.config.directed))
        pools = []
        # As many of each relation as the split's edges have.
        places = (np.arange(count) + 0.5) * self._counts[name].sum() / count
        relations = np.searchsorted(np.cumsum(self._counts[name]), places, side="right")
        shares = np.bincount(relations, minlength=len(self.relations.names))
        for relation in np.flatnonzero(shares).tolist():
            ends = find_ends(written_pairs(self.writer, relation), num_nodes, directed=self.config.directed)
            pool = self._pool(code + relation * len(SPLITS), int(shares[relation]), ends)
            pools.append({**pool, "relation": np.full(len(pool["src"]), relation, np.int32)})
        return {column: np.concatenate([pool[column] for pool in pools]) for column in pools[0]}

    def _pool(self, number: int, count: int, ends: EdgeEnds) -> dict[str, Array]:
        # Not the reverse of an edge either: preprocess may let messages pass both ways.
        edges, names = written_pairs(self.writer), self.edges.names
        return draw_pool(number, count, self.nodes.num_nodes, self.split.seed, edges, ends=ends, path=names)

    def _draw_kinds(self, code: int, name: str) -> dict[str, Array]:
        columns = ("src", "dst", "time")
        train, events = (Events(*written_columns(self.writer, split, columns)) for split in ("train", name))
        count = len(events.src) * len(self.split.negatives) * self.split.per_edge
        need_memory(BYTES_A_PAIR * count, f"drawing {count:,} negatives", "set dataset.split.per_edge lower")
        ends = find_ends(written_pairs(self.writer), self.nodes.num_nodes, directed=self.config.directed)
        directed, seed = self.config.directed, self.split.seed
        draws = EventNegatives(train, self.nodes.num_nodes, directed=directed, seed=seed, ends=ends)
        drawn = draws.draw(events, self.split.negatives, self.split.per_edge, code)
        return {end: ids.astype(self._kind) for end, ids in drawn.items()}

    def _read_pairs(self, name: str) -> None:
        """Read a split's file of pairs; those that are labelled 0 are its negatives."""
        split, edges = self.split, self.edges
        if not split.names_columns:
            for batch, names in id_batches(split.files[name], self.config, (self.nodes, self.targets), self.intake):
                self._keep(name, self._ends(batch, names))
            return
        ends = [split.source or edges.source, split.target or edges.target]
        others = [column for column in (split.relation_column, split.label) if column is not None]
        texts = [
            *self.nodes.texts(ends[0]),
            *self.targets.texts(ends[1]),
            *((split.relation_column,) if split.relation_column else ()),
        ]
        table = FilesConfig(files=(split.files[name],), header=split.header)
        for batch in self.intake.batches(table, [*ends, *others], texts):
            pairs = self._ends(batch, ends)
            if split.relation_column is not None:
                pairs["relation"] = self.relations.codes(batch, split.relation_column, known_only=True)
            if split.label is None:
                self._keep(name, pairs)
                continue
            is_edge = self._labels(batch, split.label)
            self._keep(name, {column: values[is_edge] for column, values in pairs.items()})
            self._keep(f"{name}_negative", {column: values[~is_edge] for column, values in pairs.items()})

    def _ends(self, batch: TableBatch, ends: Sequence[str]) -> dict[str, Array]:
        sides = zip(("src", "dst"), (self.nodes, self.targets), ends, strict=True)
        return {end: side.find(batch, column).astype(self._kind) for end, side, column in sides}

    @staticmethod
    def _labels(batch: TableBatch, column: str) -> Array:
        """Return which pairs are edges, bool (n,)."""
        values = numbers(batch, column)
        if values.ndim != 1:
            batch.wrong_column(column, "is a column of lists; 1 says that a pair is an edge, 0 that it is none")
            return np.ones(len(values), np.bool_)
        message = "the label {:g} is neither 1 (an edge) nor 0 (none)"
        batch.wrong(~np.isin(values, (0, 1)), column, "no label", lambda row: message.format(values[row]))
        return values == 1

    def _keep(self, name: str, pairs: dict[str, Array]) -> None:
        if not len(pairs["src"]):
            return
        if name not in self._tables:
            self._tables[name] = self._stack.enter_context(self.writer.table(f"split/{name}"))
        self._write(name, pairs)

    def _write(self, name: str, pairs: dict[str, Array]) -> None:
        if "relation" in pairs:
            before = self._counts.get(name, np.zeros(0, np.int64))
            counts = np.bincount(pairs["relation"], minlength=len(before))
            counts[: len(before)] += before
            self._counts[name] = counts
        self._tables[name].write(pairs)


_ROUNDS = 32


@dataclass(frozen=True)
class Events:
    """Edges of a split, (n,) each."""

    src: Array
    dst: Array
    time: Array


class EventNegatives:
    """Draws negatives; 8 bytes a pair that was an edge, and 24 for each negative of a split."""

    def __init__(self, train: Events, num_nodes: int, *, directed: bool, seed: int, ends: EdgeEnds = ANY) -> None:
        """`ends`: what random ones join."""
        self.num_nodes, self.ends, self.directed, self.seed = num_nodes, ends, directed, seed
        self.trained = np.unique(self._numbers(train.src, train.dst))

    def draw(self, events: Events, kinds: Sequence[str], per_edge: int, split: int) -> dict[str, Array]:
        """Return `src` and `dst`, int64 (n, kinds * per_edge): kind by kind. Raises DataError: a kind has none."""
        numbers = self._numbers(events.src, events.dst)
        of_split = np.unique(numbers)
        parts = []
        for kind in kinds:
            random = np.random.default_rng([self.seed, split, NEGATIVE_KINDS.index(kind)])
            shape = len(numbers), per_edge
            if kind == "random":
                parts.append(self._random(events, of_split, shape, random))
                continue
            if kind == "historical":
                pool, why = (
                    np.setdiff1d(self.trained, of_split),
                    "all pairs that were edges in training are edges again",
                )
            else:
                pool, why = np.setdiff1d(of_split, self.trained), "all edges were edges in training already"
            if not len(pool):
                raise DataError(
                    f"there are no {kind} negatives, because {why}; leave {kind} out of dataset.split.negatives"
                )
            drawn = random.choice(pool, shape)
            if kind == "inductive":
                self._not_at_once(drawn, pool, numbers, events.time, random)
            parts.append(np.stack(np.divmod(drawn, self.num_nodes), 2))
        pairs = np.concatenate(parts, 1)
        return {"src": pairs[:, :, 0], "dst": pairs[:, :, 1]}

    def _numbers(self, src: Array, dst: Array) -> Array:
        return pair_numbers(src, dst, self.num_nodes, directed=self.directed)

    def _random(self, events: Events, of_split: Array, shape: tuple[int, int], random: np.random.Generator) -> Array:
        """Return the events' sources with any targets that make no edge of the split but could be one, (n, m, 2).

        A source that is joined to all of them gives way to another one. Raises DataError: there are no such pairs.
        """
        src = np.broadcast_to(events.src[:, None].astype(np.int64), shape).copy()
        dst = np.empty(shape, np.int64)
        wrong = np.ones(shape, np.bool_)
        for ends, keep in ((self.ends, True), (self.ends, False), (self.ends.wider(self.num_nodes), False)):
            for _ in range(_ROUNDS):
                count = int(wrong.sum())
                dst[wrong] = _drawn(ends.targets, count, self.num_nodes, random)
                if not keep:
                    src[wrong] = _drawn(ends.sources, count, self.num_nodes, random)
                wrong = np.isin(self._numbers(src, dst), of_split)
                wrong |= are_never_joined(src.ravel(), dst.ravel(), ends.side).reshape(shape)
                if not wrong.any():
                    return np.stack([src, dst], 2)
        raise DataError(
            "there are no random negatives, because nearly all possible pairs are edges of the split; leave "
            "random out of dataset.split.negatives"
        )

    @staticmethod
    def _not_at_once(drawn: Array, pool: Array, numbers: Array, time: Array, random: np.random.Generator) -> None:
        """Draw anew, in place, what is an edge at the very time of its event."""
        moments, moment = np.unique(time, return_inverse=True)
        pairs, pair = np.unique(numbers, return_inverse=True)
        at_once = np.unique(pair * len(moments) + moment)
        for _ in range(_ROUNDS):
            keys = np.searchsorted(pairs, drawn) * len(moments) + moment[:, None]
            wrong = np.isin(keys, at_once)
            if not wrong.any():
                break
            drawn[wrong] = random.choice(pool, int(wrong.sum()))


def _drawn(ends: Array, shape: Any, num_nodes: int, random: np.random.Generator) -> Array:
    """Return nodes, int64: any of `ends`, or of all where these are none."""
    places = random.integers(0, len(ends) or num_nodes, shape)
    return ends[places].astype(np.int64) if len(ends) else places
