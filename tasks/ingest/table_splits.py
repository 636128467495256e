"""Deal nodes or edges out to train, valid and test."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from configs.errors import DataError, RecipeError
from tasks.graph_store import id_dtype
from tasks.ingest.generator import SPLITS, pair_keys, pick_splits
from tasks.ingest.labels import check_labelled, has_label
from tasks.ingest.negatives import draw_pool, written_pairs
from tasks.ingest.ogb_splits import claim
from tasks.ingest.table_columns import times
from tasks.ingest.table_files import Batch, TableFiles
from tasks.ingest.table_nodes import NodeSet, SplitColumn
from tasks.ingest.tables import EdgesConfig, SplitConfig, Tables
from tasks.ingest.writer import DatasetWriter

Array = NDArray[Any]


def node_splits(config: Tables.Config, nodes: NodeSet, labels: Array, owner: Array | None) -> dict[str, Array]:
    """Return ascending dense ids (int64) of each split; `owner` holds the split column's codes, where one is used.

    Raises:
        DataError: an empty split, an id twice or in two splits, a node of a split without a label.
    """
    split = config.split
    labelled = has_label(labels)
    if split.by == "files":
        owner = _from_files(config, nodes)
    elif split.by != "column":
        owner = _dealt(split, nodes, labels, np.flatnonzero(labelled))
    assert owner is not None
    found = {}
    for code, name in enumerate(SPLITS):
        ids = np.flatnonzero(owner == code).astype(np.int64)
        where = split.column or split.files.get(name) or f"split by {split.by}"
        if len(ids) == 0:
            raise DataError(f"the {name} split is empty ({int(labelled.sum()):,} nodes are labelled)", path=where)
        check_labelled(labelled, ids, name, "node", where)
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
        owner[candidates] = cut_by_time(nodes.time[candidates], split)
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


def cut_by_time(time: Array, split: SplitConfig) -> Array:
    """Return codes, int8: oldest train, newest test; equal times stay together."""
    codes = np.zeros(len(time), np.int8)
    if len(time) == 0:
        return codes
    for share in (split.train, split.train + split.valid):
        at = min(round(share * len(time)), len(time) - 1)
        codes += time >= np.partition(time, at)[at]
    return codes


def _from_files(config: Tables.Config, nodes: NodeSet) -> Array:
    owner = np.full(nodes.num_nodes, -1, np.int8)
    for code, name in enumerate(SPLITS):
        path = config.split.files[name]
        parts = []
        for batch, (column,) in _id_batches(path, config, nodes, 1):
            codes = nodes.find(batch, column)
            nodes.check_range(batch, column, codes)
            parts.append(codes)
        claim(owner, np.concatenate(parts) if parts else np.empty(0, np.int64), code, "node", path)
    return owner


def _id_batches(path: str, config: Tables.Config, nodes: NodeSet, width: int) -> Any:
    """Yield batches of a file of ids and the names of its first `width` columns."""
    files = TableFiles((path,), header=config.split.header)
    names = files.column_names()[:width]
    if len(names) < width:
        raise DataError(f"has {len(names)} column, {width} are needed", path=path)
    for batch in files.batches(names, nodes.texts(config.text_ids, *names)):
        yield batch, names


class LinkSplitter:
    """Deals the edges of a link task out while they stream by; training edges stay, the others are held back."""

    def __init__(self, config: Tables.Config, nodes: NodeSet, edges: EdgesConfig, writer: DatasetWriter) -> None:
        self.config, self.nodes, self.writer = config, nodes, writer
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
        from tasks.ingest.table_nodes import table_files

        if not edges.time:
            raise RecipeError("dataset.split.by: time needs a time column in the edges (edges.time)")
        found = [times(batch, edges.time) for batch in table_files(edges).batches([edges.time])]
        return cut_by_time(np.concatenate(found) if found else np.empty(0, np.int64), self.split)

    def deal(self, batch: Batch, parts: dict[str, Array], first: int) -> dict[str, Array]:
        """Write each split's edges and return those that train."""
        codes = self._pick(batch, parts, first)
        dealt = SPLITS[:1] if self.split.by == "files" else SPLITS
        kept = {"src", "dst", "weight", "time"}
        for code, name in enumerate(dealt):
            chosen = codes == code
            self._tables[name].write({column: parts[column][chosen] for column in parts if column in kept})
        return {column: values[codes == 0] for column, values in parts.items()}

    def _pick(self, batch: Batch, parts: dict[str, Array], first: int) -> Array:
        if self._column is not None:
            return self._column.codes(batch)
        if self._codes is not None:
            return self._codes[first : first + batch.data.num_rows]
        if self.split.by == "files":
            return np.zeros(batch.data.num_rows, np.int8)
        # Both directions and all repetitions of a pair go to one split: a held-out edge is never trained on.
        keys = pair_keys(parts["src"], parts["dst"])
        codes: Array = pick_splits(keys, self.split.seed, self.split.valid, self.split.test)
        return codes

    def finish(self) -> dict[str, int]:
        """Close the tables and draw negatives; return the sizes. Raises DataError where a split is empty."""
        if self.split.by == "files":
            for name in SPLITS[1:]:
                self._read_pairs(name)
        self._stack.close()
        sizes = {name: self._tables[name].num_rows for name in SPLITS}
        for name, size in sizes.items():
            if size == 0:
                where = self.split.column or self.split.files.get(name) or f"split by {self.split.by}"
                raise DataError(f"the {name} split is empty", path=where)
        for code, name in enumerate(SPLITS[1:]):
            # Not the reverse of an edge either: preprocess may let messages pass both ways.
            edges = written_pairs(self.writer)
            pool = draw_pool(code, self.config.num_negatives, self.nodes.num_nodes, self.split.seed, edges)
            self.writer.write(f"split/{name}_negative", pool)
        return sizes

    def _read_pairs(self, name: str) -> None:
        for batch, names in _id_batches(self.split.files[name], self.config, self.nodes, 2):
            pair = [self.nodes.find(batch, column) for column in names]
            for column, codes in zip(names, pair, strict=True):
                self.nodes.check_range(batch, column, codes)
            self._tables[name].write({"src": pair[0].astype(self._kind), "dst": pair[1].astype(self._kind)})
