"""The nearest of exported vectors: exact, in chunks, in bounded memory.

A pass over the file (`tasks/apply/vector_files/reader.py`) serves some thousand queries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa

from configs.errors import DataError, RecipeError
from configs.matching import did_you_mean
from tasks.apply.vector_files.reader import VectorFile
from tasks.storage.graph_store import Array

Metric = Literal["cosine", "dot"]
_QUERIES = 1 << 11  # at a time: the scores of a chunk take 256 MiB at most
_FAR = 1e15  # numbers beyond it, or below its inverse, are scaled before float32 squares them


@dataclass(frozen=True)
class Neighbors:
    """The nearest of one node, best first."""

    node: Any
    ids: list[Any]
    scores: Array
    """float32 (k,)."""


def nearest(path: Path, nodes: Sequence[Any] | pa.Array, k: int, metric: Metric = "cosine") -> Iterator[Neighbors]:
    """Yield the k nearest of each node (fewer where there are fewer), without itself; of equal ones the first.

    `nodes` are ids, of the file's kind or texts; `metric` is the `cosine` of the angle (0 where a vector is zero), or
    the product, `dot`. Raises RecipeError for a k or a metric that cannot be, DataError: a damaged file, numbers or
    products that float32 does not hold, or a node that is not in it.
    """
    if k < 1:
        raise RecipeError(f"k={k}: ask for 1 neighbour or more")
    if metric not in get_args(Metric):
        raise RecipeError(f"metric={metric!r}{did_you_mean(metric, get_args(Metric))}: cosine or dot")
    file = VectorFile(path)
    asked, at_a_time = file.as_ids(nodes), min(_QUERIES, file.rows_at_a_time)
    return chain.from_iterable(
        _nearest(file, asked[start : start + at_a_time], k, metric) for start in range(0, len(asked), at_a_time)
    )


def _nearest(file: VectorFile, asked: pa.Array, k: int, metric: Metric) -> Iterator[Neighbors]:
    """Yield the same of ids whose scores have room in memory."""
    rows, queries = file.find(asked)
    best = _Best(len(asked), min(k, file.num_rows - 1))
    scale = np.ones(len(asked))
    if metric == "dot":  # powers of two scale numbers to -1..1 without rounding
        scale = np.ldexp(1.0, np.frexp(np.abs(queries).max(1).astype(np.float64))[1])
    query = _normalised(queries) if metric == "cosine" else (queries / scale[:, None]).astype(np.float32)
    for first, _, chunk in file.chunks():
        with np.errstate(over="ignore", invalid="ignore"):
            scores = query @ (_normalised(chunk) if metric == "cosine" else chunk).T
        _refuse_infinite(file.path, scores)
        inside = np.flatnonzero((rows >= first) & (rows < first + len(chunk)))
        scores[inside, rows[inside] - first] = -np.inf
        best.add(scores, first)
    with np.errstate(over="ignore", under="ignore"):
        products = (best.scores * scale[:, None]).astype(np.float32)
    _refuse_infinite(file.path, products)
    names = file.names(np.unique(best.rows))
    for node, nearest_rows, scores in zip(asked.to_pylist(), best.rows, products, strict=True):
        yield Neighbors(node, [names[row] for row in nearest_rows.tolist()], scores)


def _refuse_infinite(path: Path, scores: Array) -> None:
    if not np.isfinite(scores).all():
        raise DataError(
            "holds vectors whose products are more than float32 holds (3.4e38); take the metric cosine, or write "
            "smaller numbers",
            path=path,
        )


class _Best:
    """The best k of all chunks so far, for each query."""

    def __init__(self, queries: int, k: int) -> None:
        self.k = k
        self.scores = np.full((queries, k), -np.inf, np.float32)
        self.rows = np.full((queries, k), -1, np.int64)

    def add(self, scores: Array, first: int) -> None:
        """Take a chunk's scores (queries, n), of rows from `first` on."""
        keep = min(self.k, scores.shape[1])
        if not keep:
            return
        # Stable, so that of equal scores the first row wins; only what may get in is sorted.
        limit = np.partition(scores, -keep, axis=1)[:, -keep]
        limit = np.maximum(limit, self.scores[:, -1])
        for number in range(len(scores)):
            at = np.flatnonzero(scores[number] >= limit[number])
            joined = np.concatenate([self.scores[number], scores[number, at]])
            rows = np.concatenate([self.rows[number], at + first])
            order = np.argsort(-joined, kind="stable")[: self.k]
            self.scores[number], self.rows[number] = joined[order], rows[order]


def _normalised(x: Array) -> Array:
    """Return rows of length 1; a row of zeros stays one."""
    largest = np.maximum(x.max(1), -x.min(1))
    far = (largest > 0) & ((largest > _FAR) | (largest < 1 / _FAR))
    if far.any():
        x = x / np.where(far, largest, np.float32(1))[:, None]
    length = np.linalg.norm(x, axis=1, keepdims=True)
    normalised: Array = x / np.where(length > 0, length, 1.0)
    return normalised
