"""What edges carry: weight, time, type and features follow their edges into CSC order.

Where parallel edges merge, weights combine as the recipe says; time and features are those of the first edge in the
table's order. Added self-loops have weight 1, time 0 and features 0. A relation without a column has weight 1, time 0,
features 0, and a code of its own (the last one) in categorical columns. Where nodes are predicted at moments, what has
no time was always there (ALWAYS instead of 0), and numbers are stored as sign(x) log(1 + |x|).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from configs.errors import DataError
from tasks.arrays import Array, blocks, offsets
from tasks.preprocess.id_space import LOOP_TYPE, IdSpace, union_of_features
from tasks.preprocess.texts.encoding import EncodedTexts
from tasks.preprocess.transforms.base import State, check_codes
from tasks.storage.dataset_store import DatasetStore, ShardRef, iter_row_groups, to_numpy
from tasks.storage.graph_store import ALWAYS, ArrayWriter
from tasks.storage.manifests import FeatureColumn, TypeColumns

_CHUNK_EDGES = 1 << 20
EncodeColumn = Callable[[str, Sequence[ShardRef]], EncodedTexts]


class TableRelations(NamedTuple):
    """Of each edge table what tells the relation of an edge, int64 (T,)."""

    forward: Array
    """The relation of its edges."""
    reverse: Array
    """That of their reverses."""
    target_first: Array
    """The first node of its target type."""
    target_last: Array
    """The node behind its last."""


@njit(cache=True, nogil=True)
def edge_types(
    indptr: Array,
    eids: Array,
    table_starts: Array,
    relations: TableRelations,
    targets: Array,
    loop_type: int,
    out: Array,
) -> None:
    """Number the relation of each edge: its table's, or the reverse one where the row is not the edge's target.

    `eids`, int (E,), is the number of each edge over all tables, -1 for an added self-loop, whose relation is
    `loop_type`. `targets`, int64, is the node that each edge leads to, within its type; empty where the types of the
    ends tell the directions apart. `out` is int16 (E,).
    """
    forward, reverse, target_first, target_last = relations
    for v in range(len(indptr) - 1):
        for i in range(indptr[v], indptr[v + 1]):
            if eids[i] < 0:
                out[i] = loop_type
                continue
            t = np.searchsorted(table_starts, eids[i], side="right") - 1
            is_forward = target_first[t] <= v < target_last[t]
            if len(targets) and is_forward:
                is_forward = v == target_first[t] + targets[eids[i]]
            out[i] = forward[t] if is_forward else reverse[t]


class EdgeData:
    """Columns of the edge tables, and how they reach CSC order."""

    def __init__(
        self,
        store: DatasetStore,
        ids: IdSpace,
        feature_dtype: str,
        scratch: ArrayWriter,
        recoded: Mapping[str, State] | None = None,
        encode: EncodeColumn | None = None,
    ) -> None:
        """`scratch` takes the columns of all tables end to end until they are in order.

        `recoded`, `encode`: see `EdgeRules`.
        """
        self.store, self.ids, self.scratch = store, ids, scratch
        self.recoded = recoded or {}
        self.feature_dtype = np.dtype(feature_dtype)
        self.features = union_of_features(store.manifest.edge_types)
        self.texts: dict[str, EncodedTexts] = {}
        for column in [feature.column for feature in self.features if feature.kind == "text"]:
            assert encode is not None
            shards = [shard for table in self._tables_with(column) for shard in store.shards(table)]
            self.texts[column] = encode(column, shards)
        self.numeric = [self._as_numbers(feature) for feature in self.features if feature.kind != "categorical"]
        self.categorical = [feature for feature in self.features if feature.kind == "categorical"]
        self.categories: tuple[int, ...] = ()

    @property
    def feature_dim(self) -> int:
        """Columns of `edge_feat`."""
        return sum(feature.dim for feature in self.numeric)

    def columns(self) -> dict[str, dict[str, int]]:
        """Return the columns of `edge_feat` and of `edge_feat_cat`, and how many numbers or codes each has."""
        tables = {"edge_feat": self.numeric, "edge_feat_cat": self.categorical}
        return {name: {one.column: one.dim for one in features} for name, features in tables.items()}

    def _as_numbers(self, feature: FeatureColumn) -> FeatureColumn:
        """Return the column of a text's numbers; others as they are."""
        texts = self.texts.get(feature.column)
        return feature if texts is None else feature.model_copy(update={"kind": "numeric", "dim": texts.dim})

    def relation_columns(self) -> dict[str, TypeColumns]:
        """Return the columns of each relation, and of its reverse; none where there is one relation."""
        if len(self.ids.edge_types) == 1:
            return {}
        starts = {
            kind: dict(zip([f.column for f in features], offsets([f.dim for f in features]).tolist(), strict=False))
            for kind, features in (("numeric", self.numeric), ("categorical", self.categorical))
        }
        columns: dict[str, TypeColumns] = {}
        for index, edge_type in enumerate(self.store.manifest.edge_types):
            places: dict[str, list[int]] = {"numeric": [], "categorical": []}
            for feature in map(self._as_numbers, edge_type.features):
                first = starts[feature.kind][feature.column]
                places[feature.kind] += range(first, first + feature.dim)
            relations = {index, self.ids.reverse_type(index)} if self.ids.symmetrize else {index}
            columns |= {self.ids.edge_types[i]: TypeColumns.model_validate(places) for i in relations}
        return columns

    def _tables_with(self, column: str) -> list[str]:
        tables = (f"edges/{edge_type.name}" for edge_type in self.store.manifest.edge_types)
        return [name for name in tables if column in self.store.table(name).columns]

    def raw(self, column: str, dtype: Any, absent: Any, dim: int = 1, codes: tuple[int, ...] = ()) -> Array:
        """Return a column of all edge tables end to end, (rows, dim), memory-mapped.

        `codes`: how many there are of each of the `dim` values. Raises DataError where the column has others.
        """
        raw = np.asarray(self.scratch.create(f"raw_{column}", (int(self.ids.table_starts[-1]), dim), dtype))
        having = self._tables_with(column)
        for index, edge_type in enumerate(self.store.manifest.edge_types):
            place, table = int(self.ids.table_starts[index]), f"edges/{edge_type.name}"
            if table not in having:
                raw[place : place + edge_type.num_edges] = absent
                continue
            for shard in self.store.shards(table):
                first = place
                for group in iter_row_groups(shard, [column]):
                    cells = group.column(column)
                    values = self.texts[column].read(cells) if column in self.texts else to_numpy(cells)
                    values = values.reshape(group.num_rows, dim)
                    if codes:
                        check_codes(values, codes, column, shard.path, place - first)
                        values = self.recoded[column]["codes"][values] if column in self.recoded else values
                    raw[place : place + len(values)] = values
                    place += len(values)
        return raw

    def follow(self, indptr: Array, eids: Array, writer: ArrayWriter) -> None:
        """Write `edge_time`, `edge_type`, `edge_feat` and `edge_feat_cat` in CSC order (weights are merged before)."""
        size = int(indptr[-1])
        if "time" in self.ids.edge_columns:
            absent = 0 if self.store.manifest.fit_before is None else ALWAYS
            time = self.raw("time", np.int64, absent)[:, 0]
            _gather(eids, time, writer.create("edge_time", (size,), np.int64), 0)
        if len(self.ids.edge_types) > 1:
            self._write_types(indptr, eids, writer.create("edge_type", (size,), np.int16))
        self.write_features(eids, writer)

    def write_features(self, eids: Array, writer: ArrayWriter, of: str = "edge") -> None:
        """Write `edge_feat` and `edge_feat_cat`, or those of others, of edges by their numbers over all tables."""
        size = len(eids)
        if self.numeric:
            out = writer.create(f"{of}_feat", (size, self.feature_dim), self.feature_dtype)
            self._columns(self.numeric, eids, out, np.float32, {})
            tamed = self.store.manifest.fit_before is not None
            for rows in blocks(size, _CHUNK_EDGES) if tamed or out.dtype == np.float16 else ():
                if tamed:  # no transform reaches features of edges: amounts get the size of what models add them to
                    out[rows] = np.sign(out[rows]) * np.log1p(np.abs(out[rows]))
                if out.dtype == np.float16 and not np.isfinite(out[rows]).all():
                    raise DataError(
                        "an edge feature is too large for float16 (65,504); set preprocess.feature_dtype=float32"
                    )
        if self.categorical:
            num_codes = sum(feature.dim for feature in self.categorical)
            self._write_categorical(eids, writer.create(f"{of}_feat_cat", (size, num_codes), np.int32))

    def _columns(
        self, features: list[FeatureColumn], eids: Array, out: Array, dtype: Any, codes: dict[str, tuple[int, ...]]
    ) -> None:
        """Fill the columns of `out` one feature at a time: only one of them is in memory.

        Where there is none, numbers are 0, and codes the one behind the last.
        """
        place = 0
        for feature in features:
            cardinalities = codes.get(feature.column, ())
            absent = np.asarray(self._as_trained(feature.column, cardinalities) or [0] * feature.dim)
            raw = self.raw(feature.column, dtype, absent, feature.dim, cardinalities)
            with np.errstate(over="ignore"):
                _gather(eids, raw, out[:, place : place + feature.dim], absent)
            place += feature.dim

    def _write_categorical(self, eids: Array, out: Array) -> None:
        """Codes as they are; one more code where a relation or an added self-loop has none."""
        cardinalities: list[int] = []
        codes: dict[str, tuple[int, ...]] = {}
        num_types = len(self.store.manifest.edge_types)
        for feature in self.categorical:
            counts = feature.cardinalities
            if not counts:
                most = np.zeros(feature.dim, np.int64)
                for table in self._tables_with(feature.column):
                    for _, group in self.store.row_groups(table, [feature.column]):
                        values = to_numpy(group.column(feature.column)).reshape(group.num_rows, feature.dim)
                        most = np.maximum(most, values.max(0, initial=-1) + 1)
                counts = tuple(most.tolist())
            somewhere_absent = self.ids.add_loops or len(self._tables_with(feature.column)) < num_types
            codes[feature.column] = counts
            cardinalities += [count + somewhere_absent for count in self._as_trained(feature.column, counts)]
        self._columns(self.categorical, eids, out, np.int32, codes)
        self.categories = tuple(cardinalities)

    def _as_trained(self, column: str, counts: tuple[int, ...]) -> tuple[int, ...]:
        """Return how many codes each value of a column has, in those of a model's training where it is recoded."""
        return tuple(self.recoded[column]["cardinalities"]) if column in self.recoded else counts

    def _write_types(self, indptr: Array, eids: Array, out: Array) -> None:
        ids, types = self.ids, self.store.manifest.edge_types
        indices = [ids.type_index(edge_type.target) for edge_type in types]
        first = np.array([ids.type_offsets[i] for i in indices], np.int64)
        last = np.array([ids.type_offsets[i + 1] for i in indices], np.int64)
        forward = np.arange(len(types))
        reverse = np.array([ids.reverse_type(i) if ids.symmetrize else i for i in range(len(types))])
        loop_type = ids.edge_types.index(LOOP_TYPE) if ids.add_loops else -1
        within_type = any(one.source == one.target and ids.has_reverse(one) for one in types)
        targets = self.raw("dst", np.int64, 0)[:, 0] if within_type and ids.symmetrize else np.empty(0, np.int64)
        relations = TableRelations(forward, reverse, first, last)
        edge_types(indptr, eids, ids.table_starts, relations, targets, loop_type, np.asarray(out))


def _gather(eids: Array, raw: Array, out: Array, absent: Any) -> None:
    """Set out[i] = raw[eids[i]], and `absent` where eids[i] is -1; in chunks."""
    if not len(raw):
        out[:] = absent
        return
    for rows in blocks(len(eids), _CHUNK_EDGES):
        chunk = np.asarray(eids[rows])
        values = raw[chunk]  # -1 takes the last row, replaced below
        values[chunk < 0] = absent
        out[rows] = values
