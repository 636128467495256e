"""Deal nodes or edges out to train, valid and test."""

from __future__ import annotations

import math
from contextlib import ExitStack
from typing import Any

import numpy as np

from configs.errors import DataError, RecipeError
from tasks.arrays import Array
from tasks.ingest.ids.node_set import UNKNOWN, NodeSet, occurred_earlier
from tasks.ingest.labels import check_labelled, has_label
from tasks.ingest.synthetic.generator import pair_keys, pick_splits
from tasks.ingest.tables.configs import EdgesConfig, FilesConfig, SplitConfig, TablesConfig
from tasks.ingest.tables.intake import Intake, TableBatch, table_files
from tasks.ingest.tables.nodes import SplitColumn
from tasks.ingest.tables.times import TimeReader
from tasks.ingest.writer import DatasetWriter, written_pairs
from tasks.negatives import draw_pool
from tasks.storage.graph_store import id_dtype
from tasks.storage.manifests import LEFT_OUT, SPLITS

_SURE = 3.0
"""Edges that a split has on average where it is empty once in 20 times."""


def node_splits(
    config: TablesConfig, nodes: NodeSet, labels: Array, owner: Array | None, intake: Intake, what: str = "node"
) -> dict[str, Array]:
    """Return ascending dense ids (int64) of each split; `owner` holds the split column's codes, where one is used.

    `what` is split, node or graph, for messages.

    Raises:
        DataError: an empty split, an id twice or in two splits, a node of a split without a label.
    """
    split = config.split
    labelled = has_label(labels)
    if split.by == "files":
        owner = _from_files(config, nodes, intake)
        intake.problems.raise_any()
    elif split.by != "column":
        owner = _dealt(split, nodes, labels, np.flatnonzero(labelled))
    assert owner is not None
    # Nodes that only edges name are in no split.
    owner = np.append(owner, np.full(nodes.num_nodes - len(owner), -1, np.int8))
    found = {}
    for code, name in enumerate(SPLITS):
        ids = np.flatnonzero(owner == code).astype(np.int64)
        where = split.column or split.files.get(name) or f"split by {split.by}"
        if len(ids) == 0:
            raise DataError(f"the {name} split is empty ({int(labelled.sum()):,} {what}s are labelled)", path=where)
        check_labelled(labelled, ids, name, what, where, nodes.original)
        found[name] = ids
    return found


def _dealt(split: SplitConfig, nodes: NodeSet, labels: Array, candidates: Array) -> Array:
    """Deal out the labelled nodes by chance, by class or by time; return codes, int8 (num_nodes,)."""
    owner = np.full(nodes.num_nodes, -1, np.int8)
    count = len(candidates)
    shuffled = candidates[np.random.default_rng(split.seed).permutation(count)]
    if split.by == "time":
        if nodes.time is None:
            raise RecipeError(f"dataset.split.by: time needs a time column in the {nodes.kind} nodes (nodes.time)")
        owner[candidates] = cut_by_time(nodes.time[candidates], split.train, split.valid)
    elif split.by == "ratio":
        owner[shuffled] = _cut(np.arange(count), count, split)
    else:
        classes = labels[shuffled] if labels.ndim == 1 else labels[shuffled, 0]
        order = np.argsort(classes, kind="stable")
        _, starts, sizes = np.unique(classes[order], return_index=True, return_counts=True)
        rank = np.arange(count) - np.repeat(starts, sizes)
        owner[shuffled[order]] = _cut(rank, np.repeat(sizes, sizes), split)
    return owner


def _cut(rank: Array, size: Array | int, split: SplitConfig) -> Array:
    """Return the split of rank r of n: train below train * n, valid below (train + valid) * n, then test."""
    share = (rank + 0.5) / size
    return (share >= split.train).astype(np.int8) + (share >= split.train + split.valid).astype(np.int8)


def cut_by_time(time: Array, train: float, valid: float) -> Array:
    """Return codes, int8: the oldest share trains, the newest tests; equal times stay together."""
    codes = np.zeros(len(time), np.int8)
    if len(time) == 0:
        return codes
    for share in (train, train + valid):
        at = min(round(share * len(time)), len(time) - 1)
        codes += time >= np.partition(time, at)[at]
    return codes


def _from_files(config: TablesConfig, nodes: NodeSet, intake: Intake) -> Array:
    owner = np.full(nodes.num_nodes, -1, np.int8)
    for code, name in enumerate(SPLITS):
        for batch, (column,) in _id_batches(config.split.files[name], config, nodes, 1, intake):
            codes = nodes.look_up(batch, column)
            nodes.refuse_unknown(batch, column, codes)
            _claim(owner, batch.keep(codes >= 0), column, codes[codes >= 0], code, nodes.kind)
    return owner


def _claim(owner: Array, batch: TableBatch, column: str, codes: Array, code: int, what: str) -> None:
    """Mark nodes, or `what` they are, as belonging to a split; those that belong to one already are gathered."""
    again = occurred_earlier(codes, 0)
    before = owner[codes]
    ids = batch.column(column)

    def message(row: int) -> str:
        other = SPLITS[before[row]] if before[row] >= 0 else SPLITS[code]
        rest = "stands in the split twice" if other == SPLITS[code] else f"is in the {other} split too; splits overlap"
        return f"{what} {ids[row].as_py()!r} {rest}"

    batch.wrong(again | (before >= 0), column, "splits overlap", message)
    owner[codes] = code


def _id_batches(path: str, config: TablesConfig, nodes: NodeSet, width: int, intake: Intake) -> Any:
    """Yield batches of a file of ids and the names of its first `width` columns."""
    table = FilesConfig(files=(path,), header=config.split.header)
    # Ids alone, a line each, may have blanks.
    names = table_files(table).column_names()[:width]
    if len(names) < width:
        raise DataError(f"has {len(names)} column, {width} are needed", path=path)
    for batch in intake.batches(table, names, nodes.texts(*names), whole_lines=width == 1):
        yield batch, names


class LinkSplitter:
    """Deals the edges of a link task out while they stream by; training edges stay, the others are held back."""

    def __init__(
        self, config: TablesConfig, nodes: NodeSet, edges: EdgesConfig, writer: DatasetWriter, intake: Intake
    ) -> None:
        self.config, self.nodes, self.edges, self.writer, self.intake = config, nodes, edges, writer, intake
        self.split = config.split
        self._column = SplitColumn(self.split.column) if self.split.column else None
        self._kind = id_dtype(nodes.num_nodes)
        self._codes = self._cut_times(edges) if self.split.by == "time" else None
        self._stack = ExitStack()
        self._tables = {name: self._stack.enter_context(writer.table(f"split/{name}")) for name in SPLITS}

    @property
    def column(self) -> str | None:
        """Column of the edge table that the splitter reads."""
        return self.split.column

    def _cut_times(self, edges: EdgesConfig) -> Array:
        if not edges.time:
            raise RecipeError("dataset.split.by: time needs a time column in the edges (edges.time)")
        clock = TimeReader(edges.time, edges.time_format)
        ends = (edges.source, edges.target)
        texts = [*clock.texts, *self.nodes.texts(*ends)]
        times, kept = [np.empty(0, np.int64)], [np.empty(0, np.bool_)]
        for batch in self.intake.batches(edges, [*ends, edges.time], texts, (), clock.inferred):
            times.append(clock.read(batch))
            known = np.ones(batch.num_rows, np.bool_)
            if edges.on_unknown_id == "drop":  # shares are those of the edges that stay
                for column in ends:
                    known &= self.nodes.look_up(batch, column) != UNKNOWN
            kept.append(known)
        self.intake.problems.raise_any()  # a wrong time would move the cut, and be counted again with the edges
        there = np.concatenate(kept)
        codes = np.full(len(there), -1, np.int8)
        codes[there] = cut_by_time(np.concatenate(times)[there], self.split.train, self.split.valid)
        return codes

    def deal(self, batch: TableBatch, parts: dict[str, Array], first: int) -> dict[str, Array]:
        """Write each split's edges and return those that train."""
        codes = self._pick(batch, parts, first)
        dealt = SPLITS[:1] if self.split.by == "files" else SPLITS
        kept = {"src", "dst", "weight", "time"}
        for code, name in enumerate(dealt):
            chosen = codes == code
            self._tables[name].write({column: parts[column][chosen] for column in parts if column in kept})
        if (codes < 0).any():
            self._leave_out({name: parts[name][codes < 0] for name in ("src", "dst", "time") if name in parts})
        return {column: values[codes == 0] for column, values in parts.items()}

    def _leave_out(self, edges: dict[str, Array]) -> None:
        """Keep edges of no split apart: they neither train nor carry messages, and are no negatives either."""
        if LEFT_OUT not in self._tables:
            self._tables[LEFT_OUT] = self._stack.enter_context(self.writer.table(f"split/{LEFT_OUT}"))
        self._tables[LEFT_OUT].write(edges)

    def _pick(self, batch: TableBatch, parts: dict[str, Array], first: int) -> Array:
        if self._column is not None:
            return self._column.codes(batch)
        if self._codes is not None:
            codes = self._codes[first : first + batch.num_read]
            return codes if batch.kept is None else codes[batch.kept]
        if self.split.by == "files":
            return np.zeros(batch.num_rows, np.int8)
        # Both directions and all repetitions of a pair go to one split: a held-out edge is never trained on.
        keys = pair_keys(parts["src"], parts["dst"])
        picked: Array = pick_splits(keys, self.split.seed, self.split.valid, self.split.test)
        return picked

    def finish(self) -> dict[str, int]:
        """Close the tables and draw negatives; return the sizes. Raises DataError where a split is empty."""
        if self.split.by == "files":
            for name in SPLITS[1:]:
                self._read_pairs(name)
        self._stack.close()
        sizes = {name: self._tables[name].num_rows for name in SPLITS}
        self._note_left_out()
        for name, size in sizes.items():
            if size == 0:
                self._refuse_empty(name, sum(sizes.values()))
        for code, name in enumerate(SPLITS[1:]):
            # Not the reverse of an edge either: preprocess may let messages pass both ways.
            edges = written_pairs(self.writer)
            count, seed = self.config.num_negatives, self.split.seed
            pool = draw_pool(code, count, self.nodes.num_nodes, seed, edges, path=self.edges.names)
            self.writer.write(f"split/{name}_negative", pool)
        return sizes

    def _refuse_empty(self, name: str, total: int) -> None:
        """Say how many edges a split that got none would need, and a way out."""
        by, share = self.split.by, float(getattr(self.split, name))
        if by == "ratio" and share > 0:
            need = math.ceil(_SURE / share)
            raise DataError(
                f"has {total:,} edges, and the {name} split is empty: for a share of {share:g} some {need:,} are "
                "needed; add edges, or hold out larger shares: dataset.split.train=0.4 dataset.split.valid=0.3 "
                "dataset.split.test=0.3 (some 10 edges)",
                path=self.edges.names,
            )
        where = self.split.column or self.split.files.get(name) or f"dataset.split, by {by}"
        way_out = f"; raise dataset.split.{name}" if by == "ratio" else ""
        raise DataError(f"the {name} split is empty ({total:,} edges in all; {where}){way_out}", path=self.edges.names)

    def _note_left_out(self) -> None:
        count = self._tables[LEFT_OUT].num_rows if LEFT_OUT in self._tables else 0
        self.intake.adjust(self.edges, "edges of no split left out", count)
        if count:
            self.intake.hints.append(
                f"{self.edges.names} (column {self.split.column}): {count:,} edges are of no split, for "
                "their cell is empty; they neither train nor carry messages, and are no negatives either"
            )

    def _read_pairs(self, name: str) -> None:
        for batch, names in _id_batches(self.split.files[name], self.config, self.nodes, 2, self.intake):
            pair = [self.nodes.find(batch, column) for column in names]
            self._tables[name].write({"src": pair[0].astype(self._kind), "dst": pair[1].astype(self._kind)})
