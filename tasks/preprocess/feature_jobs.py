"""Node features, one shard at a time: what runs in workers, and what describes it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from configs.base import ComponentConfig
from configs.errors import DataError
from configs.registry import TRANSFORMS
from tasks.arrays import Array, blocks
from tasks.preprocess.shards import ShardJob, digest, result
from tasks.preprocess.texts.encoding import EncodedTexts
from tasks.preprocess.transforms.base import Column, ColumnTransform, GraphView, State, StructureTransform, check_codes
from tasks.storage.dataset_store import ShardRef, read_shard, to_numpy

VERSION = 1
# Rows at a time through the transforms: their intermediate values, often float64, stay small.
_CHUNK_ROWS = 1 << 16
_FLOAT16_MAX = 65504.0


@dataclass(frozen=True)
class RowRange:
    """Rows that a job works on: a shard of a node type's table, or as many rows of a computed column."""

    sha256: str
    """Names the content."""
    first_node: int
    """Node of the graph that the first row is."""
    num_rows: int
    type_index: int
    shard: ShardRef
    computed: ShardJob | None = None
    """Job whose result holds the rows, for columns computed from the graph."""
    kept: Array | None = field(default=None, compare=False)
    """Rows that are nodes of the graph, ascending; None: all. Columns of tables are transformed whole, so that
    snapshots share what was computed."""

    @property
    def num_nodes(self) -> int:
        """Nodes of the graph among the rows."""
        return self.num_rows if self.kept is None else len(self.kept)


@dataclass(frozen=True)
class FittedTransform:
    """A fitted transform in a column's history."""

    config: ComponentConfig
    version: int
    state: State

    @property
    def key(self) -> dict[str, Any]:
        """What identifies the step, for keys of results."""
        return {"transform": self.config.model_dump(mode="json"), "version": self.version, "state": digest(self.state)}


@dataclass(frozen=True)
class Track:
    """A column on its way: where it comes from, what has been done to it."""

    source: Column
    """As it stands in the table."""
    column: Column
    """As it stands after the steps."""
    types: tuple[int, ...]
    """Node types that have it."""
    origin: str = "table"
    """`table`, or the name of the transform that computes it."""
    steps: tuple[FittedTransform, ...] = ()
    texts: EncodedTexts | None = None
    """Of texts: their vectors, which the steps work on."""

    @property
    def history(self) -> tuple[Any, ...]:
        """Columns with one history are read and transformed together."""
        return (self.types, self.origin, self.texts is None, tuple(str(step.config) for step in self.steps))


@dataclass(frozen=True)
class Work:
    """What a feature job needs."""

    rows: RowRange
    tracks: tuple[Track, ...]
    next_config: ComponentConfig | None = None
    """Transform to summarise training rows for."""
    train_rows: Array | None = None
    """Rows of the range to learn from, ascending; None: all."""
    dtype: Literal["float32", "float16"] = "float32"


def source_values(table: pa.Table, track: Track, shard: ShardRef, first_row: int = 0) -> Array:
    """Return a column of a table, (n, dim), as its steps begin with it: see `plain_values`; of texts the vectors."""
    column = table.column(track.source.name)
    if track.texts is not None:
        return track.texts.read(column)
    return plain_values(to_numpy(column).reshape(-1, track.source.dim), track.source, shard, first_row)


def plain_values(values: Array, column: Column, shard: ShardRef, first_row: int = 0) -> Array:
    """Return a table's values in the dtype that transforms work with; categories without codes stay as they are.

    `first_row` is the shard's row that the first of them is. Raises DataError for codes that the column has not.
    """
    if column.kind == "numeric":
        return values.astype(np.float32, copy=False)
    if column.kind == "raw":
        return values
    check_codes(values, column.cardinalities, column.name, shard.path, first_row)
    return values.astype(np.int32, copy=False)


def transformed(work: Work, track: Track, rows: Array | None = None) -> Array:
    """Return a column of the range after its steps."""
    if work.rows.computed is not None:
        x = np.asarray(result(work.rows.computed)["x"])
    else:
        x = source_values(read_shard(work.rows.shard, [track.source.name]), track, work.rows.shard)
    if rows is not None:
        x = x[rows]
    if not track.steps:
        return x
    transforms = [TRANSFORMS.create(step.config) for step in track.steps]

    def apply(part: Array) -> Array:
        for transform, step in zip(transforms, track.steps, strict=True):
            part = transform.apply(part, step.state)
        return part

    if len(x) <= _CHUNK_ROWS:
        return apply(x)
    first = apply(x[:_CHUNK_ROWS])
    whole = np.empty((len(x), first.shape[1]), first.dtype)
    for some in blocks(len(x), _CHUNK_ROWS):
        whole[some] = first if some.start == 0 else apply(x[some])
    return whole


def summarise_rows(rows: RowRange, work: Work) -> dict[str, Any]:
    """Job: what the next transform wants to know of the training rows, by column."""
    assert work.next_config is not None
    transform: ColumnTransform = TRANSFORMS.create(work.next_config)
    return {track.source.name: transform.partial(transformed(work, track, work.train_rows)) for track in work.tracks}


def transform_rows(rows: RowRange, work: Work) -> dict[str, Any]:
    """Job: finished columns of a range, by name, in the dtype of the graph's arrays."""
    return {track.source.name: finished(work, track, transformed(work, track)) for track in work.tracks}


def finished(work: Work, track: Track, x: Array) -> Array:
    """Return a column in the dtype of the graph's array. Raises DataError where that cannot hold it."""
    if track.column.kind == "categorical":
        return x.astype(np.int32, copy=False)
    if x.size and not np.isfinite([x.min(), x.max()]).all():
        raise _not_finite(work, track)
    if work.dtype == "float16" and x.size and np.abs(x).max() > _FLOAT16_MAX:
        raise DataError(
            f"a feature value of {float(np.abs(x).max()):g} is too large for float16 ({_FLOAT16_MAX:,.0f}); put a "
            "standardize, min_max or log1p transform before it, or store float32 (preprocess.feature_dtype=float32)"
        )
    return x.astype(work.dtype, copy=False)


def _not_finite(work: Work, track: Track) -> DataError:
    """Say whether a column's first number that is not finite stands in the data or comes of a transform."""
    name, done = track.source.name, ", ".join(step.config.name for step in track.steps)
    given = transformed(work, replace(track, steps=()))
    if track.source.kind == "numeric":
        wrong = np.argwhere(np.isinf(given) if track.source.gaps else ~np.isfinite(given))
        if len(wrong):
            before = f" before the transforms ({done})" if done else ""
            number = given[tuple(wrong[0])]
            if track.origin != "table":
                return DataError(f"feature {name!r} is {number:g} already as {track.origin} computes it{before}")
            return DataError(
                f"feature {name!r} is {number:g} in the data set itself{before}; put a number there, or drop the row",
                path=work.rows.shard.path,
                row=int(wrong[0][0]),
            )
    states = {step.config.name: [v for v in step.state.values() if isinstance(v, np.ndarray)] for step in track.steps}
    for learner, arrays in states.items():
        if any(array.dtype.kind == "f" and not np.isfinite(array).all() for array in arrays):
            return DataError(
                f"feature {name!r} is nan or infinite in rows that {learner} learns from, in the data set itself or by "
                f"transforms before it ({done}); put numbers there, or drop the rows"
            )
    return DataError(
        f"feature {name!r} is finite in the data set and no longer so after {done}: its values are too far apart for "
        "float32, or the transform divides by 0; put log1p or min_max before, or look at its largest values"
    )


def compute_rows(rows: RowRange, payload: tuple[ComponentConfig, GraphView]) -> dict[str, Any]:
    """Job: a column computed from the graph."""
    config, graph = payload
    transform: StructureTransform = TRANSFORMS.create(config)
    return {"x": transform.compute(graph, rows.first_node, rows.first_node + rows.num_rows)}
