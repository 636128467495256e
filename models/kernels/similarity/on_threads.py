"""`models.kernels.similarity.rows` on all threads, some queries or some candidates each; on a device at once."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from models.kernels.memory import empty
from models.kernels.similarity.rows import SimilarityKind, similarities, similarity_gradients
from models.kernels.threads import num_threads, run_parts

_LEAST = 32
"""Rows of a part: fewer are not worth a thread."""


def all_similarities(kind: SimilarityKind, queries: Tensor, candidates: Tensor, scale: Tensor | None = None) -> Tensor:
    """Return the scores (G, K): see `similarities`. Threads take some queries each."""
    parts = _parts(len(queries))
    if len(parts) == 1 or queries.device.type != "cpu":
        return similarities(kind, queries, candidates, scale)
    scores = empty((len(queries), len(candidates)), queries.dtype)

    def score(number: int) -> None:
        rows = parts[number]
        if kind == "dot":
            torch.mm(queries[rows], candidates.T, out=scores[rows])
            return
        scores[rows] = similarities(kind, queries[rows], candidates, None if scale is None else scale[rows])

    run_parts(score, len(parts))
    return scores


def all_similarity_gradients(
    kind: SimilarityKind,
    queries: Tensor,
    candidates: Tensor,
    slopes: Tensor,
    scale: Tensor | None = None,
    scores: Tensor | None = None,
    by_queries: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the gradients: see `similarity_gradients`. Threads take some candidates each."""
    parts = _parts(len(candidates))
    if len(parts) == 1 or queries.device.type != "cpu":
        return similarity_gradients(kind, queries, candidates, slopes, scale, scores, by_queries)
    if kind == "dot":
        return *_products(queries, candidates, slopes, by_queries), None
    by_candidates = empty((len(candidates), candidates.shape[1]), candidates.dtype)
    by_query_parts = [torch.empty(0)] * len(parts)
    stretches: list[Tensor | None] = [None] * len(parts)

    def pull(number: int) -> None:
        rows = parts[number]
        part_scores = None if scores is None else scores[:, rows]
        by_query_parts[number], by_candidates[rows], stretches[number] = similarity_gradients(
            kind, queries, candidates[rows], slopes[:, rows], scale, part_scores
        )

    run_parts(pull, len(parts))
    for part in by_query_parts[1:]:
        by_query_parts[0] += part
    total = by_query_parts[0] if by_queries is None else by_queries.add_(by_query_parts[0])
    moved = [stretch for stretch in stretches if stretch is not None]
    return total, by_candidates, torch.stack(moved).sum(0) if moved else None


def _products(queries: Tensor, candidates: Tensor, slopes: Tensor, by_queries: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the gradients of dot products: two products, whose rows need no sums over threads."""
    if by_queries is None:
        by_queries = queries.new_zeros(queries.shape)
    by_candidates = empty((len(candidates), candidates.shape[1]), candidates.dtype)
    of_queries = _parts(len(queries))
    parts = [*of_queries, *_parts(len(candidates))]

    def multiply(number: int) -> None:
        rows = parts[number]
        if number < len(of_queries):
            by_queries[rows].addmm_(slopes[rows], candidates)
        else:
            torch.mm(slopes[:, rows].T, queries, out=by_candidates[rows])

    run_parts(multiply, len(parts))
    return by_queries, by_candidates


def _parts(count: int) -> list[slice]:
    """Cut rows into one part for each thread."""
    number = max(1, min(num_threads(), count // _LEAST))
    bounds = [count * part // number for part in range(number + 1)]
    return [slice(low, high) for low, high in itertools.pairwise(bounds)]
