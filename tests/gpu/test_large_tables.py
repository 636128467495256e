"""Tables of more than 2^31 numbers: what would wrap in 32 bits is a row that is not there, or another one.

Each operator reads the last rows of a large table, and must find what it finds in a table of these rows alone.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from models.kernels.attention.attention import gat_attention, gatv2_attention
from models.kernels.sparse.adjacency import Adjacency
from models.kernels.sparse.message import message_sum, softmax_aggregate
from models.kernels.sparse.spmm import sddmm
from tests.gpu.where import DEVICE, HAS_GPU, KERNELS, MARKS, computing_with
from tests.kernels.graphs import spmm

pytestmark = MARKS
WIDTH = 64
ROWS = (1 << 31) // WIDTH + 1000 if HAS_GPU else 5000
LAST = 600
"""Rows that are read, most of them beyond number 2^31."""
NUM_DST = 37


def edges(num_src: int, shift: int) -> Adjacency:
    generator = torch.Generator().manual_seed(0)
    counts = torch.randint(0, 30, (NUM_DST,), generator=generator)
    counts[3] = 0
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    indices = torch.randint(LAST, (int(indptr[-1]),), generator=generator) + shift
    return Adjacency(indptr.to(DEVICE), indices.to(torch.int32).to(DEVICE), num_src)


def attend(adj: Adjacency, x: Tensor) -> Tensor:
    heads = x.view(len(x), 2, -1)
    return gat_attention(adj, heads, heads.float().sum(2), heads[:NUM_DST].float().sum(2), 0.2).flatten(1)


def attend_v2(adj: Adjacency, x: Tensor) -> Tensor:
    heads, rows = x.view(len(x), 2, -1), x[:NUM_DST].view(NUM_DST, 2, -1)
    return gatv2_attention(adj, heads, rows, torch.ones(heads.shape[1:], device=x.device), 0.2).flatten(1)


OPERATORS: dict[str, Callable[[Adjacency, Tensor], Tensor]] = {
    "sum": spmm,
    "mean": lambda adj, x: spmm(adj, x, reduce="mean"),
    "max": lambda adj, x: spmm(adj, x, reduce="max"),
    "messages": message_sum,
    "softmax": lambda adj, x: softmax_aggregate(adj, x, torch.ones((), device=x.device)),
    "gat": attend,
    "gatv2": attend_v2,
    "dot products": lambda adj, x: sddmm(adj, x, x[:NUM_DST]),
}


@KERNELS
@pytest.mark.parametrize("name", OPERATORS)
def test_rows_beyond_32_bits(name: str, kernels: str) -> None:
    with computing_with(kernels):
        _compare_rows(name)


def _compare_rows(name: str) -> None:
    operator, shift = OPERATORS[name], ROWS - LAST
    rows = torch.randn(LAST, WIDTH, generator=torch.Generator().manual_seed(1)).bfloat16().to(DEVICE)
    large = torch.zeros(ROWS, WIDTH, dtype=torch.bfloat16, device=DEVICE)
    large[:NUM_DST], large[shift:] = rows[:NUM_DST], rows
    large.requires_grad_()
    small = rows.clone().requires_grad_()
    found, expected = operator(edges(ROWS, shift), large), operator(edges(LAST, 0), small)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    change = torch.randn(found.shape, generator=torch.Generator().manual_seed(2)).to(found)
    (grad,) = torch.autograd.grad(found, large, change)
    (wanted,) = torch.autograd.grad(expected, small, change)
    own = grad[shift:].float()
    own[:NUM_DST] += grad[:NUM_DST].float()  # of rows that are destinations too
    torch.testing.assert_close(own, wanted.float(), rtol=2e-2, atol=2e-2)
    assert not grad[NUM_DST:shift].any()


def test_more_edges_than_32_bits_are_transposed_elsewhere() -> None:
    """Not made here (26 GB): that the rule is asked at all is tested by a lower limit."""
    from models.kernels.sparse import adjacency

    if not HAS_GPU:
        pytest.skip("on the CPU there is no such limit")
    adj = edges(LAST, 0)
    expected = adjacency.transpose(adj.indptr, adj.indices, LAST)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adjacency, "_MOST_SORTED", 5)
        found = adjacency.transpose(adj.indptr, adj.indices, LAST)
    for name in ("indptr", "indices", "edges"):
        assert torch.equal(getattr(found, name).long(), getattr(expected, name).long())
