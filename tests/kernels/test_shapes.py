"""What does not fit together is refused before a kernel reads it; what is merely empty is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from models.kernels.attention.attention import (
    gat_attention,
    gatv2_attention,
    reference_gat_attention,
    reference_gatv2_attention,
)
from models.kernels.dense.convolve import convolve
from models.kernels.sparse.adjacency import Adjacency
from models.kernels.sparse.edge_softmax import edge_softmax
from models.kernels.sparse.message import message_sum, softmax_aggregate
from models.kernels.sparse.pairs import pair_product
from models.kernels.sparse.sddmm import sddmm
from models.kernels.sparse.segment import segment_broadcast, segment_reduce
from models.kernels.sparse.spmm import weighted_sum
from tests.kernels.graphs import compare, numbers, random_graph, reference_spmm, spmm, without_edges

ADJ = random_graph()
"""53 sources, 37 destinations, 400 edges."""
SOME = torch.tensor([[0, 3], [1, 2]])


def ones(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.ones(*shape, dtype=dtype)


WRONG: list[tuple[Callable[[], Tensor], str]] = [
    (lambda: spmm(ADJ, ones(40, 8)), r"x must be \(53, D\) or \(53, H, D\), not \(40, 8\)"),
    (lambda: spmm(ADJ, ones(53)), r"x must be .*, not \(53,\)"),
    (lambda: spmm(ADJ, ones(40, 8), "max"), r"x must be \(53, D\), not \(40, 8\)"),
    (lambda: spmm(ADJ, ones(40, 8), "mean"), r"x must be .*, not \(40, 8\)"),
    (lambda: spmm(ADJ, ones(53, 2, dtype=torch.int64)), r"x must be of a floating dtype, not torch\.int64"),
    (lambda: spmm(ADJ, ones(53, 8), weight=ones(100)), r"weight must be \(400,\), not \(100,\)"),
    (lambda: spmm(ADJ, ones(53, 8), weight=ones(400, 1)), r"weight must be \(400,\), not \(400, 1\)"),
    (lambda: spmm(ADJ, ones(53, 8), weight=ones(400, 2)), r"weight must be \(400,\), not \(400, 2\)"),
    (lambda: spmm(ADJ, ones(53, 3, 8), weight=ones(400, 2)), r"weight must be \(400,\) or \(400, 3\), not \(400, 2\)"),
    (lambda: weighted_sum(ADJ, ones(53, 8), None, ones(52)), r"source_scale must be \(53,\), not \(52,\)"),
    (lambda: weighted_sum(ADJ, ones(53, 8), None, None, ones(36)), r"target_scale must be \(37,\), not \(36,\)"),
    (lambda: sddmm(ADJ, ones(52, 1, 4), ones(37, 1, 4)), r"a must be \(53, D\) or \(53, H, D\), not \(52, 1, 4\)"),
    (lambda: sddmm(ADJ, ones(53, 1, 4), ones(10, 1, 4)), r"b must be \(37, 1, 4\), not \(10, 1, 4\)"),
    (lambda: sddmm(ADJ, ones(53, 2, 4), ones(37, 1, 4)), r"b must be \(37, 2, 4\), not \(37, 1, 4\)"),
    (lambda: sddmm(ADJ, ones(53, 1, 4), ones(37, 1, 4).double()), r"b must be of a's torch\.float32, not .*float64"),
    (lambda: edge_softmax(ADJ, ones(100, 2)), r"scores must be \(400, H\), not \(100, 2\)"),
    (lambda: edge_softmax(ADJ, ones(400)), r"scores must be \(400, H\), not \(400,\)"),
    (lambda: pair_product(ones(4), SOME), r"x must be \(n, D\), not \(4,\)"),
    (lambda: pair_product(ones(4, 3), SOME[0]), r"pairs must be \(2, P\), not \(2,\)"),
    (lambda: pair_product(ones(4, 3), SOME.int()), r"pairs must be of torch\.int64, not torch\.int32"),
    (lambda: pair_product(ones(3, 3), SOME), r"pairs must be from 0 to below 3, the rows of x, not from 0 to 3"),
    (lambda: pair_product(ones(4, 3).double(), SOME - 1), r"pairs must be from 0 to below 4, .* not from -1 to 2"),
    (lambda: segment_reduce(ones(4), SOME[0], "sum"), r"x must be \(n, D\), not \(4,\)"),
    (lambda: segment_reduce(ones(4, 3), SOME, "sum"), r"offsets must be \(G \+ 1,\), not \(2, 2\)"),
    (lambda: segment_reduce(ones(4, 3), torch.tensor([0, 4]).int(), "sum"), r"offsets must be of torch\.int64, not"),
    (lambda: segment_reduce(ones(4, 3), torch.tensor([0, 2, 1000]), "sum"), r"from 0 to x's 4 rows, not .* to 1000"),
    (lambda: segment_reduce(ones(4, 3), torch.tensor([1, 2, 4]), "max"), r"offsets must begin with 0, not 1"),
    (lambda: segment_reduce(ones(4, 3), torch.tensor([0, 3, 2, 4]), "mean"), r"offsets must never fall"),
    (lambda: segment_reduce(ones(0, 3), torch.zeros(0, dtype=torch.int64), "sum"), r"offsets must be \(G \+ 1,\), not"),
    (lambda: segment_broadcast(ones(3, 3), torch.tensor([0, 4])), r"x must be \(1, D\), not \(3, 3\)"),
    (lambda: segment_broadcast(ones(2, 3), torch.tensor([0, 3, 2])), r"offsets must never fall"),
    (lambda: segment_broadcast(ones(2, 3), torch.tensor([-1, 3, 4])), r"offsets must begin with 0, not -1"),
    (lambda: convolve(ADJ, ones(40, 8), ones(5, 8), ones(5, 8)), r"x must be \(53, in\), not \(40, 8\)"),
    (lambda: convolve(ADJ, ones(53, 8), ones(5, 7), ones(5, 8)), r"own_weight must be \(out, 8\), not \(5, 7\)"),
    (lambda: convolve(ADJ, ones(53, 8), ones(5, 8), ones(4, 8)), r"neighbor_weight must be \(5, 8\), not \(4, 8\)"),
    (lambda: convolve(ADJ, ones(53, 8), ones(5, 8), ones(5, 8), ones(4)), r"bias must be \(5,\), not \(4,\)"),
    (
        lambda: convolve(ADJ, ones(53, 8), ones(5, 8), ones(5, 8), edge_weight=ones(400, 1)),
        r"edge_weight must be \(400,\), not \(400, 1\)",
    ),
    (
        lambda: convolve(ADJ, ones(53, 8), ones(5, 8), ones(5, 8), target_scale=ones(36)),
        r"target_scale must be \(37,\), not \(36,\)",
    ),
    (
        lambda: convolve(ADJ, ones(37, 8), ones(5, 8), ones(5, 8), pooled=ones(36, 8)),
        r"pooled must be \(37, 8\), not \(36, 8\)",
    ),
    (lambda: convolve(ADJ, ones(36, 8), ones(5, 8), ones(5, 8), pooled=ones(37, 8)), r"x must have the 37 .*, not 36"),
]


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_what_does_not_fit_is_refused(call: Callable[[], Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_one_weight_for_all_heads(reduce: str) -> None:
    x, weight = numbers(53, 2, 7), numbers(400, seed=2)
    compare(lambda x, w: spmm(ADJ, x, reduce, w), lambda x, w: reference_spmm(ADJ, x, reduce, w), x, weight)
    [exact] = torch.autograd.grad(reference_spmm(ADJ, x.double(), reduce, weight.double()).sum(), x)
    assert exact.shape == x.shape


def test_products_of_single_rows() -> None:
    a, b = numbers(53, 7), numbers(37, 7, seed=2)
    s = sddmm(ADJ, a, b)
    assert s.shape == (400,)
    by_head = sddmm(ADJ, a.unsqueeze(1), b.unsqueeze(1)).squeeze(1)
    assert torch.equal(s, by_head)
    change = numbers(400, seed=3).detach()
    for one, other in zip(
        torch.autograd.grad(s, (a, b), change), torch.autograd.grad(by_head, (a, b), change), strict=True
    ):
        assert torch.equal(one, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("adj", [ADJ, without_edges(), Adjacency(torch.zeros(4).long(), torch.zeros(0).int(), 0)])
def test_no_columns_give_an_empty_result(adj: Adjacency, dtype: torch.dtype) -> None:
    """Sources may be missing altogether too."""
    ns, nd, edges = adj.num_src, adj.num_dst, adj.num_edges
    x = ones(ns, 0, dtype=dtype).requires_grad_()
    by_head, into = ones(ns, 2, 0, dtype=dtype).requires_grad_(), ones(nd, 2, 0, dtype=dtype)
    weight = ones(edges).requires_grad_()
    for made, shape in (
        (spmm(adj, x), (nd, 0)),
        (spmm(adj, x, "mean", weight), (nd, 0)),
        (spmm(adj, x, "max"), (nd, 0)),
        (spmm(adj, by_head, weight=ones(edges, 2).requires_grad_()), (nd, 2, 0)),
        (sddmm(adj, by_head, into), (edges, 2)),
        (edge_softmax(adj, ones(edges, 0, dtype=dtype).requires_grad_()), (edges, 0)),
        (pair_product(x, torch.zeros(2, min(ns, 1)).long()), (min(ns, 1), 0)),
        (segment_reduce(x, torch.tensor([0, ns]), "max"), (1, 0)),
        (segment_reduce(x, torch.tensor([0, ns]), "mean"), (1, 0)),
        (segment_broadcast(x, torch.arange(ns + 1)), (ns, 0)),
        (message_sum(adj, x), (nd, 0)),
        (softmax_aggregate(adj, x, torch.tensor(1.0)), (nd, 0)),
        (gat_attention(adj, by_head, ones(ns, 2, dtype=dtype), ones(nd, 2, dtype=dtype)), (nd, 2, 0)),
        (gatv2_attention(adj, by_head, into, ones(2, 0, dtype=dtype)), (nd, 2, 0)),
    ):
        assert made.shape == shape
        made.sum().backward()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_sources_give_zeros(dtype: torch.dtype) -> None:
    adj = Adjacency(torch.zeros(4, dtype=torch.int64), torch.zeros(0, dtype=torch.int32), 0)
    for shape, weight in (((0, 5), None), ((0, 2, 5), None), ((0, 5), ones(0)), ((0, 2, 5), ones(0, 2))):
        for reduce in ("sum", "mean", "max") if len(shape) == 2 and weight is None else ("sum", "mean"):
            x = ones(*shape, dtype=dtype).requires_grad_()
            y = spmm(adj, x, reduce, weight)
            assert torch.equal(y, torch.zeros(3, *shape[1:], dtype=dtype))
            y.sum().backward()
    for heads in (ones(0, 2, 5, dtype=dtype),):
        scores = ones(0, 2, dtype=dtype), ones(3, 2, dtype=dtype)
        assert torch.equal(gat_attention(adj, heads, *scores), reference_gat_attention(adj, heads, *scores))
        ends = ones(3, 2, 5, dtype=dtype), ones(2, 5, dtype=dtype)
        assert torch.equal(gatv2_attention(adj, heads, *ends), reference_gatv2_attention(adj, heads, *ends))
