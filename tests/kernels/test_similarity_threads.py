"""Similarities, steps of rows and losses of rows on several threads: as on one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from models.kernels.dense.loss_rows import false_loss_, softmax_
from models.kernels.similarity.on_threads import all_similarities, all_similarity_gradients
from models.kernels.similarity.rows import SimilarityKind, similarities, similarity_gradients
from models.kernels.tables.row_layout import Precision, UpdateRule
from models.kernels.tables.row_moves import gather_rows, move_rows
from models.kernels.tables.row_tables import RowTable
from tests.kernels.graphs import assert_threads_do_not_matter


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(("queries", "candidates"), [(129, 101), (5, 200), (200, 7), (0, 70), (70, 0)])
@pytest.mark.parametrize(
    ("kind", "scaled"), [("dot", False), ("l1", False), ("l1", True), ("l2", False), ("complex", False)]
)
def test_similarities(kind: SimilarityKind, scaled: bool, queries: int, candidates: int, count: int) -> None:
    generator = torch.Generator().manual_seed(3)
    q, c, s = (torch.randn(n, 18, generator=generator) for n in (queries, candidates, queries))
    scale = s if scaled else None
    expected = similarities(kind, q, c, scale)
    slopes = torch.randn(queries, candidates, generator=generator)
    known_scores = expected if kind == "l2" else None
    pulled = similarity_gradients(kind, q, c, slopes, scale, known_scores)
    beside = torch.randn(queries, 18, generator=generator)
    torch.set_num_threads(count)
    scores = all_similarities(kind, q, c, scale)
    gradients = all_similarity_gradients(kind, q, c, slopes, scale, known_scores)
    added = all_similarity_gradients(kind, q, c, slopes, scale, known_scores, beside.clone())
    torch.testing.assert_close(scores, expected, rtol=1e-5, atol=1e-5)
    assert scores.is_contiguous()
    for one, other in zip(gradients, pulled, strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(added[0], pulled[0] + beside, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("distinct", [1, 3, 5000])
def test_rows_move_to_the_bit_as_on_one_thread(precision: Precision, distinct: int) -> None:
    rows = np.random.default_rng(1).integers(distinct, size=9001)
    gradients = torch.randn(9001, 33, generator=torch.Generator().manual_seed(2))

    def run() -> tuple[Tensor]:
        table = RowTable.zeros(distinct, 33, precision, UpdateRule("adagrad"))
        for step in range(3):
            move_rows(table, rows, gradients, 0.1, 1 + 2 * step)
        return (gather_rows(table, rows),)

    assert run()[0].any()
    assert_threads_do_not_matter(run)


def test_losses_of_rows() -> None:
    scores = torch.randn(101, 77, generator=torch.Generator().manual_seed(4))

    def run() -> tuple[Tensor, ...]:
        shares, slopes = scores.clone(), scores.clone()
        return softmax_(shares), shares, false_loss_(slopes, 0.5, 1.0, 0.7), slopes

    assert_threads_do_not_matter(run)
