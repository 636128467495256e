"""The Triton kernels on a GPU, or, where there is none, in Triton's interpreter. Skipped where Triton is missing."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

from models.kernels.attention.attention import reference_gat_attention, reference_gatv2_attention
from models.kernels.attention.edge_dropout import EdgeDropout
from models.kernels.sparse.adjacency import Adjacency
from models.kernels.sparse.product import multiply_torch
from tests.kernels.graphs import compare, numbers, random_graph
from tests.triton_device import DEVICE, MARKS

pytestmark = MARKS


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [(1,), (7,), (130,), (3, 5)])
@pytest.mark.parametrize("scaled", [False, True])
def test_products(width: tuple[int, ...], dtype: torch.dtype, scaled: bool) -> None:
    from models.kernels.sparse.product_triton import multiply_triton

    adj = random_graph(12, 17, 80)
    x = numbers(17, *width, dtype=dtype).detach()
    weights: list[Any] = [None, numbers(80, *width[:-1], seed=2).detach()]
    edges = torch.randperm(80, generator=torch.Generator().manual_seed(3)).to(torch.int32)
    scales = (numbers(17, seed=4).detach(), numbers(12, seed=5).detach()) if scaled else (None, None)
    for weight in weights:
        for order in (None,) if weight is None else (None, edges):
            more = (weight, order, *scales)
            moved = (None if value is None else value.to(DEVICE) for value in more)
            on = Adjacency(adj.indptr.to(DEVICE), adj.indices.to(DEVICE), 17)
            found = multiply_triton(on, x.to(DEVICE), *moved).cpu()
            exact = multiply_torch(
                adj, x.double(), *(v.double() if v is not None and v.is_floating_point() else v for v in more)
            )
            slack = 1e-5 if dtype == torch.float32 else 1e-2
            torch.testing.assert_close(found.double(), exact, rtol=slack, atol=slack * float(exact.abs().max()))


SHAPES = [
    (3, 5, torch.float32, 0.4),
    (1, 40, torch.float32, 0.0),
    (2, 16, torch.bfloat16, 0.4),
    (2, 16, torch.float16, 0.4),
]


@pytest.mark.parametrize(("heads", "dim", "dtype", "rate"), SHAPES)
@pytest.mark.parametrize("kind", ["gat", "gatv2"])
def test_attention(kind: str, heads: int, dim: int, dtype: torch.dtype, rate: float) -> None:
    from models.kernels.attention import attention_triton

    adj, rule, x = random_graph(12, 17, 80), EdgeDropout.of(rate, 5), numbers(17, heads, dim, dtype=dtype)
    if kind == "gat":
        inputs = [x, numbers(17, heads, seed=2), numbers(12, heads, seed=3)]
        kernel, reference = attention_triton.gat_attention_triton, reference_gat_attention
    else:
        inputs = [x, numbers(12, heads, dim, dtype=dtype, seed=12), numbers(heads, dim)]
        kernel, reference = attention_triton.gatv2_attention_triton, reference_gatv2_attention
    moved = Adjacency(adj.indptr.to(DEVICE), adj.indices.to(DEVICE), adj.num_src)
    compare(
        lambda *given: kernel(moved, *(rows.to(DEVICE) for rows in given), 0.2, rule).cpu(),
        lambda *given: reference(adj, *given, 0.2, rate, 5),
        *inputs, slack=3,
    )  # fmt: skip


def test_kernels_are_not_compiled_anew_for_other_keys() -> None:
    """A number's type is by default int32 or int64 by its value, and halves of random keys have 32 bits or fewer."""
    from models.kernels.attention import attention_triton

    for name in ("_forward", "_backward_targets", "_backward_sources"):
        known = inspect.signature(getattr(attention_triton, name).fn).parameters
        assert [known[each].annotation for each in ("low", "high", "threshold")] == ["tl.int64"] * 3
