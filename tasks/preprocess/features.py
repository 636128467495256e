"""Node features: fit transforms shard by shard on the training rows, merge, apply shard by shard, put together.

Columns with the same history are handled together, and every result on a shard is kept by what made it: the shard's
content, the columns, the transforms so far with what they learned.

Which rows a transform learns from: the training rows where the labelled node type has the column (on graph tasks the
nodes of training graphs, on link tasks all nodes); columns that only other types have are learned from all rows. Where
nodes are predicted at moments, the rows of every type that are older than the first moment that validates.

Types share `feat` and `feat_cat`, whose columns are the union over types in the order in which they first occur, zero
where a type lacks a numeric column, a code of its own (the last) where it lacks a categorical one. Where rows are
predicted at moments each type has matrices of its own instead, with its own columns and rows alone: a database of many
tables would be zeros otherwise. Models number columns as the union does in both cases.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from configs.errors import RecipeError
from configs.registry import TRANSFORMS
from configs.schema import PreprocessConfig
from tasks.arrays import Array, offsets
from tasks.preprocess.feature_jobs import (
    VERSION,
    FittedTransform,
    RowRange,
    Track,
    Work,
    compute_rows,
    finished,
    source_values,
    summarise_rows,
    transform_rows,
)
from tasks.preprocess.id_space import IdSpace, union_of_features
from tasks.preprocess.shards import ShardJob, digest, run_jobs
from tasks.preprocess.splits.snapshot import Snapshot
from tasks.preprocess.texts.encoding import TextColumns
from tasks.preprocess.transforms.base import (
    Column,
    ColumnTransform,
    GraphView,
    State,
    StructureTransform,
    TextsAsTrained,
    numeric,
)
from tasks.stage import StageContext
from tasks.storage.dataset_store import DatasetStore, iter_row_groups
from tasks.storage.graph_store import ArrayWriter
from tasks.storage.manifests import TypeColumns, array_of_type

_SCALING = frozenset({"standardize", "min_max", "log1p", "normalize_rows"})
_LARGE, _SHOWN = 100.0, 3
_NAMES = {"numeric": "feat", "categorical": "feat_cat"}


class FeatureBuilder:
    """Runs the recipe's transforms and writes `feat` and `feat_cat`, or those of each type.

    Memory: a shard's columns in each worker, one shard's result here, and what the transforms learned.
    """

    def __init__(
        self,
        context: StageContext,
        store: DatasetStore,
        ids: IdSpace,
        config: PreprocessConfig,
        graph: GraphView,
        train_rows: Array | None,
        texts: TextColumns | None,
        snapshot: Snapshot | None = None,
    ) -> None:
        self.texts = texts
        self.context, self.store, self.ids, self.config = context, store, ids, config
        self.graph, self.train_rows, self.snapshot = graph, train_rows, snapshot
        at_moments = store.manifest.fit_before is not None
        target = ids.type_index(store.manifest.target_type)
        self.fitted_types = set(range(len(ids.node_types))) if at_moments else {target}
        """Types whose training rows transforms learn from; columns that only others have are learned from all rows."""
        self.ranges = self._table_ranges()
        self.tracks: list[Track] = []
        for feature in union_of_features(store.manifest.node_types):
            column = Column(feature.column, "raw", feature.dim)
            if feature.kind == "numeric":
                column = replace(column, kind="numeric", gaps=feature.gaps)
            elif feature.cardinalities:
                column = replace(column, kind="categorical", cardinalities=feature.cardinalities)
            elif feature.kind == "text":
                column = replace(column, kind="text")
            types = [
                i for i, t in enumerate(store.manifest.node_types) if column.name in {f.column for f in t.features}
            ]
            self.tracks.append(Track(column, column, tuple(types)))
        self.structure: dict[str, StructureTransform] = {}
        self._computed: dict[str, list[RowRange]] = {}
        self.described: list[dict[str, Any]] = []

    def _table_ranges(self) -> list[RowRange]:
        """Return the rows of all node tables that are nodes of the graph."""
        ranges = []
        for t, name in enumerate(self.ids.node_types):
            first = self.ids.type_offsets[t]
            for shard in self.store.shards(f"nodes/{name}"):
                kept = None if self.snapshot is None else self.snapshot.kept_rows(t, shard.first_row, shard.num_rows)
                if kept is not None and len(kept) == shard.num_rows:
                    kept = None
                rows = RowRange(shard.sha256, first, shard.num_rows, t, shard, kept=kept)
                if rows.num_nodes or self.snapshot is None:
                    ranges.append(rows)
                first += rows.num_nodes
        return ranges

    def build(self, writer: ArrayWriter) -> dict[str, Any]:
        """Run everything; returns feature_dim, categories, what was fitted, and which columns the arrays hold."""
        self._encode_texts()
        # A model's training may have learnt `fill_mean`, which then stands in `transform`.
        learned: list[dict[str, Any]] = [getattr(config, "transform", {}) for config in self.config.transforms]
        names = {config.name for config in self.config.transforms} | {str(one.get("name")) for one in learned}
        if any(track.column.gaps for track in self.tracks) and "fill_mean" not in names:
            self._apply(TRANSFORMS.create(TRANSFORMS.config("fill_mean")))
        for config in self.config.transforms:
            transform = TRANSFORMS.create(config)
            if isinstance(transform, TextsAsTrained):
                continue  # `texts` has what they learned
            if isinstance(transform, StructureTransform):
                self._add_structure(transform)
            else:
                self._apply(transform)
        if any(track.column.kind == "raw" for track in self.tracks):
            self._apply(TRANSFORMS.create(TRANSFORMS.config("codes")), only_raw=True)
        built = self._write(writer)
        for transform in self.structure.values():
            transform.finish(self.graph)
        return built

    def _write(self, writer: ArrayWriter) -> dict[str, Any]:
        dtype = self.config.feature_dtype
        out = FeatureMatrices(self.tracks, self.ids, writer, dtype, by_type=self.store.manifest.fit_before is not None)
        for group in _grouped(self.tracks):
            if group[0].origin == "table" and not group[0].steps:  # texts too: their vectors are kept
                self._copy(group, out, dtype)
            else:
                self._fill(group, out, dtype)
        self._warn_of_large_numbers(out.largest)
        return {
            "feature_dim": out.width["feat"],
            "categories": out.categories,
            "type_columns": out.type_columns(),
            "transforms": self.described,
            "columns": {
                array: {t.source.name: t.column.dim for t in self.tracks if t.column.kind == kind}
                for kind, array in _NAMES.items()
            },
            "texts": {t.source.name: out.columns_of(t) for t in self.tracks if t.texts is not None},
        }

    def _add_structure(self, transform: StructureTransform) -> None:
        column = transform.column(self.graph)
        if any(track.source.name == column.name for track in self.tracks):
            raise RecipeError(
                f"preprocess.transforms: {transform.config.name} adds a column {column.name!r}, and there is one by "
                "that name already; list the transform once, or rename the table's column"
            )
        types = tuple(range(len(self.ids.node_types)))
        self.tracks.append(Track(column, column, types, origin=transform.config.name))
        self.described.append({"transform": transform.config.name, "columns": [column.name], "width": column.dim})
        self.structure[transform.config.name] = transform

    def _apply(self, transform: ColumnTransform, only_raw: bool = False) -> None:
        """Fit a transform on the columns that it takes and append it to their histories."""
        names = set(transform.select(tuple(track.column for track in self.tracks)))
        chosen = [t for t in self.tracks if t.source.name in names and (t.column.kind == "raw" or not only_raw)]
        partials = self._summarise(transform, chosen) if transform.fits else {}
        fitted: dict[str, Any] = {}
        for track in chosen:
            name = track.source.name
            state = transform.fit(partials.get(name, []), track.column)
            step = FittedTransform(transform.config, transform.version, state)
            column = transform.output(track.column, state)
            fitted[name] = transform.describe(track.column, state)
            moved = replace(track, column=column, steps=(*track.steps, step))
            self.tracks = [moved if t.source.name == name else t for t in self.tracks]
        self.described.append({"transform": transform.config.name, "columns": list(fitted), "fitted": fitted})

    def _encode_texts(self) -> None:
        """Make numbers of columns of texts; transforms take them like other ones."""
        fitted = {}
        for track in [track for track in self.tracks if track.column.kind == "text"]:
            name, ranges = track.source.name, self._ranges_of(track)
            training = [(rows.shard, train) for rows, train in self._learned_from(track)]
            assert self.texts is not None
            encoded = self.texts.encode(f"nodes/{name}", name, [rows.shard for rows in ranges], training)
            fitted[name] = {"encoder": encoded.config.name, "dim": encoded.dim}
            moved = replace(track, texts=encoded, column=numeric(track.column, encoded.dim))
            self.tracks = [moved if t.source.name == name else t for t in self.tracks]
        if fitted:
            self.described.append({"transform": "texts", "columns": list(fitted), "fitted": fitted})

    def _learned_from(self, track: Track) -> Iterator[tuple[RowRange, Array | None]]:
        """Yield ranges with rows that a column's transforms learn from, and which these are; None: all."""
        # Columns that the labelled type lacks have no training rows: all their rows are taken.
        learned_from = self.fitted_types & set(track.types) if self.train_rows is not None else set()
        for rows in self._ranges_of(track):
            if learned_from and rows.type_index not in learned_from:
                continue
            train = rows.kept
            if learned_from:
                assert self.train_rows is not None
                bounds = [rows.first_node, rows.first_node + rows.num_nodes]
                first, last = np.searchsorted(self.train_rows, bounds)
                train = self.train_rows[first:last] - rows.first_node
                train = train if rows.kept is None else rows.kept[train]
            if train is None or len(train):
                yield rows, train

    def _summarise(self, transform: ColumnTransform, tracks: list[Track]) -> dict[str, list[State]]:
        """Return each column's summaries, shard by shard."""
        partials: dict[str, list[State]] = {track.source.name: [] for track in tracks}
        for group in _grouped(tracks):
            jobs = []
            for rows, train in self._learned_from(group[0]):
                key = _history_key(group) | {
                    "next": transform.config.model_dump(mode="json"),
                    "next_version": transform.version,
                    "train": None if train is None else digest(train),
                }
                work = Work(rows, tuple(group), transform.config, train)
                cache, from_table = self.context.cache, rows.computed is None and group[0].texts is None
                jobs.append(ShardJob(summarise_rows, VERSION, rows, key, cache, work, from_table))
            for summaries in run_jobs(self.context, jobs, f"fit {transform.config.name}"):
                for name, partial in summaries.items():
                    partials[name].append(partial)
        return partials

    def _ranges_of(self, track: Track) -> list[RowRange]:
        """Return ranges of rows that have the column, which is computed first where it comes from the graph."""
        ranges = [rows for rows in self.ranges if rows.type_index in track.types]
        if track.origin == "table":
            return ranges
        if track.origin in self._computed:
            return self._computed[track.origin]
        transform: StructureTransform = self.structure[track.origin]
        key = {"transform": transform.config.model_dump(mode="json"), "graph": transform.reads(self.graph)}
        payload = (transform.config, self.graph)
        jobs = []
        for rows in ranges:
            # Named by the graph and the nodes alone: the table's content plays no part.
            name = f"nodes-{rows.first_node}-{rows.num_nodes}"
            place = replace(rows, sha256=name, num_rows=rows.num_nodes, kept=None)
            jobs.append(ShardJob(compute_rows, transform.version, place, key, self.context.cache, payload))
        if not all(job.cache.has(job.name) for job in jobs):
            transform.prepare(self.graph)
        for _ in run_jobs(self.context, jobs, track.origin):
            pass
        self._computed[track.origin] = [replace(job.shard, sha256=job.name, computed=job) for job in jobs]
        return self._computed[track.origin]

    def _warn_of_large_numbers(self, largest: dict[str, float]) -> None:
        """Say which columns that no transform scales hold numbers beside which a network hardly sees the others."""
        scaled = {track.source.name for track in self.tracks if {step.config.name for step in track.steps} & _SCALING}
        large = [name for name, size in largest.items() if size > _LARGE and name not in scaled]
        if large:
            large.sort(key=lambda name: -largest[name])
            shown = ", ".join(f"{name} (up to {largest[name]:,.0f})" for name in large[:_SHOWN])
            more = f" and {len(large) - _SHOWN:,} more" if len(large) > _SHOWN else ""
            self.context.warn(
                f"large numbers reach the model unscaled: {shown}{more}; they may drown the other features; "
                "scale them: "
                "preprocess.transforms: [{name: standardize}]"
            )

    def _fill(self, group: list[Track], out: FeatureMatrices, dtype: Any) -> None:
        ranges = self._ranges_of(group[0])
        key = _history_key(group) | {"dtype": dtype}
        works = [Work(rows, tuple(group), dtype=dtype) for rows in ranges]
        from_table = group[0].origin == "table" and group[0].texts is None
        jobs = [
            ShardJob(transform_rows, VERSION, work.rows, key, self.context.cache, work, from_table) for work in works
        ]
        tracks = {track.source.name: track for track in group}
        for rows, columns in zip(ranges, run_jobs(self.context, jobs, "features"), strict=True):
            for name, x in columns.items():
                out.put(tracks[name], rows, rows.first_node, x if rows.kept is None else x[rows.kept])

    def _copy(self, group: list[Track], out: FeatureMatrices, dtype: Any) -> None:
        """Columns without a transform come from the table as they are: keeping another copy would help nobody."""
        for rows in self._ranges_of(group[0]):
            first, row = rows.first_node, 0
            work = Work(rows, tuple(group), dtype=dtype)
            for table in iter_row_groups(rows.shard, [track.source.name for track in group]):
                kept: Any = slice(None)
                if rows.kept is not None:
                    low, high = np.searchsorted(rows.kept, [row, row + table.num_rows])
                    kept = rows.kept[low:high] - row
                for track in group:
                    x = finished(work, track, source_values(table, track, rows.shard, row)[kept])
                    out.put(track, rows, first, x)
                first += len(x)
                row += table.num_rows


def _history_key(group: list[Track]) -> dict[str, Any]:
    """Return what names columns and what was done to them, for the keys of kept results."""
    names = [track.source.name for track in group]
    key: dict[str, Any] = {"columns": names, "steps": [[step.key for step in track.steps] for track in group]}
    texts = [track.texts.kept.path.name for track in group if track.texts is not None]
    return key | {"texts": texts} if texts else key


def _grouped(tracks: list[Track]) -> list[list[Track]]:
    """Tracks with one history and of one kind, together."""
    groups: dict[Any, list[Track]] = {}
    for track in tracks:
        groups.setdefault((track.history, track.column.kind == "numeric"), []).append(track)
    return list(groups.values())


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

    def columns_of(self, track: Track) -> list[int]:
        """Return where a column's numbers, or codes, are among those of all types: the first, and behind the last."""
        first = self._places[track.source.name]
        return [first, first + track.column.dim]

    def type_columns(self) -> dict[str, TypeColumns]:
        """Return the columns of each type as the manifest has them; none where there is one type."""
        names = self._ids.node_types
        if len(names) == 1:
            return {}
        return {
            name: TypeColumns(numeric=tuple(columns["feat"]), categorical=tuple(columns["feat_cat"]))
            for name, columns in zip(names, self.columns, strict=True)
        }
