"""Nearest neighbours by comparing all with all, or each cluster with those beside it: blocked matrix products.

Clusters are an inverted file, as vector databases have it, of which whole lists are looked up at once.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.kernels.threads import run_parts
from tasks.arrays import blocks, offsets
from tasks.layout.neighbors.rows import BLOCK_BYTES, NeighborLists, SearchedRows, distances, scores

_QUERIES = 1 << 10
_CLUSTER_ROWS = 128
_CANDIDATES = 2560
"""Rows that each row is compared with, at least. Fashion-MNIST (70,000 x 784), k = 45, one thread of a Xeon, November
2026: 11.2 CPU seconds and 94.5 % of the neighbours; with 5,120 17.2 seconds and 98.7 %."""
_SAMPLE, _LLOYD_ROUNDS = 32, 5
"""Rows for each cluster that the clusters are made of, and rounds of Lloyd's algorithm."""


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


def nearest_in_clusters(rows: SearchedRows, k: int, seed: int) -> NeighborLists:
    """Return k near neighbours of each row, without itself: most of the nearest ones. k is below n.

    Returns:
        rows int64 and distances float32, (n, k), the nearest first.
    """
    rows.mean()  # finds what is not finite
    centres = _centres(rows, seed)
    cluster = _assign(rows, centres)
    members = np.argsort(cluster, kind="stable")
    begin = offsets(np.bincount(cluster, minlength=len(centres)))
    neighbors = np.empty((len(rows), k), np.int64), np.empty((len(rows), k), np.float32)

    def search(number: int) -> None:
        cluster_rows = members[begin[number] : begin[number + 1]]
        if not len(cluster_rows):
            return
        beside = _beside(number, centres, np.diff(begin), max(_CANDIDATES, 4 * k))
        candidates = np.concatenate([cluster_rows, *(members[begin[j] : begin[j + 1]] for j in beside)])
        others = rows.read(candidates) - centres[number]
        for part in blocks(len(cluster_rows), max(BLOCK_BYTES // (4 * len(candidates)), 1)):
            x = others[part]
            score = scores(rows.metric, x, others)
            score[:, part].fill_diagonal_(torch.inf)
            far, at = distances(rows.metric, x, others, score.topk(k, dim=1, largest=False).indices)
            neighbors[0][cluster_rows[part]], neighbors[1][cluster_rows[part]] = candidates[at.numpy()], far.numpy()

    run_parts(search, len(centres))
    return neighbors


def _beside(number: int, centres: Tensor, sizes: NDArray[np.int64], num_rows: int) -> NDArray[np.int64]:
    """Return the other clusters nearest to one that hold so many rows together with it, or all."""
    order = ((centres - centres[number]) ** 2).sum(1).argsort(stable=True).numpy()
    order = order[order != number]
    before = np.cumsum(sizes[order]) - sizes[order] + sizes[number]
    return order[before < num_rows]


def _centres(rows: SearchedRows, seed: int) -> Tensor:
    """Return the centres of clusters, float32 (c, d), by k-means on a sample of rows."""
    draw = np.random.Generator(np.random.Philox(key=seed))
    count = max(min(len(rows) // _CLUSTER_ROWS, int(4 * len(rows) ** 0.5)), 1)
    chosen = draw.choice(len(rows), min(count * _SAMPLE, len(rows)), replace=False)
    centres = rows.read(np.sort(chosen[:count]))
    sample = np.sort(chosen)
    for _ in range(_LLOYD_ROUNDS):
        total, sizes = torch.zeros_like(centres), torch.zeros(count, dtype=torch.int64)
        for part in blocks(len(sample), rows.block):
            x = rows.read(sample[part])
            nearest = _nearest_centre(x, centres)
            total.index_add_(0, nearest, x)
            sizes += torch.bincount(nearest, minlength=count)
        centres = torch.where(sizes[:, None] > 0, total / sizes.clamp(min=1)[:, None], centres)
    return centres


def _assign(rows: SearchedRows, centres: Tensor) -> NDArray[np.int64]:
    """Return the number of each row's nearest centre, int64 (n,)."""
    size = max(min(rows.block, BLOCK_BYTES // (4 * len(centres))), 1)
    return np.concatenate([_nearest_centre(rows.read(part), centres).numpy() for part in blocks(len(rows), size)])


def _nearest_centre(x: Tensor, centres: Tensor) -> Tensor:
    return scores("euclidean", x, centres).argmin(1)
