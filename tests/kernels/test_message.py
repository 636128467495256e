"""Messages that are never stored: sum and softmax, with edges' rows, tables of them, or none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from models.kernels.sparse.adjacency import Adjacency
from models.kernels.sparse.message import (
    message_sum,
    reference_message_sum,
    reference_softmax_aggregate,
    softmax_aggregate,
)
from tests.kernels.graphs import compare, large_graph, numbers, random_graph, symmetric_graph, without_edges

WIDTH = 20


OPS: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor]]] = {
    "sum": (message_sum, reference_message_sum),
    "softmax": (softmax_aggregate, reference_softmax_aggregate),
}


def check(
    op: str, term: str, adj: Adjacency, dtype: torch.dtype = torch.float32, number: float = 1.7, width: int = WIDTH
) -> None:
    """Compare with float64; an edge's `term` is `none`, `rows` or `table`, whose first row no edge has."""
    codes = torch.randint(1, 6, (adj.num_edges,), generator=torch.Generator().manual_seed(4), dtype=torch.int32)
    inputs = [(3 * numbers(adj.num_src, width, dtype=dtype).detach()).requires_grad_()]
    if term != "none":
        inputs.append(numbers(adj.num_edges if term == "rows" else 6, width, dtype=dtype, seed=2))
    if op != "sum":
        inputs.append(torch.tensor(number, requires_grad=True))

    def bind(operator: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def call(x: Tensor, *others: Tensor) -> Tensor:
            rest: list[Any] = list(others)
            edge = None if term == "none" else rest.pop(0)
            return operator(adj, x, *rest, (edge, codes) if term == "table" else edge)

        return call

    compare(*(bind(operator) for operator in OPS[op]), *inputs, slack=4)  # m - y and the number's gradient cancel


@pytest.mark.parametrize(
    ("op", "term", "dtype"),
    [
        ("sum", "none", torch.float32),
        ("sum", "rows", torch.float32),
        ("sum", "table", torch.float32),
        ("sum", "table", torch.bfloat16),
        ("softmax", "none", torch.float32),
        ("softmax", "rows", torch.float32),
        ("softmax", "table", torch.bfloat16),
    ],
)
def test_values_and_gradients(op: str, term: str, dtype: torch.dtype) -> None:
    check(op, term, random_graph(), dtype)


@pytest.mark.parametrize(("op", "term"), [("sum", "table"), ("softmax", "rows")])
def test_ranges_on_several_threads(op: str, term: str, threads: int) -> None:
    check(op, term, large_graph())


@pytest.mark.parametrize(("op", "term"), [("sum", "table"), ("softmax", "rows")])
def test_without_edges(op: str, term: str) -> None:
    check(op, term, without_edges())


def test_rows_wider_than_a_tile() -> None:
    check("sum", "none", random_graph(), width=256 + WIDTH)


def test_a_symmetric_graph_is_its_own_transpose_unless_edges_bring_rows() -> None:
    adj = symmetric_graph()
    check("softmax", "none", adj)
    assert adj.transposed is None
    check("softmax", "rows", adj)


@pytest.mark.parametrize("beta", [-2.0, 0.0])
def test_other_temperatures(beta: float) -> None:
    check("softmax", "none", random_graph(), number=beta)


def neighbours(adj: Adjacency, x: Tensor, row: int) -> Tensor:
    return x[adj.indices[adj.indptr[row] : adj.indptr[row + 1]].long()].relu()


def test_limits_are_the_mean_and_the_maximum() -> None:
    adj, x = random_graph(), numbers(53, WIDTH).detach()
    mean, largest = (softmax_aggregate(adj, x, torch.tensor(beta)) for beta in (1e-6, 1e6))
    for row in range(10):
        messages = neighbours(adj, x, row)
        torch.testing.assert_close(mean[row], messages.mean(0), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(largest[row], messages.amax(0), atol=1e-5, rtol=2e-3)


def test_a_learnt_number_of_any_shape_gets_its_gradient() -> None:
    beta = torch.ones(1, requires_grad=True)
    softmax_aggregate(random_graph(), numbers(53, WIDTH), beta).sum().backward()
    assert beta.grad is not None
    assert beta.grad.shape == (1,)
    fixed = softmax_aggregate(random_graph(), numbers(53, WIDTH), torch.tensor(1.0))
    assert fixed.requires_grad


def test_gradients_are_no_race() -> None:
    torch.set_num_threads(3)
    adj, x, table = large_graph(), numbers(2000, WIDTH), numbers(6, WIDTH, seed=2)
    codes = torch.arange(adj.num_edges, dtype=torch.int32) % 6
    runs = [torch.autograd.grad(message_sum(adj, x, (table, codes)).square().sum(), (x, table)) for _ in range(3)]
    for run in runs[1:]:
        assert all(torch.equal(gradient, first) for gradient, first in zip(run, runs[0], strict=True))


def test_what_does_not_fit_is_refused() -> None:
    adj, x, one = random_graph(), torch.zeros(53, 4), torch.tensor(1.0)
    edges: list[Any] = [
        torch.zeros(399, 4), torch.zeros(400, 3), torch.zeros(400, 4).bfloat16(),
        (torch.zeros(5, 3), torch.zeros(400, dtype=torch.int32)), (torch.zeros(5, 4), torch.zeros(400)),
        (torch.zeros(5, 4), torch.zeros(399, dtype=torch.int32)),
    ]  # fmt: skip
    for edge in edges:
        with pytest.raises(ValueError, match="must be"):
            message_sum(adj, x, edge)
    with pytest.raises(ValueError, match="must be"):
        softmax_aggregate(adj, x[:50], one)
