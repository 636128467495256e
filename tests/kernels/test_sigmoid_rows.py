"""Binary cross entropy in place, against torch in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import softplus

from models.kernels.dense.sigmoid_rows import false_loss_


def plain(scores: Tensor, weight: float, margin: float, adversarial: float) -> Tensor:
    counts = torch.isfinite(scores)
    shares = torch.softmax(torch.where(counts, adversarial * scores, scores), 1).detach().nan_to_num(0)
    kept = torch.where(counts, scores, torch.zeros(()).double())
    return weight * (shares * softplus(kept + margin)).sum()


@pytest.mark.parametrize("width", [1, 5, 63, 64, 65, 200, 1000])
@pytest.mark.parametrize("spread", [0.1, 3.0, 40.0])
@pytest.mark.parametrize(("margin", "adversarial"), [(0.0, 0.0), (2.5, 0.0), (9.0, 1.0), (-1.0, 0.3)])
def test_loss_and_gradient(width: int, spread: float, margin: float, adversarial: float) -> None:
    generator = torch.Generator().manual_seed(width)
    scores = spread * torch.randn(9, width, generator=generator)
    scores[2, width // 2] = scores[4, -1] = -torch.inf
    exact = scores.double().requires_grad_()
    wanted = plain(exact, 0.7, margin, adversarial)
    (gradient,) = torch.autograd.grad(wanted, exact)
    for kind in (torch.float32, torch.float64):
        found = scores.to(kind, copy=True)
        loss = false_loss_(found, 0.7, margin, adversarial)
        assert loss == pytest.approx(float(wanted.detach()), rel=2e-5, abs=1e-6)
        torch.testing.assert_close(found.double(), gradient.nan_to_num(0), rtol=3e-5, atol=1e-7)


@pytest.mark.parametrize("adversarial", [0.0, 1.0])
def test_a_row_without_any_score_is_nothing(adversarial: float) -> None:
    scores = torch.full((2, 70), -torch.inf)
    scores[1] = 1.0
    assert false_loss_(scores, 1.0, 0.0, adversarial) == pytest.approx(float(softplus(torch.tensor(1.0))), rel=1e-5)
    assert not scores[0].any()
    torch.testing.assert_close(scores[1], torch.full((70,), torch.tensor(1.0).sigmoid().item() / 70))


def test_not_a_number_passes() -> None:
    scores = torch.zeros(2, 64)
    scores[0, 5] = torch.nan
    assert false_loss_(scores, 1.0) != false_loss_(torch.zeros(2, 64), 1.0)
    assert scores[0].isnan().any()
