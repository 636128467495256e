"""How similar queries are to the rows of entities, and the gradients, where many queries share many candidates.

| kind | score of q and c |
|---|---|
| dot | q . c |
| l1 | - sum_j abs(q_j - s_j c_j) |
| l2 | - sqrt(sum_j (q_j - s_j c_j)^2) |
| complex | - sum_j abs(q_j - c_j), complex numbers: the first half of the columns real, the last half imaginary parts |

The scale s of a query is 1 where it is None; only l1 and l2 have one. At a distance of 0 a gradient is 0: of l1 and
complex number by number. Distances are summed of differences, not made of products, so that near ones are exact.
Kernels take one thread and no lock, products are torch's: threads may call these functions side by side.

Milliseconds of scores and gradients of 512 queries with 256 candidates that all share, w = 200 (complex: 400), one
thread with AVX-512 (Sapphire Rapids, November 2026), and of torch: l1 0.7 + 1.2 and 22, with a scale 0.8 + 1.8 and 450,
l2 0.5 + 1.1 and 18 (2.1 of products), with a scale 0.7 + 1.6 and 480, complex 2.3 + 4.3 and 1,040, dot the same.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.kernels.simd._llvm import HAS_AVX512
from models.kernels.simd.row_tiles import RowTile
from models.kernels.simd.vector import Lanes, storage
from models.kernels.similarity.loops import divide_slopes, pull_pairs, score_pairs
from models.kernels.similarity.pairs import complex_pair_gradients, complex_pair_scores

_MOST_NUMBERS, _MOST_ON_DEVICE = 1 << 22, 1 << 26
"""Differences at once: 16 MB on the CPU, 256 MB elsewhere. The latter is not tuned."""


def plain_similarities(kind: str, queries: Tensor, candidates: Tensor, scale: Tensor | None) -> Tensor:
    """Return the scores (G, K) of all queries with all candidates, some queries at a time."""
    if kind == "dot":
        return torch.mm(queries, candidates.T)
    scores = queries.new_empty(len(queries), len(candidates))
    for part in _query_parts(queries, candidates):
        part_scale = None if scale is None else scale[part, None]
        scores[part] = plain_pairs(kind, queries[part, None], candidates, part_scale)
    return scores


def plain_gradients(
    kind: str, queries: Tensor, candidates: Tensor, slopes: Tensor, scale: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the gradients of queries, candidates and scale."""
    if kind == "dot":
        return torch.mm(slopes, candidates), torch.mm(slopes.T, queries), None
    by_queries, by_candidates = torch.empty_like(queries), torch.zeros_like(candidates)
    by_scale = None if scale is None else torch.empty_like(scale)
    for part in _query_parts(queries, candidates):
        part_scale = None if scale is None else scale[part, None]
        gradients = plain_pair_gradients(kind, queries[part, None], candidates, slopes[part], part_scale)
        by_queries[part] = gradients[0].sum(1)
        by_candidates += gradients[1].sum(0)
        if by_scale is not None and gradients[2] is not None:
            by_scale[part] = gradients[2].sum(1)
    return by_queries, by_candidates, by_scale


def _query_parts(queries: Tensor, candidates: Tensor) -> list[slice]:
    most = _MOST_NUMBERS if queries.device.type == "cpu" else _MOST_ON_DEVICE
    step = max(1, most // max(1, candidates.numel()))
    return [slice(low, low + step) for low in range(0, len(queries), step)]


def plain_pairs(kind: str, queries: Tensor, others: Tensor, scale: Tensor | None) -> Tensor:
    """Return scores (..., n) of rows (..., n, w) that are broadcast."""
    if kind == "dot":
        return (queries * others).sum(-1)
    difference = queries - (others if scale is None else scale * others)
    if kind == "l1":
        return -difference.abs().sum(-1)
    return -_lengths(kind, difference).sum(-1)


def plain_pair_gradients(
    kind: str, queries: Tensor, others: Tensor, slopes: Tensor, scale: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the gradients of rows (..., n, w) that are broadcast, for each pair."""
    if kind == "dot":
        return slopes[..., None] * others, slopes[..., None] * queries, None
    difference = queries - (others if scale is None else scale * others)
    if kind == "l1":
        direction = difference.sign_()
    else:
        lengths = _lengths(kind, difference)
        inverse = torch.where(lengths > 0, 1 / lengths, lengths)  # a distance of 0 has no direction
        direction = difference.mul_(torch.cat([inverse, inverse], -1) if kind == "complex" else inverse)
    pull = direction.mul_(slopes[..., None])
    if scale is None:
        return -pull, pull, None
    return -pull, pull * scale, pull * others


def _lengths(kind: str, difference: Tensor) -> Tensor:
    """Return the lengths of complex numbers (..., w / 2), or of the whole rows (..., 1)."""
    if kind == "l2":
        return difference.square().sum(-1, keepdim=True).sqrt_()
    real, imaginary = difference.chunk(2, -1)
    return real.square().add_(imaginary.square()).sqrt_()


SimilarityKind = Literal["dot", "l1", "l2", "complex"]
_LANES = Lanes(32 if HAS_AVX512 else 8)
"""Candidates at once where scores are made."""
_SQUARE = Lanes(16 if HAS_AVX512 else 8)
_HEIGHT = 8
"""Queries at once."""
_COLUMNS = 16 if HAS_AVX512 else 8
"""Columns at once where gradients are made."""
_WHOLE, _PART = Lanes(_COLUMNS), Lanes(_COLUMNS, partly=True)
_BLOCK = 128
"""Candidates whose columns stay in the first-level cache meanwhile: 64 and 256 are as fast, 32 columns of half as many
queries gain nothing, 32 of as many take up to half as long again (Sapphire Rapids, November 2026)."""


def similarities(kind: SimilarityKind, queries: Tensor, candidates: Tensor, scale: Tensor | None = None) -> Tensor:
    """Return the scores (G, K) of queries (G, w) with candidates (K, w).

    Args:
        kind: the similarity.
        queries: float32 on the CPU; anything else goes through plain torch.
        candidates: likewise.
        scale: s (G, w).
    """
    _check(kind, queries, candidates, scale)
    if kind == "dot" or not _has_kernel(queries):
        return plain_similarities(kind, queries, candidates, scale)
    (count, width), height, size = candidates.shape, _HEIGHT, _LANES.count
    rows, scales = _tiles(queries, height), None if scale is None else _tiles(scale, height)
    scores = np.empty((-(-len(queries) // height) * height, count), np.float32)
    square = kind == "l2" or None
    half = width // 2 if kind == "complex" else None
    columns = _room(width * size)
    shape = _tile(height, size), height, _LANES, size, _SQUARE, _SQUARE.count
    score_pairs(
        *shape, square, half, rows, candidates.detach().contiguous().numpy(), scales, columns, scores.reshape(-1)
    )
    if square is not None:
        np.negative(np.sqrt(scores, out=scores), out=scores)
    return torch.from_numpy(scores[: len(queries)])


def similarity_gradients(
    kind: SimilarityKind,
    queries: Tensor,
    candidates: Tensor,
    slopes: Tensor,
    scale: Tensor | None = None,
    scores: Tensor | None = None,
    by_queries: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the gradients of queries (G, w), candidates (K, w) and the scale.

    Args:
        kind: the similarity.
        queries: as `similarities` took them.
        candidates: likewise.
        slopes: the derivatives (G, K) of the loss by the scores.
        scale: as `similarities` took it.
        scores: what `similarities` returned: l2 need not find the distances again. -infinity where the slope is 0.
        by_queries: the gradient of the queries by something else, (G, w), which this one is added to, in place.
    """
    _check(kind, queries, candidates, scale)
    assert slopes.shape == (len(queries), len(candidates)), "a slope for each score"
    assert scores is None or scores.shape == slopes.shape, "scores and slopes go together"
    if kind == "dot" or not _has_kernel(queries):
        by_rows, by_others, stretch = plain_gradients(kind, queries, candidates, slopes, scale)
        return by_rows if by_queries is None else by_queries.add_(by_rows), by_others, stretch
    (count, width), size = candidates.shape, _COLUMNS
    square, half, height = kind == "l2" or None, None, _HEIGHT
    if kind == "complex" or scale is not None:
        height //= 2  # each query takes twice the registers
    if kind == "l2":
        distances = similarities(kind, queries, candidates, scale) if scores is None else scores
        weights = _room(-(-len(slopes) // height) * height * slopes.shape[1])
        divide_slopes(storage(slopes.contiguous()), storage(distances.contiguous()), weights)
    elif kind == "complex":
        weights, half = _tiles(slopes * 0.5, height), width // 2
    else:
        weights = _tiles(slopes, height)
    rows, scales = _tiles(queries, height), None if scale is None else _tiles(scale, height)
    fits = by_queries is not None and by_queries.is_contiguous() and len(queries) % height == 0
    summed = storage(by_queries) if by_queries is not None and fits else np.zeros_like(rows)
    by_candidates = np.empty(count * width, np.float32)
    by_scale = None if scales is None else np.zeros_like(scales)
    near, moved = _room(2 * _BLOCK * size), _room(2 * _BLOCK * size)
    shape = _tile(height, size), height, _WHOLE, _PART, size, _BLOCK
    numbers = rows, storage(candidates.contiguous()), scales, weights, near, moved
    pull_pairs(*shape, square, half, width, *numbers, summed, by_candidates, by_scale)
    total = torch.from_numpy(summed).view(-1, width)[: len(queries)]
    if by_queries is not None and not fits:
        total = by_queries.add_(total)
    stretch = None if by_scale is None else torch.from_numpy(by_scale).view(-1, width)[: len(queries)]
    return total, torch.from_numpy(by_candidates).view(count, width), stretch


def pair_similarities(kind: SimilarityKind, queries: Tensor, others: Tensor, scale: Tensor | None = None) -> Tensor:
    """Return the scores (n,) of queries (n, w) with others (n, w), row by row."""
    _check(kind, queries, others, scale)
    assert len(queries) == len(others), "as many queries as others"
    if kind == "complex" and _has_kernel(queries):
        return complex_pair_scores(queries, others)
    return plain_pairs(kind, queries, others, scale)


def pair_similarity_gradients(
    kind: SimilarityKind, queries: Tensor, others: Tensor, slopes: Tensor, scale: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the gradients of queries, others (n, w) and the scale; slopes (n,) as `similarity_gradients`.

    They hold no memory of what they are made of.
    """
    _check(kind, queries, others, scale)
    assert slopes.shape == (len(queries),) == (len(others),), "a slope for each pair"
    if kind == "complex" and _has_kernel(queries):
        return *complex_pair_gradients(queries, others, slopes), None
    return plain_pair_gradients(kind, queries, others, slopes, scale)


def _check(kind: str, queries: Tensor, others: Tensor, scale: Tensor | None) -> None:
    assert queries.dim() == others.dim() == 2, "queries and candidates are rows"
    assert queries.shape[1] == others.shape[1], f"rows of {queries.shape[1]} and of {others.shape[1]} numbers"
    assert queries.dtype == others.dtype, "queries and candidates of one kind of float"
    assert kind != "complex" or queries.shape[1] % 2 == 0, "a complex number takes two columns"
    if scale is not None:
        assert kind in ("l1", "l2"), f"{kind} has no scale"
        assert scale.shape == queries.shape, "a scale for each number of a query"
        assert scale.dtype == queries.dtype, "scales and queries of one kind of float"


@cache
def _tile(height: int, size: int) -> RowTile:
    return RowTile(height, size)


def _has_kernel(queries: Tensor) -> bool:
    return queries.device.type == "cpu" and queries.dtype == torch.float32


def _room(count: int) -> NDArray[Any]:
    """Return memory that begins at a cache line, as torch's does."""
    return torch.empty(count).numpy()


def _tiles(rows: Tensor, height: int) -> NDArray[Any]:
    """Return rows, flat, and so many zeros as make whole tiles of rows."""
    missing = -len(rows) % height
    return storage(torch.nn.functional.pad(rows, (0, 0, 0, missing)) if missing else rows.contiguous())
