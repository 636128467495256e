"""GAT's fused attention: values and gradients against gather and scatter in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from models.kernels.attention.attention import gat_attention, reference_gat_attention
from models.kernels.attention.edge_dropout import EdgeDropout
from models.kernels.attention.heads import head_tiles
from models.kernels.sparse.adjacency import Adjacency
from tests.kernels.graphs import compare, large_graph, numbers, random_graph, symmetric_graph, without_edges


def scores(count: int, heads: int, seed: int, scale: float = 3.0) -> Tensor:
    return (scale * numbers(count, heads, seed=seed).detach()).requires_grad_()


def check(adj: Adjacency, x: Tensor, scale: float = 3.0, slope: float = 0.2, rate: float = 0.0, key: int = 0) -> None:
    heads = x.shape[1]
    inputs = x, scores(adj.num_src, heads, 2, scale), scores(adj.num_dst, heads, 3, scale)
    compare(
        lambda *given: gat_attention(adj, *given, slope, rate, key),
        lambda *given: reference_gat_attention(adj, *given, slope, rate, key),
        *inputs,
        slack=2,  # a score's gradient is the difference of two products
    )


@pytest.mark.parametrize(
    ("heads", "dim", "dtype"),
    [(3, 5, torch.float32), (4, 8, torch.bfloat16), (2, 320, torch.float32)],
    ids=["odd", "whole vectors", "heads in parts"],
)
def test_values_and_gradients(heads: int, dim: int, dtype: torch.dtype) -> None:
    check(random_graph(), numbers(53, heads, dim, dtype=dtype))


def test_ranges_on_several_threads(threads: int) -> None:
    check(large_graph(), numbers(2000, 3, 5))


def test_without_edges_or_rows() -> None:
    check(without_edges(), numbers(3, 3, 5))
    check(Adjacency(torch.zeros(1, dtype=torch.int64), torch.zeros(0, dtype=torch.int32), 0), numbers(0, 3, 5))


def test_a_symmetric_graph_is_its_own_transpose_unless_dropout_asks_for_positions() -> None:
    adj = symmetric_graph()
    check(adj, numbers(40, 3, 5))
    assert adj.transposed is None
    check(adj, numbers(40, 3, 5), rate=0.3)


@pytest.mark.parametrize("slope", [0.0, 1.5])
def test_slopes(slope: float) -> None:
    check(random_graph(), numbers(53, 3, 5), slope=slope)


def test_huge_scores_do_not_overflow() -> None:
    adj = random_graph()
    whole = [(1000 * scores(count, 3, seed).detach().round()).requires_grad_() for count, seed in ((53, 2), (37, 3))]
    compare(
        lambda *given: gat_attention(adj, *given, 0.5), lambda *given: reference_gat_attention(adj, *given, 0.5),
        numbers(53, 3, 5), *whole,
    )  # fmt: skip


def test_weights_of_a_destination_sum_to_one() -> None:
    adj = random_graph()
    y = gat_attention(adj, torch.ones(53, 3, 5), scores(53, 3, 2), scores(37, 3, 3))
    expected = (adj.degrees() > 0).float().view(-1, 1, 1).expand_as(y)
    torch.testing.assert_close(y, expected)


def test_scores_may_be_bfloat16_too() -> None:
    adj, x = random_graph(), numbers(53, 4, 8, dtype=torch.bfloat16)
    inputs = [scores(count, 4, seed).detach().bfloat16().requires_grad_() for count, seed in ((53, 2), (37, 3))]
    compare(lambda *given: gat_attention(adj, *given), lambda *given: reference_gat_attention(adj, *given), x, *inputs)


def test_dropout() -> None:
    check(random_graph(), numbers(53, 3, 5), rate=0.4, key=-(1 << 63))
    check(random_graph(), numbers(53, 3, 5), rate=0.99, key=3)


def test_dropout_keeps_its_share_and_depends_on_the_key_alone() -> None:
    weights = torch.ones(50_000, 3)
    masks = {key: EdgeDropout.of(0.3, key).mask(weights) for key in (0, 1, 1 << 40)}
    for mask in masks.values():
        assert (mask > 0).float().mean(0).tolist() == pytest.approx([0.7] * 3, abs=0.01)
        assert float(mask.max()) == pytest.approx(1 / 0.7)
        kept = mask > 0
        assert float((kept[1:] == kept[:-1]).float().mean()) == pytest.approx(
            0.58, abs=0.01
        )  # neighbours are unrelated
    for first, second in ((0, 1), (0, 1 << 40), (1, 1 << 40)):
        same = ((masks[first] > 0) == (masks[second] > 0)).float().mean()
        assert float(same) == pytest.approx(0.7**2 + 0.3**2, abs=0.01)
    assert torch.equal(EdgeDropout.of(0.3, 1).mask(weights), masks[1])
    assert EdgeDropout.of(1 - 1e-15, 0).mask(weights).isfinite().all()
    for rate in (-0.1, 1.0):
        with pytest.raises(ValueError, match="rate"):
            EdgeDropout.of(rate, 0)


def test_gradients_are_no_race() -> None:
    torch.set_num_threads(3)
    adj, inputs = large_graph(), (numbers(2000, 3, 5), scores(2000, 3, 2), scores(3000, 3, 3))
    runs = [torch.autograd.grad(gat_attention(adj, *inputs).square().sum(), inputs) for _ in range(3)]
    for run in runs[1:]:
        assert all(torch.equal(gradient, first) for gradient, first in zip(run, runs[0], strict=True))


@pytest.mark.parametrize(("heads", "dim"), [(1, 1), (8, 8), (5, 33), (3, 256), (1, 257), (2, 512), (9, 50)])
def test_tiles_cover_a_row_once(heads: int, dim: int) -> None:
    for splits in (True, False):
        columns: list[int] = []
        for tile in head_tiles(heads, dim, 256, splits):
            assert tile.first == tile.column // dim
            assert tile.heads.count * tile.heads.dim <= (256 if splits else max(256, dim))
            columns += range(tile.column, tile.column + tile.heads.count * tile.heads.dim)
        assert columns == list(range(heads * dim))


def test_shapes_must_fit() -> None:
    adj, x = random_graph(), torch.zeros(53, 4, 8)
    for given in (
        (torch.zeros(52, 4, 8), torch.zeros(53, 4), torch.zeros(37, 4)),
        (torch.zeros(53, 32), torch.zeros(53, 4), torch.zeros(37, 4)),
        (x, torch.zeros(53, 3), torch.zeros(37, 4)),
        (x, torch.zeros(53, 4), torch.zeros(37, 3)),
        (x, torch.zeros(53, 4), torch.zeros(53, 4)),
    ):
        with pytest.raises(ValueError, match="must be"):
            gat_attention(adj, *given)
