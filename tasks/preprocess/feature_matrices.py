"""The matrices of node features: which columns they have, and where each type's rows lie.

Types share `feat` and `feat_cat`, whose columns are the union over types in the order in which they first occur, zero
where a type lacks a numeric column, a code of its own (the last) where it lacks a categorical one. Where rows are
predicted at moments each type has matrices of its own instead, with its own columns and rows alone: a database of many
tables would be zeros otherwise. Models number columns as the union does in both cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tasks.arrays import Array, offsets
from tasks.preprocess.feature_jobs import RowRange, Track
from tasks.preprocess.id_space import IdSpace
from tasks.storage.graph_store import ArrayWriter
from tasks.storage.manifests import TypeColumns, array_of_type

_NAMES = {"numeric": "feat", "categorical": "feat_cat"}


class FeatureMatrices:
    """What `FeatureBuilder` fills."""

    def __init__(
        self, tracks: Sequence[Track], ids: IdSpace, writer: ArrayWriter, dtype: Any, *, by_type: bool
    ) -> None:
        """Create the arrays of columns that have their final kinds; `by_type`: each type has matrices of its own."""
        self._ids, self._by_type = ids, by_type
        self.width, self._places = dict.fromkeys(_NAMES.values(), 0), dict[str, int]()
        for kind, name in _NAMES.items():
            chosen = [track for track in tracks if track.column.kind == kind]
            starts = offsets([track.column.dim for track in chosen]).tolist()
            self._places |= {track.source.name: start for track, start in zip(chosen, starts, strict=False)}
            self.width[name] = starts[-1]
        self.largest: dict[str, float] = {}
        """Of numbers of types that have matrices of their own: the largest magnitude, by column."""
        self.columns: list[dict[str, list[int]]] = [{"feat": [], "feat_cat": []} for _ in ids.node_types]
        """The columns of each type."""
        for track in tracks:
            start = self._places[track.source.name]
            for index in track.types:
                self.columns[index][_NAMES[track.column.kind]] += range(start, start + track.column.dim)
        kinds = {"feat": dtype, "feat_cat": "int32"}
        self._out: dict[str, Array] = {}
        for name in kinds:
            if by_type:
                starts = (*ids.type_offsets[: len(ids.node_types)], ids.num_nodes)
                for number, columns in enumerate(self.columns):
                    if columns[name]:
                        array = array_of_type(name, ids.node_types[number])
                        shape = int(starts[number + 1] - starts[number]), len(columns[name])
                        self._out[array] = writer.create(array, shape, kinds[name])
            elif self.width[name]:
                self._out[name] = writer.create(name, (ids.num_nodes, self.width[name]), kinds[name])
        categories: list[int] = []
        for track in tracks:
            if track.column.kind != "categorical":
                continue
            absent = len(track.types) < len(ids.node_types)
            categories += [count + absent for count in track.column.cardinalities]
            if absent and not by_type:  # types that lack a column of a shared matrix have its last code
                place = self._places[track.source.name]
                self._out["feat_cat"][:, place : place + track.column.dim] = track.column.cardinalities
        self.categories = tuple(categories)
        """How many codes each categorical column has."""

    def put(self, track: Track, rows: RowRange, first: int, x: Array) -> None:
        """Write a column's values (n, dim) of nodes from `first` on."""
        name, place = _NAMES[track.column.kind], self._places[track.source.name]
        if self._by_type:
            if track.column.kind == "numeric" and x.size:
                largest = float(max(x.max(), -x.min()))
                self.largest[track.source.name] = max(self.largest.get(track.source.name, 0.0), largest)
            number = rows.type_index
            first -= self._ids.type_offsets[number]
            place = self.columns[number][name].index(place)
            name = array_of_type(name, self._ids.node_types[number])
        self._out[name][first : first + len(x), place : place + x.shape[1]] = x

    def type_columns(self) -> dict[str, TypeColumns]:
        """Return the columns of each type as the manifest has them; none where there is one type."""
        names = self._ids.node_types
        if len(names) == 1:
            return {}
        return {
            name: TypeColumns(numeric=tuple(columns["feat"]), categorical=tuple(columns["feat_cat"]))
            for name, columns in zip(names, self.columns, strict=True)
        }
