"""Ranking in float64, with Python's sets."""

from __future__ import annotations

from typing import Any

import numpy as np

from tasks.ranking.known_triples import Known


def score_all(kind: str, queries: Any, entities: Any, scale: Any = None) -> Any:
    """Scores float64 (n, N) of queries (n, w) with entities (N, w)."""
    q, e = queries.astype(np.float64)[:, None], entities.astype(np.float64)[None]
    if kind == "dot":
        return (q * e).sum(-1)
    difference = q - (e if scale is None else scale.astype(np.float64)[:, None] * e)
    if kind == "l1":
        return -np.abs(difference).sum(-1)
    if kind == "l2":
        return -np.sqrt((difference**2).sum(-1))
    half = queries.shape[1] // 2
    return -np.abs(difference[..., :half] + 1j * difference[..., half:]).sum(-1)


def known_sets(known: Known | None, count: int) -> list[set[int]]:
    if known is None:
        return [set() for _ in range(count)]
    return [set(entities) for entities in lists_of(known)]


def lists_of(known: Known) -> list[list[int]]:
    """The entities that complete each query, in their order."""
    columns = zip(known.low, known.high, known.base, strict=True)
    return [(known.triples[low:high] - base).astype(np.int64).tolist() for low, high, base in columns]


def allowed(known: Known | None, counted: Any, shape: tuple[int, int]) -> list[list[int]]:
    """Entities of each query that count, its true one perhaps among them."""
    sets = known_sets(known, shape[0])
    return [[e for e in range(shape[1]) if e not in own and (counted is None or counted[e])] for own in sets]


def ranks(scores: Any, truth: Any, known: Known | None, counted: Any) -> list[list[int]]:
    """How many score higher, how many the same, how many there are: three lists."""
    found: list[list[int]] = [[], [], []]
    for i, entities in enumerate(allowed(known, counted, scores.shape)):
        others = [scores[i, e] for e in entities if e != truth[i]]
        own = scores[i, truth[i]]
        found[0].append(sum(other > own for other in others))
        found[1].append(sum(other == own for other in others))
        found[2].append(len(others))
    return found


def best(scores: Any, k: int, known: Known | None, counted: Any) -> list[list[int]]:
    """The k best entities of each query, -1 where there are fewer."""
    found = []
    for i, entities in enumerate(allowed(known, counted, scores.shape)):
        order = sorted(entities, key=lambda e: (-scores[i, e], e))[:k]
        found.append(order + [-1] * (k - len(order)))
    return found
