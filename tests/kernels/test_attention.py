"""Fused attention, GAT's and GATv2's: values and gradients against gather and scatter in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from models.kernels.attention import gatv2_rows
from models.kernels.attention.attention import (
    gat_attention,
    gatv2_attention,
    gatv2_scores,
    reference_gat_attention,
    reference_gatv2_attention,
    reference_gatv2_scores,
)
from models.kernels.attention.edge_dropout import EdgeDropout
from models.kernels.attention.heads import head_tiles
from models.kernels.sparse.adjacency import Adjacency
from tests.kernels.graphs import compare, large_graph, numbers, random_graph, symmetric_graph, without_edges

ATTENTION: dict[str, Any] = {
    "gat": (gat_attention, reference_gat_attention),
    "gatv2": (gatv2_attention, reference_gatv2_attention),
}
both = pytest.mark.parametrize("kind", ATTENTION)


def scores(count: int, heads: int, seed: int, scale: float = 3.0) -> Tensor:
    return (scale * numbers(count, heads, seed=seed).detach()).requires_grad_()


def inputs_of(kind: str, adj: Adjacency, heads: int, dim: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Sources' rows, and the scores of both ends or the destinations' rows and the vectors that score."""
    x = numbers(adj.num_src, heads, dim, dtype=dtype)
    if kind == "gat":
        return [x, scores(adj.num_src, heads, 2), scores(adj.num_dst, heads, 3)]
    return [x, numbers(adj.num_dst, heads, dim, dtype=dtype, seed=2), numbers(heads, dim, seed=3)]


def check(kind: str, adj: Adjacency, *given: Tensor, slope: float = 0.2, rate: float = 0.0, key: int = 7) -> None:
    fused, reference = ATTENTION[kind]
    compare(
        lambda *rows: fused(adj, *rows, slope, rate, key),
        lambda *rows: reference(adj, *rows, slope, rate, key),
        *given,
        slack=2,  # a score's gradient is the difference of two products
    )


@pytest.mark.parametrize(
    ("kind", "heads", "dim", "dtype"),
    [
        ("gat", 3, 5, torch.float32),
        ("gat", 4, 8, torch.bfloat16),
        ("gat", 2, 320, torch.float32),  # heads in parts
        ("gatv2", 3, 5, torch.float32),
        ("gatv2", 4, 8, torch.bfloat16),
        ("gatv2", 1, 600, torch.float32),  # wider heads than kernels take
    ],
)
def test_values_and_gradients(kind: str, heads: int, dim: int, dtype: torch.dtype) -> None:
    adj = random_graph()
    check(kind, adj, *inputs_of(kind, adj, heads, dim, dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("heads", "dim"), [(1, 6), (3, 5), (8, 6), (1, 600)])
@pytest.mark.parametrize("sizes", [(37, 53, 400), (7, 7, 0), (3000, 2000, 30_000)])
def test_scores_of_edges(sizes: tuple[int, int, int], heads: int, dim: int, dtype: torch.dtype) -> None:
    """GATv2's, for attention that knows more of an edge than its ends."""
    adj = random_graph(*sizes)
    given = inputs_of("gatv2", adj, heads, dim, dtype)
    assert gatv2_scores(adj, *given).dtype == torch.float32
    compare(
        lambda *rows: gatv2_scores(adj, *rows, 0.1), lambda *rows: reference_gatv2_scores(adj, *rows, 0.1),
        *given, slack=20,  # of sums over all edges
    )  # fmt: skip


def test_a_head_wider_than_a_tile_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gatv2_rows, "_WIDEST", 4)
    check("gatv2", random_graph(), *inputs_of("gatv2", random_graph(), 3, 5))


@both
def test_ranges_on_several_threads(kind: str, threads: int) -> None:
    check(kind, large_graph(), *inputs_of(kind, large_graph(), 3, 5))


@both
def test_without_edges_or_rows(kind: str) -> None:
    nothing = Adjacency(torch.zeros(1, dtype=torch.int64), torch.zeros(0, dtype=torch.int32), 0)
    for adj in (without_edges(), nothing):
        check(kind, adj, *inputs_of(kind, adj, 3, 5))


@both
def test_a_symmetric_graph_is_its_own_transpose_unless_dropout_asks_for_positions(kind: str) -> None:
    adj = symmetric_graph()
    check(kind, adj, *inputs_of(kind, adj, 3, 5))
    assert adj.transposed is None
    check(kind, adj, *inputs_of(kind, adj, 3, 5), rate=0.3)


@pytest.mark.parametrize("slope", [0.0, 1.5])
def test_slopes(slope: float) -> None:
    check("gat", random_graph(), *inputs_of("gat", random_graph(), 3, 5), slope=slope)


@both
def test_huge_scores_do_not_overflow(kind: str) -> None:
    x, *others = inputs_of(kind, random_graph(), 3, 5)
    if kind == "gat":
        given = [x, *(1000 * other for other in others)]
    else:
        given = [30 * x, 30 * others[0], others[1]]
    rounded = [row.detach().round() if kind == "gatv2" or at else row.detach() for at, row in enumerate(given)]
    check(kind, random_graph(), *(row.requires_grad_() for row in rounded), slope=0.5)


def test_one_tensor_on_both_sides_collects_both_gradients() -> None:
    adj = symmetric_graph()
    compare(
        lambda x, a: gatv2_attention(adj, x, x, a), lambda x, a: reference_gatv2_attention(adj, x, x, a),
        numbers(40, 3, 5), numbers(3, 5, seed=3),
    )  # fmt: skip


def test_weights_of_a_destination_sum_to_one() -> None:
    adj = random_graph()
    y = gat_attention(adj, torch.ones(53, 3, 5), scores(53, 3, 2), scores(37, 3, 3))
    expected = (adj.degrees() > 0).float().view(-1, 1, 1).expand_as(y)
    torch.testing.assert_close(y, expected)


def test_scores_may_be_bfloat16_too() -> None:
    x, *others = inputs_of("gat", random_graph(), 4, 8, torch.bfloat16)
    check("gat", random_graph(), x, *(other.detach().bfloat16().requires_grad_() for other in others))


@both
@pytest.mark.parametrize(("rate", "key"), [(0.4, -(1 << 63)), (0.99, 3)])
def test_dropout(kind: str, rate: float, key: int) -> None:
    check(kind, random_graph(), *inputs_of(kind, random_graph(), 3, 5), rate=rate, key=key)


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


@both
def test_gradients_are_no_race(kind: str) -> None:
    torch.set_num_threads(3)
    adj, inputs = large_graph(), inputs_of(kind, large_graph(), 3, 5)
    runs = [torch.autograd.grad(ATTENTION[kind][0](adj, *inputs).square().sum(), inputs) for _ in range(3)]
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


def test_shapes_and_dtypes_must_fit() -> None:
    adj, x, z, attn = random_graph(), torch.zeros(53, 4, 8), torch.zeros(37, 4, 8), torch.zeros(4, 8)
    sources, targets = torch.zeros(53, 4), torch.zeros(37, 4)
    for given in (
        (torch.zeros(52, 4, 8), sources, targets),
        (torch.zeros(53, 32), sources, targets),
        (x, torch.zeros(53, 3), targets),
        (x, sources, torch.zeros(37, 3)),
        (x, sources, sources),
    ):
        with pytest.raises(ValueError, match="must be"):
            gat_attention(adj, *given)
    for given in ((z, z, attn), (x, x, attn), (x, z, torch.zeros(8)), (x, z.bfloat16(), attn), (x[:, 0], z, attn)):
        with pytest.raises(ValueError, match="must be"):
            gatv2_attention(adj, *given)
        with pytest.raises(ValueError, match=r"x_src, x_dst and attn|one dtype"):
            gatv2_scores(adj, *given)
