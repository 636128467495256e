"""Similarities of queries and candidates, and their gradients."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from models.kernels.similarity import rows as similarity_rows
from models.kernels.similarity.rows import (
    SimilarityKind,
    pair_similarities,
    pair_similarity_gradients,
    similarities,
    similarity_gradients,
)

of_each_kind = pytest.mark.parametrize(
    ("kind", "scaled"), [("dot", False), ("l1", False), ("l1", True), ("l2", False), ("l2", True), ("complex", False)]
)


def expected_scores(kind: SimilarityKind, queries: Tensor, candidates: Tensor, scale: Tensor | None) -> Tensor:
    """Scores of rows that are broadcast, in words of torch that have gradients: 0 at a distance of 0."""
    compared = candidates if scale is None else scale * candidates
    if kind == "dot":
        return (queries * compared).sum(-1)
    if kind == "l1":
        return -(queries - compared).abs().sum(-1)
    if kind == "l2":
        return -torch.linalg.vector_norm(queries - compared, dim=-1)
    difference = torch.stack((queries - compared).chunk(2, -1))
    return -torch.linalg.vector_norm(difference, dim=0).sum(-1)


class Rows:
    """Queries, candidates and scales; some queries are candidates, and some numbers of others too."""

    def __init__(self, kind: SimilarityKind, scaled: bool, shape: tuple[int, int], width: int, size: float = 1) -> None:
        generator = torch.Generator().manual_seed(5)
        self.kind, (count, others), width = kind, shape, width + (kind == "complex" and width % 2)
        self.queries, self.candidates = (torch.randn(n, width, generator=generator) * size for n in shape)
        self.scale = torch.rand(count, width, generator=generator) + 0.5 if scaled else None
        for number in range(0, min(count, others), 2):
            self.candidates[number] = self.queries[number]
            if self.scale is not None:
                self.scale[number] = 1
        if kind == "complex":
            for first in (0, width // 2):
                self.candidates[-1, first : first + width // 2 : 2] = self.queries[-1, first : first + width // 2 : 2]
        elif self.scale is None:
            self.candidates[-1, ::2] = self.queries[-1, ::2]
        self.slopes = torch.randn(count, others, generator=generator)

    def expected(self, slopes: Tensor, pairs: bool = False) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Scores and gradients by autograd, in float64."""
        given = [rows for rows in (self.queries, self.candidates, self.scale) if rows is not None]
        queries, candidates, *scale = rows = [one.double().detach().requires_grad_() for one in given]
        if not pairs:
            queries, candidates, *scale = queries[:, None], candidates[None], *(some[:, None] for some in scale)
        scores = expected_scores(self.kind, queries, candidates, scale[0] if scale else None)
        return scores.detach(), torch.autograd.grad(scores, rows, slopes.double())

    def check(self, tolerance: float = 1e-5, *, adds: bool = True) -> None:
        """Scores and gradients, with known scores and without, and added to what is there; those of pairs too."""
        given = self.kind, self.queries, self.candidates
        scores, gradients = self.expected(self.slopes)
        y = similarities(*given, self.scale)
        assert y.dtype == self.queries.dtype
        compare((y,), (scores,), tolerance)
        for known_scores in (None, y, y.T.contiguous().T):
            compare(similarity_gradients(*given, self.slopes, self.scale, known_scores), gradients, 10 * tolerance)
            if adds:
                before = torch.ones_like(self.queries)
                added = similarity_gradients(*given, self.slopes, self.scale, known_scores, before)
                assert added[0].data_ptr() == before.data_ptr()
                compare((before - 1, *added[1:]), gradients, 100 * tolerance)
        if self.queries.shape == self.candidates.shape:
            scores, gradients = self.expected(self.slopes[:, 0], pairs=True)
            compare((pair_similarities(*given, self.scale),), (scores,), tolerance)
            compare(pair_similarity_gradients(*given, self.slopes[:, 0], self.scale), gradients, tolerance)


def compare(given: tuple[Tensor | None, ...], expected: tuple[Tensor, ...], tolerance: float = 1e-5) -> None:
    """Numbers are close by what is usual for them: sums of many numbers may be next to 0."""
    present = [some for some in given if some is not None]
    assert len(present) == len(expected)
    for some, other in zip(present, expected, strict=True):
        assert some.shape == other.shape
        usual = other.abs().mean().item() if other.numel() else 0
        close = tolerance * usual + 1e-16  # the modulus of a complex 0 is 1e-19
        torch.testing.assert_close(some.double(), other.double(), rtol=tolerance, atol=close)


@of_each_kind
@pytest.mark.parametrize("shape", [(1, 1), (1, 40), (7, 33), (13, 13), (13, 300), (70, 5)])
@pytest.mark.parametrize("width", [2, 7, 16, 33, 200, 500])
def test_scores_and_gradients(kind: SimilarityKind, scaled: bool, shape: tuple[int, int], width: int) -> None:
    Rows(kind, scaled, shape, width).check()


@of_each_kind
@pytest.mark.parametrize("size", [1e-15, 1e15])
def test_huge_and_tiny_numbers(kind: SimilarityKind, scaled: bool, size: float) -> None:
    Rows(kind, scaled, (13, 40), 34, size).check(adds=False)


@of_each_kind
def test_rows_that_lie_apart(kind: SimilarityKind, scaled: bool) -> None:
    rows = Rows(kind, scaled, (13, 13), 20)
    rows.queries = torch.stack([rows.queries, rows.queries.neg()], -1)[..., 0]
    rows.scale = None if rows.scale is None else torch.stack([rows.scale, rows.scale.neg()], -1)[..., 0]
    rows.candidates, rows.slopes = rows.candidates.T.contiguous().T, rows.slopes.T.contiguous().T
    rows.check()


@of_each_kind
def test_other_floats(kind: SimilarityKind, scaled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(similarity_rows, "_MOST_NUMBERS", 1000)
    rows = Rows(kind, scaled, (13, 11), 33)
    rows.queries, rows.candidates, rows.slopes = (
        some.double() for some in (rows.queries, rows.candidates, rows.slopes)
    )
    rows.scale = None if rows.scale is None else rows.scale.double()
    rows.check(1e-12)


@of_each_kind
def test_equal_rows_have_no_direction(kind: SimilarityKind, scaled: bool) -> None:
    if kind == "dot":
        return
    rows = torch.randn(9, 34, generator=torch.Generator().manual_seed(1))
    scale = torch.ones_like(rows) if scaled else None
    scores, slopes = similarities(kind, rows, rows, scale), torch.eye(9)
    assert scores.diagonal().abs().max() < 1e-15
    for gradients in (
        similarity_gradients(kind, rows, rows, slopes, scale),
        similarity_gradients(kind, rows, rows, slopes, scale, scores),
        pair_similarity_gradients(kind, rows, rows, slopes[:, 0] + 1, scale),
    ):
        assert all((some == 0).all() for some in gradients if some is not None)


@of_each_kind
def test_scores_that_were_excluded_and_numbers_that_are_none(kind: SimilarityKind, scaled: bool) -> None:
    """A training that diverges says so."""
    rows = Rows(kind, scaled, (11, 21), 20)
    given = kind, rows.queries, rows.candidates
    scores = similarities(*given, rows.scale)
    excluded = torch.rand(11, 21, generator=torch.Generator().manual_seed(2)) < 0.3
    scores.masked_fill_(excluded, -torch.inf)
    rows.slopes.masked_fill_(excluded, 0)
    _, gradients = rows.expected(rows.slopes)
    compare(similarity_gradients(*given, rows.slopes, rows.scale, scores), gradients, 1e-4)
    rows.candidates[20, 3] = torch.nan
    assert similarities(*given, rows.scale).isnan().any(0).tolist() == [False] * 20 + [True]


@of_each_kind
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_nothing(kind: SimilarityKind, scaled: bool, shape: tuple[int, int]) -> None:
    queries, candidates = torch.randn(shape[0], 4), torch.randn(shape[1], 4)
    scale = torch.ones_like(queries) if scaled else None
    scores = similarities(kind, queries, candidates, scale)
    assert scores.shape == shape
    gradients = similarity_gradients(kind, queries, candidates, torch.empty(shape), scale, scores)
    compare(gradients, (torch.zeros(shape[0], 4), torch.zeros(shape[1], 4), *([torch.zeros(shape[0], 4)] * scaled)))
    nobody, none = queries[:0], None if scale is None else scale[:0]
    assert pair_similarities(kind, nobody, nobody, none).shape == (0,)
    assert pair_similarity_gradients(kind, nobody, nobody, torch.empty(0), none)[0].shape == (0, 4)


@of_each_kind
def test_threads_side_by_side(kind: SimilarityKind, scaled: bool) -> None:
    rows = Rows(kind, scaled, (40, 300), 100)
    arguments = kind, rows.queries, rows.candidates

    def work(_: int) -> tuple[Tensor | None, ...]:
        scores = similarities(*arguments, rows.scale)
        return scores, *similarity_gradients(*arguments, rows.slopes, rows.scale, scores)

    with ThreadPoolExecutor(4) as pool:
        expected = pool.submit(work, 0).result()  # here torch may have another number of threads, and other bits
        for scored in pool.map(work, range(20)):
            for some, other in zip(scored, expected, strict=True):
                assert some is other is None or (some is not None and other is not None and torch.equal(some, other))


def test_wrong_shapes() -> None:
    rows, wide, odd = torch.zeros(3, 4), torch.zeros(3, 6), torch.zeros(3, 5)
    for arguments in (
        *(("l1", rows, wide), ("l1", rows, rows[0]), ("l1", rows, rows.double()), ("complex", odd, odd)),
        *(("dot", rows, rows, rows), ("complex", rows, rows, rows), ("l2", rows, rows, wide)),
        ("l2", rows, rows, rows[:2]),
    ):
        for function in (similarities, pair_similarities):
            with pytest.raises(AssertionError):
                function(*arguments)
    for wrong in (
        lambda: pair_similarities("l1", rows, rows[:2]),
        lambda: similarity_gradients("l1", rows, rows, torch.zeros(3, 2)),
        lambda: similarity_gradients("l2", rows, rows, torch.zeros(3, 3), None, torch.zeros(3, 2)),
        lambda: pair_similarity_gradients("l1", rows, rows, torch.zeros(2)),
    ):
        with pytest.raises(AssertionError):
            wrong()
