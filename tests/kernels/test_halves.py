"""Rows of 16 bits that go through torch's functions, as on a GPU, are added up in float32.

On a CPU float16 takes that way: its kernels read bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from models.kernels.attention.attention import (
    gat_attention,
    gatv2_attention,
    reference_gat_attention,
    reference_gatv2_attention,
)
from models.kernels.backends import choose
from models.kernels.sparse.adjacency import Adjacency
from models.kernels.sparse.edge_softmax import edge_softmax, reference_edge_softmax
from models.kernels.sparse.message import (
    message_sum,
    reference_message_sum,
    reference_softmax_aggregate,
    softmax_aggregate,
)
from models.kernels.sparse.pairs import pair_product, reference_pair_product
from models.kernels.sparse.product import multiply_torch
from models.kernels.sparse.sddmm import dot_edges, reference_sddmm
from models.kernels.sparse.segment import reference_segment_reduce, segment_broadcast, segment_reduce
from models.kernels.sparse.spmm_max import max_rows, reference_max
from tests.kernels.graphs import random_graph

EDGES, WIDTH = 5000, 3
ADJ = Adjacency(torch.tensor([0, EDGES, EDGES + 2, EDGES + 2]), torch.arange(EDGES + 2, dtype=torch.int32) % 4, 5)
"""A hub among the destinations, and among the sources: none has fewer than a thousand edges."""
OFFSETS = torch.tensor([0, EDGES, EDGES, EDGES + 2])
PAIRS = torch.stack([torch.arange(EDGES) % 2, torch.arange(EDGES) % 3])


def numbers(*shape: int) -> Tensor:
    """Numbers from 0.5 to 1.5, whose sums do not cancel."""
    made = torch.rand(*shape, generator=torch.Generator().manual_seed(sum(shape))) + 0.5
    return made.half().requires_grad_()


BETA = torch.tensor(1.5)
ROWS, HEADS, LONG = (5, WIDTH), (5, 2, WIDTH), (EDGES + 2, WIDTH)
CASES: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor], list[tuple[int, ...]]]] = {
    "gat": (gat_attention, reference_gat_attention, [HEADS, (5, 2), (3, 2)]),
    "gatv2": (gatv2_attention, reference_gatv2_attention, [HEADS, (3, 2, WIDTH), (2, WIDTH)]),
    "messages": (message_sum, reference_message_sum, [ROWS]),
    "messages with edges": (message_sum, reference_message_sum, [ROWS, LONG]),
    "softmax": (partial(softmax_aggregate, beta=BETA), partial(reference_softmax_aggregate, beta=BETA), [ROWS]),
    "maximum": (max_rows, reference_max, [ROWS]),
    "softmax of edges": (edge_softmax, reference_edge_softmax, [(EDGES + 2, 2)]),
    "dot products": (dot_edges, reference_sddmm, [(5, 50), (3, 50)]),
    "pairs": (lambda _, x: pair_product(x, PAIRS), lambda _, x: reference_pair_product(x, PAIRS), [ROWS]),
    "sum": (
        lambda _, x: segment_reduce(x, OFFSETS, "sum"), lambda _, x: reference_segment_reduce(x, OFFSETS, "sum"), [LONG]
    ),
    "mean": (
        lambda _, x: segment_reduce(x, OFFSETS, "mean"),
        lambda _, x: reference_segment_reduce(x, OFFSETS, "mean"),
        [LONG],
    ),
    "broadcast": (
        lambda _, x: segment_broadcast(x, OFFSETS), lambda _, x: x.repeat_interleave(OFFSETS.diff(), 0), [(3, WIDTH)]
    ),
}  # fmt: skip
SHIFTS = {"gat": (0.0, -2.0, -1.0), "gatv2": (0.0, -2.0, 0.0)}
"""What is added to inputs, so that scores are of both signs."""


@pytest.mark.parametrize("name", CASES)
def test_many_numbers_are_added_up_exactly(name: str) -> None:
    """Sums of thousands, and their gradients, to the rounding of the result: in 16 bits they end near 2048."""
    operator, reference, shapes = CASES[name]
    shifts = SHIFTS.get(name, (0.0,) * len(shapes))
    inputs = [(numbers(*shape).detach() + shift).requires_grad_() for shape, shift in zip(shapes, shifts, strict=True)]
    exact = [value.detach().double().requires_grad_() for value in inputs]
    assert choose(inputs[0]) == "torch"
    found, expected = operator(ADJ, *inputs), reference(ADJ, *exact)
    assert found.dtype == (torch.float32 if name == "dot products" else torch.float16)
    _close(found, expected)
    change = (torch.rand(found.shape, generator=torch.Generator().manual_seed(1)) + 0.5).to(found.dtype)
    gradients = torch.autograd.grad(found, inputs, change)
    wanted = torch.autograd.grad(expected, exact, change.double())
    for value, gradient, exactly in zip(inputs, gradients, wanted, strict=True):
        assert gradient.dtype == value.dtype
        _close(gradient, exactly)


def _close(value: Tensor, exact: Tensor) -> None:
    largest = float(exact.detach().abs().max())
    torch.testing.assert_close(value.detach().double(), exact.detach(), rtol=2e-3, atol=1e-3 * min(1.0, largest))


@pytest.mark.parametrize("weighted", [False, True])
def test_products_of_float32_rows_are_not_rounded_by_autocast(weighted: bool) -> None:
    """As a GPU computes them; on a CPU kernels do, which autocast knows nothing of."""
    adj = random_graph(12, 17, 80)
    x = torch.randn(17, 3, generator=torch.Generator().manual_seed(2)) * 1e5
    weight: Any = torch.rand(80, generator=torch.Generator().manual_seed(3)) if weighted else None
    expected = multiply_torch(adj, x, weight, None, None, None)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = multiply_torch(adj, x, weight, None, None, None)
    assert found.dtype == torch.float32
    assert torch.equal(found, expected)
