"""Factors of matrices on edges, against dense ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.linalg import expm
from torch import Tensor

from models.kernels.sparse.adjacency import Adjacency
from models.vectors.base import FactorGraph
from models.vectors.factorization import EdgeMatrix, chebyshev_gaussian, left_factor, low_rank, orthonormal
from tests.kernels.graphs import random_graph, symmetric_graph


def dense(adjacency: Adjacency, values: Tensor) -> Tensor:
    found = torch.zeros(adjacency.num_dst, adjacency.num_src, dtype=torch.float64)
    found.index_put_((adjacency.targets(), adjacency.indices.long()), values.double(), accumulate=True)
    return found


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
