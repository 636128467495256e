"""Ranks and best entities against float64 by brute force: filters, ties, odd sizes, threads, blocks, batches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from configs.errors import RecipeError
from tasks.ranking.entities import TableBlocks
from tasks.ranking.known_triples import Known
from tasks.ranking.queries import Queries
from tasks.ranking.rank import rank_candidates, rank_queries, top_entities
from tasks.ranking.ranks import TripleRanks
from tasks.ranking.terms import GROUP, LANES

KINDS = [("dot", False), ("l1", False), ("l1", True), ("l2", False), ("l2", True), ("complex", False)]
SMALL = 4 * LANES.count * 12
"""Bytes that are too few for two tiles, and for more than a group of queries."""


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


def lists_of(known: Known) -> list[list[int]]:
    """The entities that complete each query, in their order."""
    columns = zip(known.low, known.high, known.base, strict=True)
    return [(known.triples[low:high] - base).astype(np.int64).tolist() for low, high, base in columns]


def allowed(known: Known | None, counted: Any, shape: tuple[int, int]) -> list[list[int]]:
    """Entities of each query that count, its true one perhaps among them."""
    sets = [set()] * shape[0] if known is None else [set(entities) for entities in lists_of(known)]
    return [[e for e in range(shape[1]) if e not in own and (counted is None or counted[e])] for own in sets]


def ranks_of(scores: Any, truth: Any, known: Known | None, counted: Any) -> list[list[int]]:
    """How many score higher, how many the same, how many there are: three lists."""
    found: list[list[int]] = [[], [], []]
    for i, entities in enumerate(allowed(known, counted, scores.shape)):
        others = [scores[i, e] for e in entities if e != truth[i]]
        own = scores[i, truth[i]]
        found[0].append(sum(other > own for other in others))
        found[1].append(sum(other == own for other in others))
        found[2].append(len(others))
    return found


def best_of(scores: Any, k: int, known: Known | None, counted: Any) -> list[list[int]]:
    """The k best entities of each query, -1 where there are fewer."""
    found = []
    for i, entities in enumerate(allowed(known, counted, scores.shape)):
        order = sorted(entities, key=lambda e: (-scores[i, e], e))[:k]
        found.append(order + [-1] * (k - len(order)))
    return found


class Case:
    """Queries and entities whose rows come from a small set of small whole numbers, so that float32 is exact."""

    def __init__(self, kind: Any, scaled: bool, n: int, num: int, width: int, seed: int = 0, **options: Any) -> None:
        rng = np.random.default_rng(seed)
        distinct = options.get("distinct", max(2, num // 3))
        rows = rng.integers(-3, 4, size=(distinct, width)).astype(np.float32)
        rows[0] = 0
        vectors = rng.integers(-3, 4, size=(n, width)).astype(np.float32)
        if kind == "complex":
            # Roots are not exact: scores are equal only where each of their terms is.
            for one in (rows, vectors):
                one[:, 4:] = one[:, width // 2 :] = 0
                one[:, : min(4, width // 2)] *= 8.0 ** np.arange(min(4, width // 2))
        scale = rng.integers(-2, 3, size=(n, width)).astype(np.float32) if scaled else None
        self.rows = rows[rng.integers(distinct, size=num)]
        self.queries = Queries(kind, torch.from_numpy(vectors), None if scale is None else torch.from_numpy(scale))
        self.truth = rng.integers(num, size=n)
        lists = [np.unique(rng.integers(num, size=rng.integers(0, 9))) for _ in range(n)]
        lists = [
            np.union1d(own, [t]) if i % 2 else own for i, (own, t) in enumerate(zip(lists, self.truth, strict=True))
        ]
        starts = np.concatenate([[0], np.cumsum([len(own) for own in lists])]).astype(np.int64)
        base = num * np.arange(n)
        triples = np.concatenate([*(own + first for own, first in zip(lists, base, strict=True)), np.zeros(0, int)])
        self.known = Known(starts[:-1], starts[1:], base.astype(np.uint64), triples.astype(np.uint64))
        self.counted = rng.random(num) < 0.7
        self.scores = score_all(kind, vectors, self.rows, scale)


def numbers(found: TripleRanks) -> list[list[int]]:
    return [found.better.tolist(), found.equal.tolist(), found.candidates.tolist()]


@pytest.fixture(params=[1, 2], autouse=True)
def threads(request: pytest.FixtureRequest) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("kind", "scaled"), KINDS)
@pytest.mark.parametrize(
    ("n", "num", "width"), [(1, 1, 2), (GROUP + 1, LANES.count + 1, 6), (150, 333, 8), (3, 200, 34)]
)
def test_ranks_with_many_ties(kind: str, scaled: bool, n: int, num: int, width: int) -> None:
    case = Case(kind, scaled, n, num, width)
    for known, counted in ((None, None), (case.known, None), (None, case.counted), (case.known, case.counted)):
        wanted = ranks_of(case.scores, case.truth, known, counted)
        assert num < 10 or sum(wanted[1]) > n  # few entities may have few ties
        for entities in (TableBlocks(case.rows), TableBlocks(case.rows, block_bytes=4 * width * 37)):
            for memory in (1 << 30, SMALL):
                assert numbers(rank_queries(case.queries, case.truth, entities, known, counted, memory)) == wanted


@pytest.mark.parametrize(("kind", "scaled"), KINDS)
def test_rows_that_are_equal_tie_wherever_they_are(kind: Any, scaled: bool) -> None:
    """Of numbers that rounding touches: all copies of the true row, in all lanes and tiles, count as equal."""
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((700, 50)).astype(np.float32)
    copies = rng.choice(700, 300, replace=False)
    rows[copies] = rows[copies[0]]
    vectors, scale = (torch.from_numpy(rng.standard_normal((21, 50)).astype(np.float32)) for _ in range(2))
    queries = Queries(kind, vectors, scale if scaled else None)
    for truth in (copies[:21], np.full(21, copies[-1])):
        found = rank_queries(queries, truth, TableBlocks(rows, block_bytes=4 * 50 * 41))
        assert found.equal.tolist() == [299] * 21
        among = rank_candidates(queries, truth, np.tile(copies, (21, 1)), lambda chosen: rows[chosen])
        assert numbers(among) == [[0] * 21, [299] * 21, [299] * 21]


@pytest.mark.parametrize(("kind", "scaled"), KINDS)
def test_ranks_of_drawn_numbers(kind: Any, scaled: bool) -> None:
    """Counts differ from float64's by no more than the entities whose scores are as near as rounding."""
    rng = np.random.default_rng(2)
    rows, vectors, scale = (rng.standard_normal((count, 66)).astype(np.float32) for count in (500, 40, 40))
    queries = Queries(kind, torch.from_numpy(vectors), torch.from_numpy(scale) if scaled else None)
    truth = rng.integers(500, size=40)
    found = rank_queries(queries, truth, TableBlocks(torch.from_numpy(rows)))
    scores = score_all(kind, vectors, rows, scale if scaled else None)
    own = scores[np.arange(40), truth][:, None]
    margin = 2e-5 * np.abs(scores).max()
    assert (found.better >= (scores > own + margin).sum(1)).all()
    assert (found.better <= (scores > own - margin).sum(1)).all()
    entity, score = top_entities(queries, TableBlocks(rows), 20)
    np.testing.assert_allclose(score, np.take_along_axis(scores, entity, 1), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(score, -np.sort(-scores, axis=1)[:, :20], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("kind", "scaled"), KINDS)
@pytest.mark.parametrize(("n", "num", "k"), [(1, 1, 3), (GROUP + 1, 200, 1), (20, 200, 7), (5, 40, 45)])
def test_best_entities(kind: str, scaled: bool, n: int, num: int, k: int) -> None:
    case = Case(kind, scaled, n, num, 6)
    for known, counted in ((None, None), (case.known, None), (case.known, case.counted)):
        wanted = best_of(case.scores, k, known, counted)
        for entities, memory in ((TableBlocks(case.rows), 1 << 30), (TableBlocks(case.rows, block_bytes=800), SMALL)):
            entity, score = top_entities(case.queries, entities, k, known, counted, memory)
            assert entity.tolist() == wanted
            filled = np.take_along_axis(case.scores, np.maximum(entity, 0), 1)
            np.testing.assert_allclose(score, np.where(entity < 0, -np.inf, filled), rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize(("kind", "scaled"), KINDS)
@pytest.mark.parametrize("num_candidates", [0, 1, LANES.count + 1, 70])
def test_ranks_among_candidates(kind: str, scaled: bool, num_candidates: int) -> None:
    case = Case(kind, scaled, 25, 100, 6)
    candidates = np.random.default_rng(3).integers(100, size=(25, num_candidates)).astype(np.int32)
    wanted: list[list[int]] = [[], [], []]
    for own, truth, scores in zip(candidates, case.truth, case.scores, strict=True):
        others = [scores[e] for e in own if e != truth]
        wanted[0].append(sum(other > scores[truth] for other in others))
        wanted[1].append(sum(other == scores[truth] for other in others))
        wanted[2].append(len(others))

    def gather(chosen: Any) -> torch.Tensor:
        return torch.from_numpy(case.rows)[chosen]

    for memory in (1 << 30, 1):
        found = rank_candidates(case.queries, case.truth, candidates, gather, memory)
        assert numbers(found) == wanted


def test_the_three_ranks() -> None:
    one = TripleRanks(np.array([0, 3]), np.array([2, 1]), np.array([9, 9]))
    both = TripleRanks.joined([one, TripleRanks(np.array([7]), np.array([0]), np.array([8]))])
    assert both.optimistic.tolist() == [1, 4, 8]
    assert both.pessimistic.tolist() == [3, 5, 8]
    assert both.mean.tolist() == [2.0, 4.5, 8.0]
    assert both.candidates.tolist() == [9, 9, 8]


def test_no_queries() -> None:
    queries, entities = Queries("dot", torch.zeros(0, 4)), TableBlocks(np.zeros((5, 4), np.float32))
    assert numbers(rank_queries(queries, np.zeros(0, np.int64), entities)) == [[], [], []]
    assert top_entities(queries, entities, 3)[0].shape == (0, 3)
    none = rank_candidates(queries, np.zeros(0, np.int64), np.zeros((0, 7), np.int64), lambda chosen: np.zeros((0, 4)))
    assert numbers(none) == [[], [], []]


@pytest.mark.parametrize("form", ["mapped", "bfloat16", "float64 by columns"])
def test_tables_of_files_and_of_other_precisions(tmp_path: Path, form: str) -> None:
    case = Case("l1", False, 11, 120, 6)
    np.save(tmp_path / "rows.npy", case.rows)
    tables = {
        "mapped": lambda: np.load(tmp_path / "rows.npy", mmap_mode="r"),
        "bfloat16": lambda: torch.from_numpy(case.rows).bfloat16(),
        "float64 by columns": lambda: np.asfortranarray(case.rows, np.float64),
    }
    entities = TableBlocks(tables[form](), block_bytes=4 * 6 * 50)
    assert [first for first, _ in entities] == [0, 50, 100]
    wanted = ranks_of(case.scores, case.truth, None, None)
    assert numbers(rank_queries(case.queries, case.truth, entities)) == wanted


@pytest.mark.parametrize("kind", ["dot", "l1", "l2", "complex"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
def test_scores_that_are_not_finite_are_refused(kind: Any, value: float) -> None:
    rng = np.random.default_rng(4)
    rows = rng.standard_normal((100, 4)).astype(np.float32)
    queries = Queries(kind, torch.from_numpy(rng.standard_normal((9, 4)).astype(np.float32)) * 10)
    truth, counted = np.zeros(9, np.int64), np.ones(100, np.bool_)
    rows[77, 1] = value
    candidates = np.full((9, 3), 77)
    for call in (
        lambda: rank_queries(queries, truth, TableBlocks(rows)),
        lambda: rank_queries(queries, truth + 77, TableBlocks(rows)),
        lambda: top_entities(queries, TableBlocks(rows), 2),
        lambda: rank_candidates(queries, truth, candidates, lambda chosen: rows[chosen]),
        lambda: rank_candidates(queries, truth + 77, candidates - 1, lambda chosen: rows[chosen]),
    ):
        if value == 3e38 and kind == "l1":
            call()
            continue
        with pytest.raises(RecipeError, match="scores are NaN or infinite: training diverged"):
            call()
    counted[77] = False
    assert rank_queries(queries, truth, TableBlocks(rows), None, counted).candidates.tolist() == [98] * 9
    assert (top_entities(queries, TableBlocks(rows), 99, None, counted)[0] != 77).all()
