"""The tables of a triple task, as every source of knowledge graphs writes them: splits, pairs that train, names.

Memory: one chunk, a row group of each table that is open, and what `EdgeCheck` remembers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import pyarrow as pa

from configs.errors import DataError
from tasks.arrays import Array, blocks, offsets
from tasks.ingest.dataset_fields import dataset_fields
from tasks.ingest.edges import EdgeCheck
from tasks.ingest.writer import DatasetWriter, TableWriter
from tasks.storage.file_names import joined_name
from tasks.storage.graph_store import id_dtype
from tasks.storage.manifests import HELD_OUT, SPLITS, EdgeType, FeatureColumn, NodeType

RELATION = "to"
"""Of the tables of edges: there all relations are one."""
_ROWS = 1 << 18
_MAX_PAIRS = 1024  # each has a table that waits for rows


class TripleTables(ExitStack):
    """Takes triples split by split; a context manager. Ids are those of all types end to end."""

    def __init__(self, writer: DatasetWriter, types: Sequence[tuple[str, int]], where: object) -> None:
        """`types`: name and number of entities of each; `where`: the source, for messages."""
        super().__init__()
        self.writer, self.types, self.where = writer, types, where
        self.offsets = offsets([count for _, count in types])
        self.kind = id_dtype(int(self.offsets[-1]))
        self._splits: dict[str, TableWriter] = {}
        self._edges: dict[tuple[int, int], tuple[TableWriter, EdgeCheck]] = {}
        self._held_out: dict[tuple[int, int], TableWriter] = {}

    def add(self, split: str, src: Array, relation: Array, dst: Array, **others: Array) -> None:
        """Write triples, (n,) each; `others`: weight (float32) and time (int64), where there are such columns."""
        if split not in self._splits:
            self._splits[split] = self.enter_context(self.writer.table(f"split/{split}"))
        src, dst = src.astype(self.kind, copy=False), dst.astype(self.kind, copy=False)
        self._splits[split].write({"src": src, "relation": relation.astype(np.int32), "dst": dst, **others})
        times = others.get("time")
        if split == SPLITS[0]:
            self._add_edges(src, dst, times)
        elif times is not None:
            self._add_edges(src, dst, times, held_out=True)

    def _add_edges(self, src: Array, dst: Array, times: Array | None, *, held_out: bool = False) -> None:
        if len(self.types) == 1:
            self._add_pair((0, 0), src, dst, times, held_out)
            return
        ends = [np.searchsorted(self.offsets, ids, side="right") - 1 for ids in (src, dst)]
        pairs = ends[0] * len(self.types) + ends[1]
        order = np.argsort(pairs, kind="stable")
        starts = np.flatnonzero(np.diff(pairs[order], prepend=-1))
        for part in np.split(order, starts[1:]) if len(order) else ():
            first, second = divmod(int(pairs[part[0]]), len(self.types))
            heads, tails = src[part] - self.offsets[first], dst[part] - self.offsets[second]
            self._add_pair((first, second), heads, tails, None if times is None else times[part], held_out)

    def _add_pair(self, pair: tuple[int, int], src: Array, dst: Array, times: Array | None, held_out: bool) -> None:
        """Write edges between two types; held-out ones, which snapshots may train on, into a table of their own."""
        if pair not in self._edges:
            if len(self._edges) == _MAX_PAIRS:
                raise DataError(
                    f"more than {_MAX_PAIRS:,} pairs of entity types meet in triples; use fewer types, or none",
                    path=self.where,
                )
            table = self.enter_context(self.writer.table(f"edges/{joined_name(self._triplet(pair))}"))
            sizes = (self.types[end][1] for end in pair)
            self._edges[pair] = table, EdgeCheck(*sizes, same_type=pair[0] == pair[1])
        table, check = self._edges[pair]
        kind = id_dtype(max(check.num_src, check.num_dst))
        columns = {"src": src.astype(kind, copy=False), "dst": dst.astype(kind, copy=False)}
        if times is not None:
            columns["time"] = times
        if not held_out:
            check.add(src, dst, self.where)
            table.write(columns)
            return
        table.write({name: column[:0] for name, column in columns.items()})  # a table is there, also if none trains
        if pair not in self._held_out:
            name = f"{HELD_OUT}/{joined_name(self._triplet(pair))}"
            self._held_out[pair] = self.enter_context(self.writer.table(name))
        self._held_out[pair].write(columns)

    def _triplet(self, pair: tuple[int, int]) -> tuple[str, str, str]:
        return self.types[pair[0]][0], RELATION, self.types[pair[1]][0]

    def fields(
        self, dataset: str, num_relations: int, features: Mapping[str, tuple[FeatureColumn, ...]], **others: Any
    ) -> dict[str, Any]:
        """Return the manifest's fields; `features`: those of each type. All tables are closed."""
        edge_types = []
        for pair, (_, check) in self._edges.items():
            source, relation, target = self._triplet(pair)
            edge_types.append(EdgeType(source=source, relation=relation, target=target, num_edges=check.num_edges))
        return dataset_fields(
            self.writer,
            dataset,
            "triple",
            directed=True,
            node_types=[
                NodeType(name=name, num_nodes=count, features=features.get(name, ())) for name, count in self.types
            ],
            edge_types=edge_types,
            checks=[check for _, check in self._edges.values()],
            num_relations=num_relations,
            **others,
        )


def write_relations(writer: DatasetWriter, names: pa.Array, features: Iterator[Array] | None = None) -> None:
    """Write what the numbers of relations mean: texts in their order. `features`: as of `write_entities`."""
    with writer.table("relations") as table:
        first = 0
        for feat in features if features is not None else (None,):
            count = len(names) if feat is None else len(feat)
            columns = {"relation": np.arange(first, first + count, dtype=np.int32), "name": names.slice(first, count)}
            table.write(columns if feat is None else columns | {"feat": feat})
            first += count
        assert first == len(names), (first, len(names))


def write_entities(writer: DatasetWriter, kind: str, count: int, features: Iterator[Array] | None = None) -> None:
    """Write `nodes/TYPE`; `features` yields their rows, (n, dim) float32, in portions of any size."""
    with writer.table(f"nodes/{kind}") as table:
        if features is None:
            for rows in blocks(count, _ROWS):
                table.write({"node_id": np.arange(rows.start, rows.stop, dtype=np.int64)})
            if not count:
                table.write({"node_id": np.empty(0, np.int64)})
            return
        first = 0
        for feat in features:
            table.write({"node_id": np.arange(first, first + len(feat), dtype=np.int64), "feat": feat})
            first += len(feat)
        assert first == count, (first, count)
