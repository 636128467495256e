"""What node vectors are made of: factors of matrices on edges, GATNE-T's formula row by row, logistic regression."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.linalg import expm
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from configs.registry import MODELS
from models.facts import GraphFacts
from models.kernels.sparse.adjacency import Adjacency
from models.vectors.base import FactorGraph
from models.vectors.factorization import EdgeMatrix, chebyshev_gaussian, left_factor, low_rank, orthonormal
from models.vectors.gatne import Gatne, RelationMixing
from models.vectors.logistic import fit_logistic
from tests.kernels.graphs import random_graph, symmetric_graph


def dense(adjacency: Adjacency, values: Tensor) -> Tensor:
    matrix = torch.zeros(adjacency.num_dst, adjacency.num_src, dtype=torch.float64)
    return matrix.index_put((adjacency.targets(), adjacency.indices.long()), values.double(), accumulate=True)


def edge_matrix(seed: int = 0) -> EdgeMatrix:
    adjacency = random_graph(seed=seed)
    return EdgeMatrix(adjacency, torch.randn(adjacency.num_edges, generator=torch.Generator().manual_seed(seed)))


def test_products() -> None:
    matrix = edge_matrix()
    exact = dense(matrix.adjacency, matrix.values)
    x, y = torch.randn(53, 7), torch.randn(37, 7)
    torch.testing.assert_close(matrix.times(x).double(), exact @ x.double(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(matrix.transposed_times(y).double(), exact.T @ y.double(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rank", [1, 5, 30, 50])
def test_low_rank_is_a_singular_value_decomposition(rank: int) -> None:
    """Up to 37 there are as many as rows; the best approximation of a rank is met to a thousandth."""
    matrix = edge_matrix()
    exact = dense(matrix.adjacency, matrix.values)
    u, s = low_rank(matrix, rank, seed=3)
    expected = torch.linalg.svdvals(exact)[:rank]
    assert u.shape == (37, rank)
    torch.testing.assert_close(s[: len(expected)].double(), expected, rtol=2e-3, atol=2e-3)
    found = int((s > 1e-3).sum())
    torch.testing.assert_close(u[:, :found].T @ u[:, :found], torch.eye(found), rtol=0, atol=1e-4)
    left = exact - u.double() @ (u.double().T @ exact)
    best = torch.linalg.svdvals(exact)[rank:].square().sum().sqrt()
    assert float(left.norm()) <= float(best) * 1.01 + 1e-3


def test_factors_of_tall_matrices() -> None:
    x = torch.randn(300, 8) * torch.tensor([5.0, 3, 2, 1, 0.5, 0.1, 0.01, 0])
    u, s, _ = torch.linalg.svd(x.double(), full_matrices=False)
    found, expected = left_factor(x, 6).double(), (u * s.sqrt())[:, :6]
    torch.testing.assert_close(found.abs(), expected.abs(), rtol=1e-3, atol=1e-4)
    basis = orthonormal(x)[:, :7]
    torch.testing.assert_close(basis.T @ basis, torch.eye(7), rtol=0, atol=1e-4)


def test_the_filter_is_a_series_of_bessel_functions() -> None:
    """With many terms it is exp(-theta T) up to the convention of its terms: here T_k of (M^2 - 2) / 2."""
    generator = torch.Generator().manual_seed(0)
    walk = torch.rand(12, 12, generator=generator, dtype=torch.float64)
    walk = (walk + walk.T) / (walk + walk.T).sum(1).max()
    x, mu, theta = torch.randn(12, 3, generator=generator, dtype=torch.float64), 0.2, 0.5
    shifted = (1 - mu) * torch.eye(12, dtype=torch.float64) - walk
    half = 0.5 * shifted @ shifted - torch.eye(12, dtype=torch.float64)
    # sum of I_0 - 2 I_1 T_1 + 2 I_2 T_2 - ... is exp(-theta T_1).
    expected = torch.from_numpy(expm(-theta * half.numpy())) @ x
    torch.testing.assert_close(chebyshev_gaussian(lambda y: walk @ y, x, 20, mu, theta), expected, rtol=1e-8, atol=1e-8)


def test_strengths_of_nodes() -> None:
    adjacency = symmetric_graph()
    weight = torch.rand(adjacency.num_edges)
    plain, weighted = (FactorGraph(adjacency, some, lambda *_: iter(())) for some in (None, weight))
    assert torch.equal(plain.strengths(), adjacency.degrees().float())
    expected = dense(adjacency, weight).sum(1)
    np.testing.assert_allclose(weighted.strengths().numpy(), expected.numpy(), rtol=1e-5)


def plain(mixing: RelationMixing, base: torch.Tensor, lent: torch.Tensor, r: int) -> torch.Tensor:
    """The vector of one node in relation r: v = b + M_r^T U a_r, at length 1."""
    scores = torch.stack([torch.tanh(row @ mixing.attention[r]) @ mixing.query[r] for row in lent])
    vector = base + (scores.softmax(0) @ lent) @ mixing.transform[r]
    return vector / vector.norm()


@pytest.mark.parametrize(("counts", "sizes"), [((3, 0, 5), (7, 3, 5)), ((1,), (2, 1, 1)), ((4, 2), (129, 10, 20))])
def test_vectors_and_gradients_are_those_of_the_formula(counts: tuple[int, ...], sizes: tuple[int, int, int]) -> None:
    generator = torch.Generator().manual_seed(1)
    mixing = RelationMixing(len(counts), *sizes, seed=3).double()
    rows = sum(counts)
    base = torch.randn(rows, sizes[0], generator=generator, dtype=torch.float64, requires_grad=True)
    lent = torch.randn(rows, len(counts), sizes[1], generator=generator, dtype=torch.float64, requires_grad=True)
    slope = torch.randn(rows, sizes[0], generator=generator, dtype=torch.float64)
    leaves = [base, lent, *mixing.parameters()]
    vectors = mixing(base, lent, np.append(0, np.cumsum(counts)).tolist())
    relation = np.repeat(np.arange(len(counts)), counts).tolist()
    expected = torch.stack([plain(mixing, base[i], lent[i], relation[i]) for i in range(rows)])
    torch.testing.assert_close(vectors, expected)
    torch.testing.assert_close(*(torch.autograd.grad(made, leaves, slope) for made in (vectors, expected)))


def test_a_pair_is_scored_in_its_relation() -> None:
    facts = GraphFacts(task="link", out_dim=1, num_nodes=6, num_relations=3)
    model = MODELS.create(MODELS.config({"name": "gatne", "dim": 5}), facts)
    assert isinstance(model, Gatne)
    assert model.table.shape == (6, 15)
    relation = torch.tensor([2, 0, 1, 2])
    source, target = model.table[[0, 1, 2, 3]], model.table[[5, 5, 1, 3]]
    expected = [
        torch.nn.functional.cosine_similarity(a[5 * r : 5 * r + 5], b[5 * r : 5 * r + 5], dim=0)
        for a, b, r in zip(source, target, relation.tolist(), strict=True)
    ]
    torch.testing.assert_close(model.score(source, target, relation), torch.stack(expected))


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


def test_classes_without_rows_or_with_all_and_separable_rows() -> None:
    x, is_member = problem(50, 4, 3)
    is_member[:, 0], is_member[:, 2] = False, True
    scores = fit_logistic(x, is_member).scores(x)
    assert (scores[:, 0] < 0).all()
    assert (scores[:, 2] > 0).all()
    assert torch.isfinite(scores).all()
    x = torch.tensor([[-1e4], [-2e4], [1e4], [3e4]])
    is_member = torch.tensor([[False], [False], [True], [True]])
    assert torch.equal(fit_logistic(x, is_member, 100.0).scores(x) > 0, is_member)


@pytest.mark.parametrize(("rows", "members"), [(0, 0), (3, 4)])
def test_shapes(rows: int, members: int) -> None:
    with pytest.raises(ValueError, match=r"are not \(n, D\)"):
        fit_logistic(torch.zeros(rows, 2), torch.zeros(members, 2, dtype=torch.bool))
