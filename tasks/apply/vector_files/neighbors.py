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
    query, scale = _scaled(queries, metric)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for first, _, chunk in file.chunks():
            scores = query @ (_scaled(chunk, metric)[0] if metric == "cosine" else chunk).T
            _refuse_infinite(file.path, scores)
            inside = np.flatnonzero((rows >= first) & (rows < first + len(chunk)))
            scores[inside, rows[inside] - first] = -np.inf
            best.add(scores, first)
        products = (best.scores * scale).astype(np.float32)
    _refuse_infinite(file.path, products)
    names = file.names(np.unique(best.rows))
    for node, nearest_rows, scores in zip(asked.to_pylist(), best.rows, products, strict=True):
        yield Neighbors(node, [names[row] for row in nearest_rows.tolist()], scores)


def _refuse_infinite(path: Path, scores: Array) -> None:
    if not np.isfinite(scores).all():
        why = "holds vectors whose products exceed float32 (3.4e38)"
        raise DataError(f"{why}; take the metric cosine, or write smaller numbers", path=path)


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


def _scaled(x: Array, metric: Metric) -> tuple[Array, Array | float]:
    """Return rows that float32 can square, of length 1 for `cosine`, and what to multiply products by; zeros stay."""
    largest = np.abs(x).max(1, keepdims=True).astype(np.float64)
    x = (x / np.where(largest > 0, largest, 1)).astype(np.float32)
    if metric == "dot":
        return x, largest
    length = np.linalg.norm(x, axis=1, keepdims=True)
    return x / np.where(length > 0, length, 1), 1.0
