"""Logistic regression of many classes, against scikit-learn's LIBLINEAR."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from models.vectors.logistic import fit_logistic


def problem(rows: int, width: int, classes: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, width)) * rng.exponential(size=width) + rng.normal(size=width)
    score = x @ rng.normal(size=(width, classes)) / np.sqrt(width) + rng.normal(size=(rows, classes)) - 1
    return torch.tensor(x, dtype=torch.float32), torch.tensor(score > 0)


def objective(x: torch.Tensor, is_member: torch.Tensor, strength: float, weights: Any) -> float:
    score = x.double().numpy() @ weights[:-1] + weights[-1]
    losses = np.logaddexp(0, np.where(is_member.numpy(), -score, score))
    return float((weights**2).sum() / 2 + strength * losses.sum())


@pytest.mark.parametrize(("rows", "width", "classes"), [(400, 13, 7), (60, 90, 5), (1000, 1, 1)])
@pytest.mark.parametrize("strength", [0.01, 1.0, 10.0])
def test_weights_are_those_of_liblinear(rows: int, width: int, classes: int, strength: float) -> None:
    x, is_member = problem(rows, width, classes)
    fitted = fit_logistic(x, is_member, strength)
    for c in range(classes):
        peer = LogisticRegression(C=strength, solver="liblinear", tol=1e-8, max_iter=1000)
        peer.fit(x.double().numpy(), is_member[:, c].numpy())
        expected = np.append(peer.coef_[0], peer.intercept_[0])
        found = torch.cat([fitted.weight[:, c], fitted.bias[c : c + 1]]).double().numpy()
        least = objective(x, is_member[:, c], strength, expected)
        assert objective(x, is_member[:, c], strength, found) <= least * (1 + 1e-5)
        scores = fitted.scores(x)[:, c].numpy()
        assert np.abs(scores - peer.decision_function(x.double().numpy())).max() <= 0.02 * np.abs(scores).max()


def test_classes_without_rows_or_with_all() -> None:
    x, is_member = problem(50, 4, 3)
    is_member[:, 0], is_member[:, 2] = False, True
    scores = fit_logistic(x, is_member).scores(x)
    assert (scores[:, 0] < 0).all()
    assert (scores[:, 2] > 0).all()
    assert torch.isfinite(scores).all()


def test_separable_rows_and_huge_features() -> None:
    x = torch.tensor([[-1e4], [-2e4], [1e4], [3e4]])
    is_member = torch.tensor([[False], [False], [True], [True]])
    assert torch.equal(fit_logistic(x, is_member, 100.0).scores(x) > 0, is_member)


@pytest.mark.parametrize(("rows", "members"), [(0, 0), (3, 4)])
def test_shapes(rows: int, members: int) -> None:
    with pytest.raises(ValueError, match=r"are not \(n, D\)"):
        fit_logistic(torch.zeros(rows, 2), torch.zeros(members, 2, dtype=torch.bool))
