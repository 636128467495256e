"""Which entities are known to complete a triple: what filtered ranking leaves out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasks.arrays import Array, blocks

_ROWS_AT_A_TIME = 1 << 20


class Known(NamedTuple):
    """The entities that are known to complete n queries: a view of all triples, however many complete one.

    Those of query i are `triples[low[i]:high[i]] - base[i]`, ascending.
    """

    low: NDArray[np.int64]
    """(n,)."""
    high: NDArray[np.int64]
    """(n,)."""
    base: NDArray[np.uint64]
    """(n,)."""
    triples: NDArray[np.uint64]
    """Of any length, sorted."""

    def part(self, rows: slice | Array) -> Known:
        """Return those of some queries."""
        return Known(self.low[rows], self.high[rows], self.base[rows], self.triples)

    @classmethod
    def none(cls, count: int) -> Known:
        """Return that nothing is known of so many queries."""
        places = np.zeros(count, np.int64)
        return cls(places, places, np.zeros(count, np.uint64), np.zeros(0, np.uint64))


@dataclass(frozen=True)
class KnownTriples:
    """Distinct triples of all splits, sorted once by (relation, head, tail) and once by (relation, tail, head).

    A triple is one number: (relation N + given entity) N + asked entity. Memory: 16 bytes a triple, and up to 16 more
    while it is built. Finding a query's entities takes two binary searches.
    """

    num_entities: int
    num_relations: int
    by_head: NDArray[np.uint64]
    by_tail: NDArray[np.uint64]

    @classmethod
    def of(cls, splits: Iterable[tuple[Array, Array]], num_entities: int, num_relations: int) -> KnownTriples:
        """Take the triples of splits.

        Args:
            splits: heads and tails, id (n, 2), and relations, int32 (n,).
            num_entities: entities are numbers below it.
            num_relations: relations likewise.

        Raises:
            ValueError: a number that is none of an entity or a relation, or more of them than 64 bits can tell apart.
        """
        if num_entities * num_entities * max(num_relations, 1) >= 1 << 64:
            raise ValueError(f"triples of {num_entities:,} entities and {num_relations:,} relations exceed 64 bits")
        parts = [np.zeros(0, np.uint64)]
        for edges, relation in splits:
            _check_below(edges, num_entities, "entities")
            _check_below(relation, num_relations, "relations")
            parts.append(_numbers(relation, edges[:, 0], edges[:, 1], num_entities))
        by_head = np.concatenate(parts)
        del parts
        by_head.sort()
        is_first = np.ones(len(by_head), np.bool_)
        np.not_equal(by_head[1:], by_head[:-1], out=is_first[1:])
        by_head = by_head if is_first.all() else by_head[is_first]
        by_tail = np.empty_like(by_head)
        entities = np.uint64(num_entities)
        for rows in blocks(len(by_head), _ROWS_AT_A_TIME):
            left, tail = np.divmod(by_head[rows], entities)
            relation, head = np.divmod(left, entities)
            by_tail[rows] = _numbers(relation, tail, head, num_entities)
        by_tail.sort()
        return cls(num_entities, num_relations, by_head, by_tail)

    def tails(self, heads: Array, relations: Array) -> Known:
        """Return the known tails of queries (head, relation, ?), (n,) each."""
        return self._find(self.by_head, heads, relations)

    def heads(self, relations: Array, tails: Array) -> Known:
        """Return the known heads of queries (?, relation, tail), likewise."""
        return self._find(self.by_tail, tails, relations)

    def contain(self, heads: Array, relations: Array, tails: Array) -> NDArray[np.bool_]:
        """Return which triples, (n,) each, are among them: bool (n,)."""
        if not len(self.by_head):
            return np.zeros(len(heads), np.bool_)
        numbers = _numbers(relations, heads, tails, self.num_entities)
        place = np.minimum(np.searchsorted(self.by_head, numbers), len(self.by_head) - 1)
        return np.asarray(self.by_head[place] == numbers)

    def _find(self, numbers: NDArray[np.uint64], given: Array, relations: Array) -> Known:
        base = _numbers(relations, given, np.zeros(len(given), np.uint64), self.num_entities)
        low = np.searchsorted(numbers, base)
        high = np.searchsorted(numbers, base + np.uint64(self.num_entities))  # at most N^2 R: no overflow
        return Known(low, high, base, numbers)


def _numbers(relation: Array, given: Array, asked: Array, num_entities: int) -> NDArray[np.uint64]:
    entities = np.uint64(num_entities)
    numbers = relation.astype(np.uint64)
    numbers *= entities
    numbers += given.astype(np.uint64)
    numbers *= entities
    numbers += asked.astype(np.uint64)
    return numbers


def _check_below(numbers: Array, bound: int, what: str) -> None:
    if numbers.size and not 0 <= numbers.min() <= numbers.max() < bound:
        raise ValueError(f"{what} are numbers from 0 to below {bound}, not from {numbers.min()} to {numbers.max()}")
