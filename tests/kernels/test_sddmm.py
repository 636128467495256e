"""Values of edges from those of their ends, and the softmax over in-edges."""

from __future__ import annotations

import pytest
import torch

from models.kernels.simd.vector import WIDEST
from models.kernels.sparse.edge_softmax import edge_softmax, reference_edge_softmax
from models.kernels.sparse.sddmm import reference_sddmm, sddmm
from tests.kernels.graphs import compare, numbers, random_graph, without_edges

TYPES = (torch.float32, torch.bfloat16)


@pytest.mark.parametrize(("heads", "width", "dtype"), [(1, WIDEST + 7, TYPES[0]), (3, 7, TYPES[0]), (3, 7, TYPES[1])])
def test_dot_products(heads: int, width: int, dtype: torch.dtype) -> None:
    adj, a, b = random_graph(), numbers(53, heads, width, dtype=dtype), numbers(37, heads, width, dtype=dtype, seed=2)
    assert sddmm(adj, a, b).dtype == torch.float32
    compare(lambda a, b: sddmm(adj, a, b), lambda a, b: reference_sddmm(adj, a, b), a, b)


@pytest.mark.parametrize(("heads", "dtype"), [(1, TYPES[0]), (3, TYPES[0]), (4, TYPES[1])])
def test_softmax(heads: int, dtype: torch.dtype) -> None:
    adj, scores = random_graph(), (numbers(400, heads) * 30).to(dtype).detach().requires_grad_()
    compare(lambda s: edge_softmax(adj, s), lambda s: reference_edge_softmax(adj, s), scores)


def test_softmax_sums_to_one() -> None:
    adj = random_graph()
    sums = torch.zeros(37, 3).index_add(0, adj.targets(), edge_softmax(adj, numbers(400, 3) * 100))
    torch.testing.assert_close(sums, (adj.degrees() > 0).to(torch.float32).unsqueeze(1).expand(37, 3))


def test_no_edges() -> None:
    adj, a, b = without_edges(), numbers(3, 3, 7), numbers(5, 3, 7)
    for made in (sddmm(adj, a, b), edge_softmax(adj, numbers(0, 3))):
        assert made.shape == (0, 3)
        made.sum().backward()  # type: ignore[no-untyped-call]
    assert torch.equal(torch.autograd.grad(sddmm(adj, a, b).sum(), a)[0], torch.zeros(3, 3, 7))


def test_float64_checks_gradients() -> None:
    adj = random_graph(5, 4, 9)
    a, b = (numbers(n, 2, 3).detach().double().requires_grad_() for n in (4, 5))
    assert torch.autograd.gradcheck(lambda a, b: sddmm(adj, a, b), (a, b))
    assert torch.autograd.gradcheck(lambda a, b: edge_softmax(adj, sddmm(adj, a, b)), (a, b))
