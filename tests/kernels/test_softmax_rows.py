"""Shares of exponentials in place, against torch in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from models.kernels.dense.softmax_rows import softmax_


def drawn(rows: int, width: int, spread: float) -> Tensor:
    return spread * torch.randn(rows, width, generator=torch.Generator().manual_seed(width))


@pytest.mark.parametrize("width", [1, 5, 63, 64, 65, 200, 1000])
@pytest.mark.parametrize("spread", [0.1, 3.0, 60.0])
@pytest.mark.parametrize("with_beside", [False, True])
def test_shares_and_sums(width: int, spread: float, with_beside: bool) -> None:
    scores = drawn(9, width, spread)
    beside = drawn(1, 9, spread)[0] if with_beside else None
    every = scores.double() if beside is None else torch.cat([scores.double(), beside.double()[:, None]], 1)
    found = scores.clone()
    sums = softmax_(found, beside)
    torch.testing.assert_close(sums.double(), every.logsumexp(1), rtol=1e-6, atol=2e-6)
    torch.testing.assert_close(found.double(), every.softmax(1)[:, :width], rtol=2e-5, atol=1e-7)


def test_other_kinds_of_floats_go_through_torch() -> None:
    scores = drawn(4, 6, 2.0).double()
    found = scores.clone()
    torch.testing.assert_close(softmax_(found), scores.logsumexp(1))
    torch.testing.assert_close(found, scores.softmax(1))


@pytest.mark.parametrize("width", [3, 64, 70])
def test_minus_infinity_has_no_share(width: int) -> None:
    scores, beside = drawn(5, width, 1.0), torch.tensor([0.5, -1.0, 2.0, 0.0, 1.0])
    scores[1, 2] = scores[3, -1] = -torch.inf
    scores[4] = -torch.inf
    wanted = torch.cat([scores, beside[:, None]], 1)
    found = scores.clone()
    torch.testing.assert_close(softmax_(found, beside), wanted.logsumexp(1))
    assert found[1, 2] == 0
    assert found[3, -1] == 0
    assert not found[4].any()


def test_large_scores_do_not_overflow() -> None:
    scores = torch.tensor([[1e30, 1e30, -1e30], [-1e30, -1e30, -2e30]])
    softmax_(scores)
    torch.testing.assert_close(scores, torch.tensor([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]]), atol=1e-6, rtol=0)


def test_not_a_number_passes() -> None:
    scores = drawn(2, 64, 1.0)
    scores[0, 5] = torch.nan
    assert softmax_(scores).isnan().tolist() == [True, False]
