"""The Triton kernels on a GPU, or, where there is none, in Triton's interpreter. Skipped where Triton is missing."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from models.kernels.attention.edge_dropout import EdgeDropout
from models.kernels.attention.gat import reference_gat_attention
from models.kernels.attention.gatv2 import reference_gatv2_attention
from models.kernels.sparse.adjacency import Adjacency
from models.kernels.sparse.message import reference_message_sum, reference_power_aggregate, reference_softmax_aggregate
from models.kernels.sparse.product import multiply_torch
from models.kernels.sparse.sddmm import dot_edges
from models.kernels.sparse.spmm_max import max_rows, reference_max
from tests.kernels.graphs import compare, numbers, random_graph
from tests.triton_device import DEVICE, MARKS

pytestmark = MARKS


def on_device(operator: Callable[..., Tensor], adj: Adjacency) -> Callable[..., Tensor]:
    moved = Adjacency(adj.indptr.to(DEVICE), adj.indices.to(DEVICE), adj.num_src)
    return lambda *given: operator(moved, *(value.to(DEVICE) for value in given)).cpu()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [(1,), (7,), (130,), (3, 5)])
@pytest.mark.parametrize("scaled", [False, True])
def test_products(width: tuple[int, ...], dtype: torch.dtype, scaled: bool) -> None:
    """With rows behind the last edge that are not there: none is read."""
    from models.kernels.sparse.product_triton import multiply_triton

    adj = random_graph(12, 17, 80)
    padded = Adjacency(adj.indptr, torch.cat([adj.indices, torch.full((9,), 17, dtype=torch.int32)]), 17)
    x = numbers(17, *width, dtype=dtype).detach()
    weights: list[Any] = [None, numbers(80, *width[:-1], seed=2).detach()]
    edges = torch.randperm(80, generator=torch.Generator().manual_seed(3)).to(torch.int32)
    scales = (numbers(17, seed=4).detach(), numbers(12, seed=5).detach()) if scaled else (None, None)
    for weight in weights:
        for order in (None,) if weight is None else (None, edges):
            more = (weight, order, *scales)
            moved = (None if value is None else value.to(DEVICE) for value in more)
            on = Adjacency(padded.indptr.to(DEVICE), padded.indices.to(DEVICE), 17)
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
def test_gat(heads: int, dim: int, dtype: torch.dtype, rate: float) -> None:
    from models.kernels.attention.gat_triton import gat_attention_triton

    adj, rule = random_graph(12, 17, 80), EdgeDropout.of(rate, 5)
    inputs = numbers(17, heads, dim, dtype=dtype), numbers(17, heads, seed=2), numbers(12, heads, seed=3)
    fast = on_device(lambda moved, *given: gat_attention_triton(moved, *given, 0.2, rule), adj)
    compare(fast, lambda *given: reference_gat_attention(adj, *given, 0.2, rate, 5), *inputs, slack=3)


@pytest.mark.parametrize(("heads", "dim", "dtype", "rate"), SHAPES)
def test_gatv2(heads: int, dim: int, dtype: torch.dtype, rate: float) -> None:
    from models.kernels.attention.gatv2_triton import gatv2_attention_triton

    adj, rule = random_graph(12, 17, 80), EdgeDropout.of(rate, 5)
    inputs = [numbers(count, heads, dim, dtype=dtype, seed=count) for count in (17, 12)]
    fast = on_device(lambda moved, *given: gatv2_attention_triton(moved, *given, 0.2, rule), adj)
    slow = lambda *given: reference_gatv2_attention(adj, *given, 0.2, rate, 5)  # noqa: E731
    compare(fast, slow, *inputs, numbers(heads, dim), slack=3)


@pytest.mark.parametrize("term", ["none", "rows", "table"])
@pytest.mark.parametrize("kind", ["sum", "softmax", "power"])
@pytest.mark.parametrize(("width", "dtype"), [(20, torch.float32), (130, torch.float32), (20, torch.float16)])
def test_messages(kind: str, term: str, width: int, dtype: torch.dtype) -> None:
    from models.kernels.sparse.message_triton import aggregate_triton

    adj = random_graph(12, 17, 80)
    codes = torch.arange(80, dtype=torch.int32) % 5 if term == "table" else None
    references: dict[str, Callable[..., Tensor]] = {
        "sum": lambda adj, x, number, edge: reference_message_sum(adj, x, edge) + 0 * number,
        "softmax": reference_softmax_aggregate,
        "power": reference_power_aggregate,
    }
    inputs = [(3 * numbers(17, width).detach()).to(dtype), torch.tensor(1.7)]
    if term != "none":
        inputs.append(numbers(80 if term == "rows" else 5, width, seed=2, dtype=dtype).detach())

    def fast(moved: Adjacency, x: Tensor, number: Tensor, edge: Tensor | None = None) -> Tensor:
        y = aggregate_triton(moved, x, edge, None if codes is None else codes.to(x.device), number, 1e-7, kind)
        return y + 0 * number if kind == "sum" else y

    def slow(x: Tensor, number: Tensor, edge: Any = None) -> Tensor:
        return references[kind](adj, x, number, edge if codes is None else (edge, codes))

    for value in inputs:
        value.requires_grad_()
    compare(on_device(fast, adj), slow, *inputs, slack=4)


TYPES = (torch.float32, torch.bfloat16, torch.float16)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(7,), (300,), (3, 5)])
@pytest.mark.parametrize("scaled", [False, True])
def test_dot_products(shape: tuple[int, ...], dtype: torch.dtype, scaled: bool) -> None:
    from models.kernels.sparse.sddmm_triton import dot_edges_triton

    adj, a, b = random_graph(12, 17, 80), numbers(17, *shape, dtype=dtype), numbers(12, *shape, dtype=dtype, seed=2)
    scales = (torch.rand(17), torch.rand(12)) if scaled else ()
    s = on_device(lambda moved, *given: dot_edges_triton(moved, *given), adj)(a.detach(), b.detach(), *scales)
    assert s.dtype == torch.float32
    torch.testing.assert_close(s.double(), dot_edges(adj, a.double(), b.double(), *scales), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("width", [7, 130])
def test_maxima(width: int, dtype: torch.dtype) -> None:
    from models.kernels.sparse.spmm_max_triton import max_rows_triton

    adj = random_graph(12, 17, 80)
    x = (torch.rand(17, width).argsort(0) - 8).to(dtype).requires_grad_()  # no equal numbers in a column
    compare(on_device(max_rows_triton, adj), lambda x: reference_max(adj, x), x)


def test_maxima_are_those_of_the_cpu_where_sources_are_equal_or_nan() -> None:
    from models.kernels.sparse.spmm_max_triton import max_rows_triton

    adj = Adjacency(torch.tensor([0, 0, 20, 24]), torch.tensor([3, 0, 1, 0] * 6, dtype=torch.int32), 5)
    columns = [
        [0.0, -0.0, 0, -1, 9],
        [-2, -2, 0, -3, 9],
        [3, torch.inf, 0, 3, 9],
        [-torch.inf, -torch.inf, 0] + 2 * [-torch.inf],
    ]
    x = torch.tensor(columns).t().contiguous().requires_grad_()
    fast = on_device(max_rows_triton, adj)
    found, expected = fast(x), max_rows(adj, x)
    assert torch.equal(found, expected)
    change = numbers(*found.shape, seed=9).detach()
    assert torch.equal(torch.autograd.grad(found, x, change)[0], torch.autograd.grad(expected, x, change)[0])
    for at in (0, 1, 3):
        y = fast(x.detach().index_fill(0, torch.tensor([at]), torch.nan))
        assert y.isnan().all(1).tolist() == [False, True, True]


def test_nothing_to_add_up_or_compare() -> None:
    from models.kernels.sparse.sddmm_triton import dot_edges_triton
    from models.kernels.sparse.spmm_max_triton import max_rows_triton

    for adj, width in ((random_graph(5, 3, 0), 7), (random_graph(12, 17, 80), 0)):
        a, b = torch.ones(adj.num_src, 2, width), torch.ones(adj.num_dst, 2, width)
        assert torch.equal(on_device(dot_edges_triton, adj)(a, b), torch.zeros(adj.num_edges, 2))
        x = torch.ones(adj.num_src, width, requires_grad=True)
        y = on_device(max_rows_triton, adj)(x)
        assert torch.equal(y, torch.zeros(adj.num_dst, width))
        assert torch.equal(torch.autograd.grad(y.sum(), x)[0], torch.zeros_like(x))


@pytest.mark.parametrize("kind", ["sum", "softmax", "power"])
def test_what_is_no_number_passes(kind: str) -> None:
    """A GPU's maximum of NaN and 0 is 0 unless told; the interpreter's is NaN, so that this says nothing there."""
    from models.kernels.sparse.message_triton import aggregate_triton

    adj = random_graph(12, 17, 80)
    x = numbers(17, 5).detach()
    x[3, 2] = torch.nan
    fast = on_device(lambda moved, *given: aggregate_triton(moved, given[0], None, None, given[1], 1e-7, kind), adj)
    reference = reference_message_sum(adj, x)
    assert torch.equal(fast(x, torch.tensor(1.7)).isnan(), reference.isnan())
    assert reference.isnan().any()


def test_kernels_are_not_compiled_anew_for_other_keys() -> None:
    """A number's type is by default int32 or int64 by its value, and halves of random keys have 32 bits or fewer."""
    from models.kernels.attention import gat_triton, gatv2_triton

    kernels: list[Any] = [
        getattr(module, name)
        for module in (gat_triton, gatv2_triton)
        for name in ("_forward", "_backward_targets", "_backward_sources")
    ]
    for kernel in kernels:
        known = inspect.signature(kernel.fn).parameters
        assert [known[name].annotation for name in ("low", "high", "threshold")] == ["tl.int64"] * 3
