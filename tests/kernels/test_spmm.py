"""Sparse times dense: values and gradients against float64; sums, means, maxima, weights, scales."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from models.kernels.simd.vector import WIDEST
from models.kernels.sparse.adjacency import Adjacency
from models.kernels.sparse.product import multiply, multiply_torch
from models.kernels.sparse.spmm import weighted_sum
from tests.kernels.graphs import (
    compare,
    large_graph,
    numbers,
    random_graph,
    reference_spmm,
    spmm,
    symmetric_graph,
    without_edges,
)

TYPES = (torch.float32, torch.bfloat16)
WIDTHS = (1, 100, WIDEST + 44)
"""Less than a vector, a tile in part, more than one tile."""


def distinct(rows: int, width: int, dtype: torch.dtype) -> Tensor:
    """Columns without equal numbers, exact in bfloat16: a maximum has one source."""
    return torch.rand(rows, width).argsort(0).to(dtype).requires_grad_()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("width", WIDTHS)
def test_sum(width: int, dtype: torch.dtype) -> None:
    adj = random_graph()
    compare(lambda x: spmm(adj, x), lambda x: reference_spmm(adj, x), numbers(53, width, dtype=dtype))


@pytest.mark.parametrize("dtype", TYPES)
def test_mean(dtype: torch.dtype) -> None:
    adj = random_graph()
    compare(lambda x: spmm(adj, x, "mean"), lambda x: reference_spmm(adj, x, "mean"), numbers(53, 7, dtype=dtype))


@pytest.mark.parametrize(
    ("width", "dtype"), [(7, torch.float32), (WIDEST // 2 + 7, torch.float32), (7, torch.bfloat16)]
)
def test_max(width: int, dtype: torch.dtype) -> None:
    adj, x = random_graph(), distinct(53, width, dtype)
    compare(lambda x: spmm(adj, x, "max"), lambda x: reference_spmm(adj, x, "max"), x)


def test_the_first_of_equal_sources_has_the_maximum_s_gradient() -> None:
    adj = Adjacency(torch.tensor([0, 4]), torch.tensor([2, 0, 1, 0], dtype=torch.int32), 3)
    x = torch.tensor([[1.0, -1.0, 5.0], [1.0, -1.0, 5.0], [0.0, -1.0, 5.0]], requires_grad=True)
    (gradient,) = torch.autograd.grad(spmm(adj, x, "max").sum(), x)
    assert gradient.tolist() == [[1, 0, 0], [0, 0, 0], [0, 1, 1]]


def test_a_maximum_is_nan_wherever_a_source_is() -> None:
    adj = Adjacency(torch.tensor([0, 3]), torch.tensor([0, 1, 2], dtype=torch.int32), 3)
    x = torch.tensor([[torch.nan, 1.0, 1.0], [1.0, torch.nan, 2.0], [2.0, 2.0, torch.nan]])
    assert spmm(adj, x, "max").isnan().all()


@pytest.mark.parametrize("dtype", TYPES)
def test_weights(dtype: torch.dtype) -> None:
    adj, x, weight = random_graph(), numbers(53, 7, dtype=dtype), numbers(400, seed=2)
    compare(lambda x, w: spmm(adj, x, weight=w), lambda x, w: reference_spmm(adj, x, weight=w), x, weight)


def test_a_weight_for_each_head() -> None:
    adj, x, weight = random_graph(), numbers(53, 3, 9), numbers(400, 3, seed=2)
    compare(lambda x, w: spmm(adj, x, "mean", w), lambda x, w: reference_spmm(adj, x, "mean", w), x, weight)


def test_heads_without_weights_are_columns() -> None:
    adj, x = random_graph(), numbers(53, 3, 2)
    assert torch.equal(spmm(adj, x), spmm(adj, x.reshape(53, 6)).view(37, 3, 2))


def test_scales_on_both_sides() -> None:
    adj, x, weight = random_graph(), numbers(53, 7), numbers(400, seed=2)
    s, t = torch.rand(53), torch.rand(37)

    def reference(x: Tensor, weight: Tensor) -> Tensor:
        return reference_spmm(adj, x * s.unsqueeze(1), weight=weight) * t.unsqueeze(1)

    compare(lambda x, w: weighted_sum(adj, x, w, s, t), reference, x, weight)


@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
def test_no_edges(reduce: str) -> None:
    adj, x = without_edges(), numbers(3, 7)
    y = spmm(adj, x, reduce)
    assert torch.equal(y, torch.zeros(5, 7))
    assert torch.equal(torch.autograd.grad(y.sum(), x)[0], torch.zeros(3, 7))


@pytest.mark.parametrize("reduce", ["sum", "max"])
def test_threads_change_nothing(reduce: str, threads: int) -> None:
    adj, x = large_graph(), numbers(2000, 7)
    assert len(adj.chunks()) == (2 if threads == 1 else 13)
    compare(lambda x: spmm(adj, x, reduce), lambda x: reference_spmm(adj, x, reduce), x)


def test_rows_that_are_not_contiguous() -> None:
    adj, x = random_graph(), numbers(7, 53)
    compare(lambda x: spmm(adj, x.t()), lambda x: reference_spmm(adj, x.t()), x)


def test_a_symmetric_graph_needs_no_transpose() -> None:
    adj = symmetric_graph()
    compare(lambda x: spmm(adj, x), lambda x: reference_spmm(adj, x), numbers(40, 7))
    assert adj.transposed is None
    weight = numbers(adj.num_edges, seed=2)
    compare(lambda x, w: spmm(adj, x, weight=w), lambda x, w: reference_spmm(adj, x, weight=w), numbers(40, 7), weight)


@pytest.mark.parametrize("heads", [1, 3])
def test_torch_s_sparse_matrices_give_the_same(heads: int) -> None:
    """The path of other devices, on the CPU."""
    adj, x, weight = random_graph(), numbers(53, heads, 7).detach(), numbers(400, heads).detach()
    edges = torch.randperm(400, dtype=torch.int32)
    scales = torch.rand(53), torch.rand(37)
    for given in ((weight, edges, *scales), (weight, None, None, None), (None, None, *scales)):
        torch.testing.assert_close(multiply_torch(adj, x, *given), multiply(adj, x, *given))


def test_float64_takes_gradients_of_gradients_checks() -> None:
    adj, x, weight = random_graph(5, 4, 9), numbers(4, 2).double(), numbers(9).double()
    x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
    assert torch.autograd.gradcheck(lambda x, w: spmm(adj, x, weight=w), (x, weight))
