"""GATv2's fused attention: values and gradients against gather and scatter in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from models.kernels.attention import gatv2_rows
from models.kernels.attention.attention import gatv2_attention, reference_gatv2_attention
from models.kernels.sparse.adjacency import Adjacency
from tests.kernels.graphs import compare, large_graph, numbers, random_graph, symmetric_graph, without_edges


def check(adj: Adjacency, heads: int, dim: int, dtype: torch.dtype = torch.float32, rate: float = 0.0) -> None:
    sources, targets = (numbers(count, heads, dim, dtype=dtype) for count in (adj.num_src, adj.num_dst))
    compare(
        lambda *given: gatv2_attention(adj, *given, 0.2, rate, 7),
        lambda *given: reference_gatv2_attention(adj, *given, 0.2, rate, 7),
        sources, targets, numbers(heads, dim, seed=3), slack=2,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("heads", "dim", "dtype"),
    [(3, 5, torch.float32), (4, 8, torch.bfloat16)],
    ids=["odd", "whole vectors"],
)
def test_values_and_gradients(heads: int, dim: int, dtype: torch.dtype) -> None:
    check(random_graph(), heads, dim, dtype)


def test_a_head_wider_than_a_tile_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gatv2_rows, "_WIDEST", 4)
    check(random_graph(), 3, 5)


def test_ranges_on_several_threads(threads: int) -> None:
    check(large_graph(), 3, 5)


def test_without_edges_or_rows() -> None:
    check(without_edges(), 3, 5)
    check(Adjacency(torch.zeros(1, dtype=torch.int64), torch.zeros(0, dtype=torch.int32), 0), 3, 5)


def test_a_symmetric_graph_is_its_own_transpose_unless_dropout_asks_for_positions() -> None:
    adj = symmetric_graph()
    check(adj, 3, 5)
    assert adj.transposed is None
    check(adj, 3, 5, rate=0.3)


def test_dropout() -> None:
    check(random_graph(), 3, 5, rate=0.4)


def test_huge_scores_do_not_overflow() -> None:
    adj = random_graph()
    whole = [(30 * numbers(*shape, seed=seed).detach()).round() for seed, shape in enumerate([(53, 3, 5), (37, 3, 5)])]
    inputs: list[Tensor] = [value.requires_grad_() for value in (*whole, numbers(3, 5, seed=3).detach().round())]
    compare(
        lambda *given: gatv2_attention(adj, *given, 0.5), lambda *given: reference_gatv2_attention(adj, *given, 0.5),
        *inputs,
    )  # fmt: skip


def test_one_tensor_on_both_sides_collects_both_gradients() -> None:
    adj, attn = symmetric_graph(), numbers(3, 5, seed=3)
    compare(
        lambda x, a: gatv2_attention(adj, x, x, a), lambda x, a: reference_gatv2_attention(adj, x, x, a),
        numbers(40, 3, 5), attn,
    )  # fmt: skip


def test_wider_heads_than_kernels_take_are_computed_all_the_same() -> None:
    check(random_graph(), 1, 600)


def test_gradients_are_no_race() -> None:
    torch.set_num_threads(3)
    adj, inputs = large_graph(), (numbers(2000, 3, 5), numbers(3000, 3, 5, seed=2), numbers(3, 5, seed=3))
    runs = [torch.autograd.grad(gatv2_attention(adj, *inputs).square().sum(), inputs) for _ in range(3)]
    for run in runs[1:]:
        assert all(torch.equal(gradient, first) for gradient, first in zip(run, runs[0], strict=True))


def test_shapes_and_dtypes_must_fit() -> None:
    adj, x, z, attn = random_graph(), torch.zeros(53, 4, 8), torch.zeros(37, 4, 8), torch.zeros(4, 8)
    for given in ((z, z, attn), (x, x, attn), (x, z, torch.zeros(8)), (x, z.bfloat16(), attn), (x[:, 0], z, attn)):
        with pytest.raises(ValueError, match="must be"):
            gatv2_attention(adj, *given)
