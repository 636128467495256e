"""GraphSAGE's convolution in one operation, against gather, scatter and two products."""

from __future__ import annotations

import pytest
import torch

from models.kernels.dense.convolve import convolve
from models.kernels.sparse.adjacency import Adjacency
from models.kernels.sparse.spmm import reference_weighted_sum
from tests.kernels.graphs import compare, numbers, random_graph

SHAPES = [
    *((37, 53, 5, 7), (37, 53, 7, 5), (300, 700, 33, 18), (300, 700, 18, 33), (5, 5, 1, 1), (400, 400, 64, 64)),
    (20, 3000, 33, 32),  # so many more sources that they are summed first, though their rows are wider
]


def reference_convolve(
    adj: Adjacency,
    x: torch.Tensor,
    own_weight: torch.Tensor,
    neighbor_weight: torch.Tensor,
    bias: torch.Tensor,
    edge_weight: torch.Tensor | None = None,
    target_scale: torch.Tensor | None = None,
) -> torch.Tensor:
    """Do `convolve` by gather, scatter, and two products."""
    pooled = reference_weighted_sum(adj, x, edge_weight)
    if target_scale is not None:
        pooled = pooled * target_scale.unsqueeze(1)
    return x[: adj.num_dst] @ own_weight.t() + pooled @ neighbor_weight.t() + bias


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("num_dst", "num_src", "width", "out"), SHAPES)
@pytest.mark.parametrize("weighted", [False, True])
def test_values_and_gradients(
    num_dst: int, num_src: int, width: int, out: int, weighted: bool, dtype: torch.dtype
) -> None:
    adj = random_graph(num_dst, num_src, 9 * num_dst)
    edge_weight = numbers(adj.num_edges, seed=5).detach().abs() if weighted else None
    scale = adj.degree_scale()
    x, bias = numbers(num_src, width, dtype=dtype), numbers(out, seed=4)
    own, neighbor = numbers(out, width, seed=2), numbers(out, width, seed=3)

    def fast(*inputs: torch.Tensor) -> torch.Tensor:
        return convolve(adj, *inputs, edge_weight=edge_weight, target_scale=scale)

    def reference(*inputs: torch.Tensor) -> torch.Tensor:
        weight = None if edge_weight is None else edge_weight.to(inputs[0].dtype)
        return reference_convolve(adj, *inputs, weight, scale.to(inputs[0].dtype))

    compare(fast, reference, x, own, neighbor, bias, slack=3.0)


@pytest.mark.parametrize("out", [3, 11])
def test_a_pooled_sum_that_is_known_already(out: int) -> None:
    adj = random_graph(150, 150, 10)  # its edges must not be read
    x, pooled, bias = numbers(150, 7), numbers(150, 7, seed=6).detach(), numbers(out, seed=4)
    own, neighbor = numbers(out, 7, seed=2), numbers(out, 7, seed=3)
    compare(
        lambda x, own, neighbor, bias: convolve(adj, x, own, neighbor, bias, pooled=pooled),
        lambda x, own, neighbor, bias: x @ own.t() + pooled.to(x.dtype) @ neighbor.t() + bias,
        *(x, own, neighbor, bias),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_features_and_means_in_one_matrix(dtype: torch.dtype) -> None:
    adj, both = random_graph(150, 150, 10), numbers(150, 14, dtype=dtype).detach()
    weights = numbers(5, 7, seed=2), numbers(5, 7, seed=3), numbers(5, seed=4)
    results = []
    for left, right in ((both[:, :7], both[:, 7:]), (both[:, :7].contiguous(), both[:, 7:].contiguous())):
        y = convolve(adj, left, *weights, pooled=right)
        grads = torch.autograd.grad(y.float().square().sum(), weights)
        results.append((y.float(), *grads))
    slack = {"rtol": 2e-2, "atol": 2e-2 if dtype == torch.bfloat16 else 1e-4}
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one / one.abs().max(), other / one.abs().max(), **slack)


def test_autocast_makes_bfloat16_and_float32_gradients() -> None:
    adj = random_graph(200, 300, 2000)
    x, own, neighbor, bias = numbers(300, 16), numbers(8, 16, seed=2), numbers(8, 16, seed=3), numbers(8, seed=4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = convolve(adj, x, own, neighbor, bias)
    assert y.dtype == torch.bfloat16
    y.float().sum().backward()
    assert all(tensor.grad is not None and tensor.grad.dtype == torch.float32 for tensor in (x, own, neighbor, bias))


def test_other_dtypes_and_inputs_without_gradient() -> None:
    adj = random_graph(20, 30, 90)
    x, own, neighbor = (numbers(*shape, seed=i).detach().double() for i, shape in enumerate([(30, 4), (3, 4), (3, 4)]))
    own.requires_grad_()
    y = convolve(adj, x, own, neighbor)
    y.sum().backward()
    assert y.dtype == own.grad.dtype == torch.float64
    assert x.grad is None
    assert neighbor.grad is None
