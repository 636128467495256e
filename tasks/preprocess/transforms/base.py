"""What a feature transform is: a class with a nested `Config`, registered in TRANSFORMS.

A `ColumnTransform` works on one column (rows, dim) at a time, shard by shard. One that learns (`fits = True`) sees the
training rows only: `partial` on every shard, `fit` over the shards' partials, then `apply` on every shard. A
`StructureTransform` computes a new column from the graph's edges.

A column is numeric (float32, ends up in `feat`) or categorical (int32 codes with known cardinalities, ends up in
`feat_cat`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from configs.base import ComponentConfig
from configs.errors import DataError, RecipeError
from configs.matching import did_you_mean
from tasks.arrays import Array
from tasks.preprocess.transforms.configs import TransformConfig
from tasks.storage.artifacts import file_digest
from tasks.storage.graph_store import open_array
from tasks.storage.manifests import ArrayEntry, DatasetManifest

State = dict[str, Any]
"""Arrays and plain values: what a transform learned."""
_STRUCTURE = ("csc_indptr", "csc_indices", "csr_indptr", "csr_indices", "edge_feat", "edge_weight", "graph_offsets")


@dataclass(frozen=True)
class Column:
    """A feature column as it stands between two transforms."""

    name: str
    kind: Literal["numeric", "categorical", "raw", "text"]
    """`raw`: categories that have no codes yet (strings, or integers of unknown range); `text`: not encoded yet."""
    dim: int
    cardinalities: tuple[int, ...] = ()
    """Codes of each of the `dim` values; categorical only."""
    gaps: bool = False
    """Whether NaN stands where a cell was empty; `fill_mean` goes before every other transform."""


class ReadsAsTrained(ABC):
    """What makes a registered model's data of other data: codes and relations become those of its training."""

    @property
    @abstractmethod
    def edge_codes(self) -> dict[str, State]:
        """Of categorical columns of edges: `codes`, the training's code of each code here, and `cardinalities`."""

    @abstractmethod
    def relations_as_trained(self, data: DatasetManifest) -> DatasetManifest:
        """Return the data with the training's relations in their order; one that is not here has no edges."""

    @abstractmethod
    def notes(self) -> list[str]:
        """Say what the training has not seen, and what becomes of it."""


class TextsAsTrained(ABC):
    """What encodes texts as a registered model's training did."""

    @property
    @abstractmethod
    def states(self) -> dict[str, State]:
        """What the encoder learned, by column (`nodes/memo`)."""


def check_codes(codes: Array, cardinalities: tuple[int, ...], column: str, path: object, first_row: int) -> None:
    """Raise DataError for a code, of int (rows, dim), that is not below its value's cardinality: kernels look it up."""
    if not len(codes):
        return
    wrong = (codes.min(0) < 0) | (codes.max(0) >= np.asarray(cardinalities))
    if wrong.any():
        place = int(np.flatnonzero(wrong)[0])
        limit = cardinalities[place]
        row = int(np.flatnonzero((codes[:, place] < 0) | (codes[:, place] >= limit))[0])
        raise DataError(
            f"the code {int(codes[row, place])} is not in 0..{limit - 1}; correct it, or declare more codes where the "
            "data set says how many the column has",
            path=path,
            row=first_row + row,
            column=repr(column) if codes.shape[1] == 1 else f"{column!r}, value {place}",
        )


class ColumnTransform:
    """Base of transforms that work on one column at a time."""

    version: ClassVar[int] = 1
    """To be raised when results change: kept results are then computed again."""
    fits: ClassVar[bool] = False
    """Whether it learns from the training rows."""
    takes: ClassVar[tuple[str, ...]] = ("numeric",)
    """Kinds of columns that it works on."""

    def __init__(self, config: TransformConfig) -> None:
        self.config: Any = config

    def select(self, columns: tuple[Column, ...]) -> tuple[str, ...]:
        """Return the names of the columns to work on. Raises RecipeError for one that is absent or of another kind."""
        named: tuple[str, ...] = self.config.columns
        by_name = {column.name: column for column in columns}
        for name in named:
            if name not in by_name:
                raise RecipeError(
                    f"preprocess.transforms: {self.config.name} names column {name!r}{did_you_mean(name, by_name)}; "
                    f"there are {', '.join(by_name) or 'none'}"
                )
            if by_name[name].kind not in self.takes:
                raise RecipeError(
                    f"preprocess.transforms: {self.config.name} works on {' or '.join(self.takes)} columns, and "
                    f"{name!r} is {by_name[name].kind} at that point; leave it out of `columns`"
                )
        return named or tuple(name for name, column in by_name.items() if column.kind in self.takes)

    def partial(self, x: Array) -> State:
        """Summarise the training rows (n, dim) of one shard."""
        raise TypeError(f"{type(self).__name__} learns nothing")

    def fit(self, partials: list[State], column: Column) -> State:
        """Put the shards' summaries together, in the shards' order."""
        return {}

    def output(self, column: Column, state: State) -> Column:
        """Say what becomes of the column."""
        return column

    def apply(self, x: Array, state: State) -> Array:
        """Transform rows (n, dim)."""
        return x

    def describe(self, column: Column, state: State) -> dict[str, Any]:
        """Say for people what was learned: small plain values."""
        return {}


@dataclass(frozen=True)
class GraphView:
    """The graph that preprocess has just built: paths of arrays, opened where they are needed; picklable."""

    folder: str
    entries: dict[str, ArrayEntry]
    num_nodes: int
    symmetric: bool
    dataset: str = ""
    """Folder of the ingest artifact: ids of nodes."""
    home: str = ""
    """Root of the home: artifacts that transforms name."""

    def get(self, name: str) -> Array | None:
        """Return an array, memory-mapped, or None."""
        if self.symmetric and name in ("csr_indptr", "csr_indices"):
            name = name.replace("csr", "csc")
        entry = self.entries.get(name)
        return None if entry is None else open_array(Path(self.folder) / entry.path, entry)

    def __getitem__(self, name: str) -> Array:
        array = self.get(name)
        assert array is not None, name
        return array

    @cached_property
    def digests(self) -> dict[str, Any]:
        """Digests of the arrays that a transform of structure may read."""
        return {name: self.digest(name) for name in _STRUCTURE if name in self.entries}

    def digest(self, name: str) -> str:
        """Return the digest of an array's file."""
        return file_digest(Path(self.folder) / self.entries[name].path)


class StructureTransform:
    """Base of transforms that add a column computed from the graph."""

    version: ClassVar[int] = 1

    def __init__(self, config: ComponentConfig) -> None:
        self.config: Any = config

    def column(self, graph: GraphView) -> Column:
        """Say what the new column is. Raises RecipeError where the graph does not have what it needs."""
        raise TypeError(f"{type(self).__name__} makes no column")

    def reads(self, graph: GraphView) -> dict[str, Any]:
        """Return digests of what the column is computed from: part of the names of kept results."""
        return graph.digests

    def prepare(self, graph: GraphView) -> None:
        """Compute, once and before any `compute`, what all nodes' rows need together."""

    def finish(self, graph: GraphView) -> None:
        """Remove what `prepare` left in the graph's folder."""

    def compute(self, graph: GraphView, first: int, last: int) -> Array:
        """Return float32 (last - first, dim): the new column of nodes first to last."""
        raise TypeError(f"{type(self).__name__} makes no column")


def numeric(column: Column, dim: int | None = None) -> Column:
    """The column as numbers, with another width where one is given."""
    return replace(column, kind="numeric", dim=dim or column.dim, cardinalities=())


def summary(values: Any, digits: int = 6) -> Any:
    """Plain rounded values for a report; of long vectors the ends of their range."""
    flat = np.asarray(values, np.float64).ravel()
    if len(flat) <= 8:
        return [float(f"{value:.{digits}g}") for value in flat]
    return {"min": float(f"{flat.min():.{digits}g}"), "max": float(f"{flat.max():.{digits}g}"), "values": len(flat)}
