"""The similarities of `models.kernels.similarity.rows` in plain torch: any device, any kind of float."""

from __future__ import annotations

import torch
from torch import Tensor

_MOST_NUMBERS, _MOST_ON_DEVICE = 1 << 22, 1 << 26
"""Differences at once: 16 MB on the CPU, 256 MB elsewhere. The latter is not tuned."""


def plain_similarities(kind: str, queries: Tensor, candidates: Tensor, scale: Tensor | None) -> Tensor:
    """Return the scores (G, K) of all queries with all candidates, some queries at a time."""
    if kind == "dot":
        return torch.mm(queries, candidates.T)
    scores = queries.new_empty(len(queries), len(candidates))
    for part in _parts(queries, candidates):
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
    for part in _parts(queries, candidates):
        part_scale = None if scale is None else scale[part, None]
        gradients = plain_pair_gradients(kind, queries[part, None], candidates, slopes[part], part_scale)
        by_queries[part] = gradients[0].sum(1)
        by_candidates += gradients[1].sum(0)
        if by_scale is not None and gradients[2] is not None:
            by_scale[part] = gradients[2].sum(1)
    return by_queries, by_candidates, by_scale


def _parts(queries: Tensor, candidates: Tensor) -> list[slice]:
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
