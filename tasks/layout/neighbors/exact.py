"""Nearest neighbours by comparing all with all: blocked matrix products."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.kernels.threads import run_parts
from tasks.arrays import blocks
from tasks.layout.neighbors.rows import BLOCK_BYTES, NeighborLists, SearchedRows, distances, scores

_QUERIES = 1 << 10


def nearest_rows(
    queries: SearchedRows, rows: SearchedRows, k: int, itself: NDArray[np.int64] | None = None
) -> NeighborLists:
    """Return the k nearest rows of each query.

    Args:
        queries: vectors (m, d).
        rows: vectors (n, d).
        k: at most n; below n with `itself`.
        itself: each query's own row, which is not its neighbour; int64 (m,).

    Returns:
        rows int64 and distances float32, (m, k), the nearest first.
    """
    neighbors = np.empty((len(queries), k), np.int64), np.empty((len(queries), k), np.float32)
    mean = rows.mean()  # also finds what is not finite
    # It is taken from all vectors before they are squared; products do not bear it.
    middle = torch.zeros_like(mean) if rows.metric == "dot" else mean
    parts = list(blocks(len(queries), _QUERIES))

    def search(number: int) -> None:
        part = parts[number]
        near, far = _search(queries.read(part) - middle, rows, middle, k, None if itself is None else itself[part])
        neighbors[0][part], neighbors[1][part] = near.numpy(), far.numpy()

    run_parts(search, len(parts))
    return neighbors


def _search(
    x: Tensor, rows: SearchedRows, middle: Tensor, k: int, itself: NDArray[np.int64] | None
) -> tuple[Tensor, Tensor]:
    """Return rows and distances of the k nearest of some queries (m, d) among all rows, block by block."""
    near, far = torch.empty(len(x), 0, dtype=torch.int64), torch.empty(len(x), 0)
    for block in blocks(len(rows), max(min(rows.block, BLOCK_BYTES // (4 * max(len(x), 1))), 1)):
        others = rows.read(block) - middle
        score = scores(rows.metric, x, others)
        if itself is not None:
            here = np.flatnonzero((itself >= block.start) & (itself < block.stop))
            score[here, itself[here] - block.start] = torch.inf
        best = score.topk(min(k, score.shape[1]), dim=1, largest=False)
        distance, at = distances(rows.metric, x, others, best.indices)
        if itself is not None:
            distance.masked_fill_(at + block.start == torch.from_numpy(itself)[:, None], torch.inf)
        far, order = torch.cat([far, distance], 1).sort(dim=1, stable=True)
        near = torch.cat([near, at + block.start], 1).gather(1, order)[:, :k]
        far = far[:, :k]
    return near, far
