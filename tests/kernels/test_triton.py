"""The Triton kernels on a GPU, or, where there is none, in Triton's interpreter. Skipped where Triton is missing."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from models.kernels.adjacency import Adjacency
from models.kernels.attention import reference_gat_attention
from models.kernels.backends import has_triton
from models.kernels.edge_dropout import EdgeDropout
from models.kernels.gatv2 import reference_gatv2_attention
from models.kernels.message import reference_message_sum, reference_power_aggregate, reference_softmax_aggregate
from tests.kernels.graphs import compare, numbers, random_graph

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # read when the kernels' modules are imported
pytestmark = [
    pytest.mark.skipif(not has_triton(), reason="Triton is not installed"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # the interpreter's: overflow in hashes, 0 / 0 left unused
]


def on_device(operator: Callable[..., Tensor], adj: Adjacency) -> Callable[..., Tensor]:
    moved = Adjacency(adj.indptr.to(DEVICE), adj.indices.to(DEVICE), adj.num_src)
    return lambda *given: operator(moved, *(value.to(DEVICE) for value in given)).cpu()


SHAPES = [(3, 5, torch.float32, 0.4), (1, 40, torch.float32, 0.0), (2, 16, torch.bfloat16, 0.4)]


@pytest.mark.parametrize(("heads", "dim", "dtype", "rate"), SHAPES)
def test_gat(heads: int, dim: int, dtype: torch.dtype, rate: float) -> None:
    from models.kernels.attention_triton import gat_attention_triton

    adj, rule = random_graph(12, 17, 80), EdgeDropout.of(rate, 5)
    inputs = numbers(17, heads, dim, dtype=dtype), numbers(17, heads, seed=2), numbers(12, heads, seed=3)
    fast = on_device(lambda moved, *given: gat_attention_triton(moved, *given, 0.2, rule), adj)
    compare(fast, lambda *given: reference_gat_attention(adj, *given, 0.2, rate, 5), *inputs, slack=3)


@pytest.mark.parametrize(("heads", "dim", "dtype", "rate"), SHAPES)
def test_gatv2(heads: int, dim: int, dtype: torch.dtype, rate: float) -> None:
    from models.kernels.gatv2_triton import gatv2_attention_triton

    adj, rule = random_graph(12, 17, 80), EdgeDropout.of(rate, 5)
    inputs = [numbers(count, heads, dim, dtype=dtype, seed=count) for count in (17, 12)]
    fast = on_device(lambda moved, *given: gatv2_attention_triton(moved, *given, 0.2, rule), adj)
    slow = lambda *given: reference_gatv2_attention(adj, *given, 0.2, rate, 5)  # noqa: E731
    compare(fast, slow, *inputs, numbers(heads, dim), slack=3)


@pytest.mark.parametrize("term", ["none", "rows", "table"])
@pytest.mark.parametrize("kind", ["sum", "softmax", "power"])
@pytest.mark.parametrize("width", [20, 130])
def test_messages(kind: str, term: str, width: int) -> None:
    from models.kernels.message_triton import aggregate_triton

    adj = random_graph(12, 17, 80)
    codes = torch.arange(80, dtype=torch.int32) % 5 if term == "table" else None
    references: dict[str, Callable[..., Tensor]] = {
        "sum": lambda adj, x, number, edge: reference_message_sum(adj, x, edge) + 0 * number,
        "softmax": reference_softmax_aggregate,
        "power": reference_power_aggregate,
    }
    inputs = [(3 * numbers(17, width).detach()).requires_grad_(), torch.tensor(1.7, requires_grad=kind != "sum")]
    if term != "none":
        inputs.append(numbers(80 if term == "rows" else 5, width, seed=2))

    def fast(moved: Adjacency, x: Tensor, number: Tensor, edge: Tensor | None = None) -> Tensor:
        y = aggregate_triton(moved, x, edge, None if codes is None else codes.to(x.device), number, 1e-7, kind)
        return y + 0 * number if kind == "sum" else y

    def slow(x: Tensor, number: Tensor, edge: Any = None) -> Tensor:
        return references[kind](adj, x, number, edge if codes is None else (edge, codes))

    for value in inputs:
        value.requires_grad_()
    compare(on_device(fast, adj), slow, *inputs, slack=4)
