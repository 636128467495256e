"""Which entities are known to complete a triple, against Python's sets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tasks.ranking import known_triples
from tasks.ranking.known_triples import KnownTriples
from tests.ranking.test_ranking import lists_of


def drawn(count: int, num_entities: int, num_relations: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    edges = rng.integers(num_entities, size=(count, 2)).astype(np.int32)
    return edges, rng.integers(num_relations, size=count).astype(np.int32)


@pytest.mark.parametrize(("num_entities", "num_relations"), [(7, 3), (1, 1), (300, 2)])
def test_entities_of_queries(num_entities: int, num_relations: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_triples, "_ROWS_AT_A_TIME", 13)
    splits = [drawn(count, num_entities, num_relations, seed=count) for count in (101, 0, 40)]
    known = KnownTriples.of(iter(splits), num_entities, num_relations)
    triples = {
        (h, r, t) for edges, relation in splits for (h, t), r in zip(edges.tolist(), relation.tolist(), strict=True)
    }
    assert len(known.by_head) == len(known.by_tail) == len(triples)  # repetitions are kept once
    given, relations = (grid.ravel() for grid in np.meshgrid(np.arange(num_entities), np.arange(num_relations)))
    for find, ends in ((known.tails, (0, 2)), (known.heads, (2, 0))):
        found = lists_of(find(given, relations) if ends == (0, 2) else find(relations, given))
        for entities, entity, relation in zip(found, given, relations, strict=True):
            wanted = sorted(one[ends[1]] for one in triples if one[ends[0]] == entity and one[1] == relation)
            assert entities == wanted


def test_no_triples_and_no_queries() -> None:
    known = KnownTriples.of([], 5, 2)
    assert lists_of(known.tails(np.array([4]), np.array([1]))) == [[]]
    assert lists_of(KnownTriples.of([drawn(9, 5, 2, 0)], 5, 2).heads(np.zeros(0, int), np.zeros(0, int))) == []


def test_what_completes_queries_takes_no_memory() -> None:
    """Of a hub with 20,000 entities that 5,000 queries ask for: all lists share what the triples are kept in."""
    tails = np.arange(1, 20_001)
    edges = np.stack([np.zeros_like(tails), tails], 1)
    triples = KnownTriples.of([(edges, np.zeros(len(tails), np.int32))], 20_001, 1)
    found = triples.tails(np.zeros(5000, np.int64), np.zeros(5000, np.int64))
    assert found.triples is triples.by_head
    assert sum(column.nbytes for column in found[:3]) == 5000 * 24
    assert found.high[-1] - found.low[-1] == 20_000


def test_the_largest_numbers_fit() -> None:
    # 2^64 - 2^33 + 2 numbers: the last entity of the last relation is just below.
    num_entities, num_relations = (1 << 32) - 1, 1
    last = num_entities - 1
    edges = np.array([[last, last], [0, 0], [last, 5]])
    known = KnownTriples.of([(edges, np.zeros(3, np.int32))], num_entities, num_relations)
    assert lists_of(known.tails(np.array([last, 0]), np.array([0, 0]))) == [[5, last], [0]]
    assert lists_of(known.heads(np.array([0]), np.array([last]))) == [[last]]
    with pytest.raises(ValueError, match="exceed 64 bits"):
        KnownTriples.of([], 1 << 32, 1)


def test_numbers_that_are_no_entity_are_refused() -> None:
    fine = drawn(9, 5, 2, 0)
    for edges, relation in ((fine[0] + 1, fine[1]), (fine[0] - 1, fine[1]), (fine[0], fine[1] + 1)):
        with pytest.raises(ValueError, match="are numbers from 0 to below"):
            KnownTriples.of([(edges, relation)], 5, 2)
