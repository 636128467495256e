"""Similarities of queries and candidates, and their gradients."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from models.kernels.similarity import plain as similarity_plain
from models.kernels.similarity.rows import (
    SimilarityKind,
    pair_similarities,
    pair_similarity_gradients,
    similarities,
    similarity_gradients,
)

KINDS: list[tuple[SimilarityKind, bool]] = [
    ("dot", False),
    ("l1", False),
    ("l1", True),
    ("l2", False),
    ("l2", True),
    ("complex", False),
]
SIZES = [(1, 1), (1, 40), (7, 33), (13, 300), (70, 5)]
WIDTHS = [2, 7, 33, 200, 500]


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

    def __init__(
        self, kind: SimilarityKind, scaled: bool, shape: tuple[int, int], width: int, size: float = 1.0
    ) -> None:
        generator = torch.Generator().manual_seed(5)
        self.kind, (count, others), self.width = kind, shape, width + (kind == "complex" and width % 2)
        self.queries, self.candidates = (
            torch.randn(number, self.width, generator=generator) * size for number in (count, others)
        )
        self.scale = torch.rand(count, self.width, generator=generator) + 0.5 if scaled else None
        for number in range(0, min(count, others), 2):
            self.candidates[number] = self.queries[number]
            if self.scale is not None:
                self.scale[number] = 1
        if kind == "complex":
            half = self.width // 2
            for first in (0, half):
                self.candidates[-1, first : first + half : 2] = self.queries[-1, first : first + half : 2]
        elif self.scale is None:
            self.candidates[-1, ::2] = self.queries[-1, ::2]
        self.slopes = torch.randn(count, others, generator=generator)

    def wide(self) -> list[Tensor]:
        """The rows in float64, for gradients."""
        found = (self.queries, self.candidates, self.scale)
        return [rows.double().requires_grad_() for rows in found if rows is not None]

    def expected(self, slopes: Tensor, pairs: bool = False) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Scores and gradients by autograd."""
        queries, candidates, *scale = rows = self.wide()
        if not pairs:
            queries, candidates, *scale = queries[:, None], candidates[None], *(some[:, None] for some in scale)
        scores = expected_scores(self.kind, queries, candidates, scale[0] if scale else None)
        return scores.detach(), torch.autograd.grad(scores, rows, slopes.double())


def compare(found: tuple[Tensor | None, ...], expected: tuple[Tensor, ...], tolerance: float = 1e-5) -> None:
    """Numbers are close by what is usual for them: sums of many numbers may be next to 0."""
    present = [some for some in found if some is not None]
    assert len(present) == len(expected)
    for some, other in zip(present, expected, strict=True):
        assert some.shape == other.shape
        usual = other.abs().mean().item() if other.numel() else 0
        close = tolerance * usual + 1e-16  # the modulus of a complex 0 is 1e-19
        torch.testing.assert_close(some.double(), other.double(), rtol=tolerance, atol=close)


@pytest.mark.parametrize(("kind", "scaled"), KINDS)
@pytest.mark.parametrize("shape", SIZES)
@pytest.mark.parametrize("width", WIDTHS)
def test_scores_and_gradients(kind: SimilarityKind, scaled: bool, shape: tuple[int, int], width: int) -> None:
    rows = Rows(kind, scaled, shape, width)
    scores, gradients = rows.expected(rows.slopes)
    found = similarities(kind, rows.queries, rows.candidates, rows.scale)
    assert found.dtype == torch.float32
    compare((found,), (scores,))
    for known in (None, found):
        made = similarity_gradients(kind, rows.queries, rows.candidates, rows.slopes, rows.scale, known)
        compare(made, gradients, 1e-4)
        before = torch.ones_like(rows.queries)
        added = similarity_gradients(kind, rows.queries, rows.candidates, rows.slopes, rows.scale, known, before)
        assert added[0].data_ptr() == before.data_ptr()
        compare((before - 1, *added[1:]), gradients, 1e-3)


@pytest.mark.parametrize(("kind", "scaled"), KINDS)
@pytest.mark.parametrize("width", [*WIDTHS, 16])
def test_pairs(kind: SimilarityKind, scaled: bool, width: int) -> None:
    rows = Rows(kind, scaled, (13, 13), width)
    scores, gradients = rows.expected(rows.slopes[0], pairs=True)
    compare((pair_similarities(kind, rows.queries, rows.candidates, rows.scale),), (scores,))
    compare(pair_similarity_gradients(kind, rows.queries, rows.candidates, rows.slopes[0], rows.scale), gradients)


@pytest.mark.parametrize(("kind", "scaled"), KINDS)
def test_equal_rows_have_no_direction(kind: SimilarityKind, scaled: bool) -> None:
    if kind == "dot":
        return
    rows = torch.randn(9, 34, generator=torch.Generator().manual_seed(1))
    scale = torch.ones_like(rows) if scaled else None
    scores = similarities(kind, rows, rows, scale)
    assert scores.diagonal().abs().max() < 1e-15
    slopes = torch.eye(9)
    for found in (
        similarity_gradients(kind, rows, rows, slopes, scale),
        similarity_gradients(kind, rows, rows, slopes, scale, scores),
        pair_similarity_gradients(kind, rows, rows, slopes[:, 0] + 1, scale),
    ):
        assert all((some == 0).all() for some in found if some is not None)


@pytest.mark.parametrize(("kind", "scaled"), KINDS)
def test_scores_that_were_excluded(kind: SimilarityKind, scaled: bool) -> None:
    rows = Rows(kind, scaled, (11, 21), 20)
    scores = similarities(kind, rows.queries, rows.candidates, rows.scale)
    excluded = torch.rand(11, 21, generator=torch.Generator().manual_seed(2)) < 0.3
    scores.masked_fill_(excluded, -torch.inf)
    rows.slopes.masked_fill_(excluded, 0)
    _, gradients = rows.expected(rows.slopes)
    found = similarity_gradients(kind, rows.queries, rows.candidates, rows.slopes, rows.scale, scores)
    compare(found, gradients, 1e-4)


@pytest.mark.parametrize(("kind", "scaled"), KINDS)
@pytest.mark.parametrize("size", [1e-15, 1e15])
def test_huge_and_tiny_numbers(kind: SimilarityKind, scaled: bool, size: float) -> None:
    rows = Rows(kind, scaled, (13, 40), 34, size)
    scores, gradients = rows.expected(rows.slopes)
    found = similarities(kind, rows.queries, rows.candidates, rows.scale)
    compare((found,), (scores,))
    compare(similarity_gradients(kind, rows.queries, rows.candidates, rows.slopes, rows.scale, found), gradients, 1e-4)


@pytest.mark.parametrize(("kind", "scaled"), KINDS)
def test_numbers_that_are_none_pass(kind: SimilarityKind, scaled: bool) -> None:
    """A training that diverges says so."""
    rows = Rows(kind, scaled, (9, 35), 20)
    rows.candidates[34, 3] = torch.nan
    found = similarities(kind, rows.queries, rows.candidates, rows.scale)
    assert found[:, 34].isnan().all()
    assert found[:, :34].isfinite().all()


@pytest.mark.parametrize(("kind", "scaled"), KINDS)
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_nothing(kind: SimilarityKind, scaled: bool, shape: tuple[int, int]) -> None:
    queries, candidates = torch.randn(shape[0], 4), torch.randn(shape[1], 4)
    scale = torch.ones_like(queries) if scaled else None
    scores = similarities(kind, queries, candidates, scale)
    assert scores.shape == shape
    found = similarity_gradients(kind, queries, candidates, torch.empty(shape), scale, scores)
    compare(found, (torch.zeros(shape[0], 4), torch.zeros(shape[1], 4), *([torch.zeros(shape[0], 4)] * scaled)))
    nobody = queries[:0]
    none = None if scale is None else scale[:0]
    assert pair_similarities(kind, nobody, nobody, none).shape == (0,)
    assert pair_similarity_gradients(kind, nobody, nobody, torch.empty(0), none)[0].shape == (0, 4)


@pytest.mark.parametrize(("kind", "scaled"), KINDS)
def test_rows_that_lie_apart(kind: SimilarityKind, scaled: bool) -> None:
    rows = Rows(kind, scaled, (13, 30), 20)
    apart = [
        None if some is None else torch.stack([some, some.neg()], -1)[..., 0] for some in (rows.queries, rows.scale)
    ]
    candidates, slopes = rows.candidates.T.contiguous().T, rows.slopes.T.contiguous().T
    assert apart[0] is not None
    found = similarities(kind, apart[0], candidates, apart[1])
    scores, gradients = rows.expected(rows.slopes)
    compare((found,), (scores,))
    known = found.T.contiguous().T
    compare(similarity_gradients(kind, apart[0], candidates, slopes, apart[1], known), gradients, 1e-4)
    compare(
        pair_similarity_gradients(kind, apart[0], candidates[:13], slopes[:, 0], apart[1]),
        Rows.expected(_first(rows, 13), rows.slopes[:, 0], pairs=True)[1],
    )


def _first(rows: Rows, count: int) -> Rows:
    rows.candidates = rows.candidates[:count]
    return rows


@pytest.mark.parametrize(("kind", "scaled"), KINDS)
def test_other_floats(kind: SimilarityKind, scaled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(similarity_plain, "_MOST_NUMBERS", 1000)
    rows = Rows(kind, scaled, (13, 11), 33)
    scores, gradients = rows.expected(rows.slopes)
    wide = [some.detach() for some in rows.wide()]
    scale = wide[2] if scaled else None
    found = similarities(kind, wide[0], wide[1], scale)
    compare((found,), (scores,), 1e-12)
    made = similarity_gradients(kind, wide[0], wide[1], rows.slopes.double(), scale, found)
    compare(made, gradients, 1e-12)


@pytest.mark.parametrize(("kind", "scaled"), KINDS)
def test_threads_side_by_side(kind: SimilarityKind, scaled: bool) -> None:
    rows = Rows(kind, scaled, (40, 300), 100)
    arguments = kind, rows.queries, rows.candidates

    def work(_: int) -> tuple[Tensor | None, ...]:
        scores = similarities(*arguments, rows.scale)
        return scores, *similarity_gradients(*arguments, rows.slopes, rows.scale, scores)

    with ThreadPoolExecutor(4) as pool:
        expected = pool.submit(work, 0).result()  # here torch may have another number of threads, and other bits
        for found in pool.map(work, range(20)):
            for some, other in zip(found, expected, strict=True):
                assert some is other is None or (some is not None and other is not None and torch.equal(some, other))


def test_wrong_shapes() -> None:
    rows, wide, odd = torch.zeros(3, 4), torch.zeros(3, 6), torch.zeros(3, 5)
    for arguments in (
        ("l1", rows, wide),
        ("l1", rows, rows[0]),
        ("l1", rows, rows.double()),
        ("complex", odd, odd),
        ("dot", rows, rows, rows),
        ("complex", rows, rows, rows),
        ("l2", rows, rows, wide),
        ("l2", rows, rows, rows[:2]),
    ):
        for function in (similarities, pair_similarities):
            with pytest.raises(AssertionError):
                function(*arguments)
    with pytest.raises(AssertionError):
        pair_similarities("l1", rows, rows[:2])
    with pytest.raises(AssertionError):
        similarity_gradients("l1", rows, rows, torch.zeros(3, 2))
    with pytest.raises(AssertionError):
        similarity_gradients("l2", rows, rows, torch.zeros(3, 3), None, torch.zeros(3, 2))
    with pytest.raises(AssertionError):
        pair_similarity_gradients("l1", rows, rows, torch.zeros(2))
