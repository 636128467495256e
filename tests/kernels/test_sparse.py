"""Kernels on edges, ends of edges, pairs and groups of rows: values and gradients against float64."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from models.kernels.attention import attention, gatv2_rows
from models.kernels.attention.edge_dropout import EdgeDropout
from models.kernels.attention.heads import head_tiles
from models.kernels.backends import choose
from models.kernels.simd.vector import WIDEST
from models.kernels.sparse.adjacency import Adjacency
from models.kernels.sparse.edge_softmax import edge_softmax, reference_edge_softmax
from models.kernels.sparse.message import (
    message_sum,
    reference_message_sum,
    reference_softmax_aggregate,
    softmax_aggregate,
)
from models.kernels.sparse.pairs import pair_product, reference_pair_product
from models.kernels.sparse.product import multiply, multiply_torch
from models.kernels.sparse.segment import reference_segment_reduce, segment_broadcast, segment_reduce
from models.kernels.sparse.spmm import dot_edges, reference_sddmm, sddmm, weighted_sum
from tests.kernels.graphs import (
    compare,
    large_graph,
    numbers,
    random_graph,
    reference_spmm,
    spmm,
    symmetric_graph,
    without_edges,
)

F32, BF16 = torch.float32, torch.bfloat16


class Operator(NamedTuple):
    """A kernel and its reference, each of a graph and `inputs`, which have a letter for each dimension.

    s(ources), d(estinations), e(dges), h(eads), w(idth), c(odes); "-" is one number.
    """

    fast: Callable[..., Tensor]
    reference: Callable[..., Tensor]
    inputs: str
    scale: float = 1.0
    slack: float = 1.0
    distinct: bool = False
    """Columns without equal numbers, exact in bfloat16: a maximum has one source."""

    def draw(self, adj: Adjacency, heads: int = 3, width: int = 7, dtype: torch.dtype = F32) -> list[Tensor]:
        sizes = {"s": adj.num_src, "d": adj.num_dst, "e": adj.num_edges, "h": heads, "w": width, "c": 6}
        shapes = [[sizes[letter] for letter in word if letter != "-"] for word in self.inputs.split()]
        if self.distinct:
            return [torch.rand(*shape).argsort(0).to(dtype).requires_grad_() for shape in shapes]
        drawn = [self.scale * numbers(*shape, seed=seed).detach() for seed, shape in enumerate(shapes, 1)]
        return [rows.to(dtype if rows.dim() else F32).requires_grad_() for rows in drawn]

    def check(self, adj: Adjacency, *given: Tensor) -> None:
        compare(partial(self.fast, adj), partial(self.reference, adj), *given, slack=self.slack)


def both(fast: Callable[..., Tensor], reference: Callable[..., Tensor], inputs: str, **others: Any) -> Operator:
    kept = {name: others.pop(name) for name in ("scale", "slack", "distinct") if name in others}
    return Operator(partial(fast, **others), partial(reference, **others), inputs, **kept)


def one(name: Callable[..., Any], inputs: str, fast: Any, reference: Any, **kept: Any) -> Operator:
    """An operator whose arguments `name(operator, adj, *inputs)` puts in order."""
    return Operator(partial(name, fast), partial(name, reference), inputs, **kept)


def codes(adj: Adjacency) -> Tensor:
    """Each edge's row of a table, whose first row no edge has."""
    generator = torch.Generator().manual_seed(4)
    return torch.randint(1, 6, (adj.num_edges,), generator=generator, dtype=torch.int32)


def scales(adj: Adjacency) -> tuple[Tensor, Tensor]:
    return torch.linspace(0.5, 2, adj.num_src), torch.linspace(2, 0.5, adj.num_dst)


def scaled_reference(adj: Adjacency, x: Tensor, weight: Tensor) -> Tensor:
    source, target = scales(adj)
    return reference_spmm(adj, x * source[:, None], weight) * target[:, None]


def pairs_of(adj: Adjacency) -> Tensor:
    """A hub, loops and repeated ones."""
    return torch.stack([adj.indices.long(), adj.targets() % max(adj.num_src, 1)])


def by_table(operator: Any, adj: Adjacency, x: Tensor, table: Tensor, *beta: Tensor) -> Tensor:
    made: Tensor = operator(adj, x, *beta, (table, codes(adj)))
    return made


def of_offsets(reduce: str) -> Operator:
    return one(lambda op, adj, x: op(x, adj.indptr, reduce), "ew", segment_reduce, reference_segment_reduce,
               distinct=reduce == "max")  # fmt: skip


GAT = attention.gat_attention, attention.reference_gat_attention
GATV2 = attention.gatv2_attention, attention.reference_gatv2_attention
SOFTMAX = softmax_aggregate, reference_softmax_aggregate
OPERATORS = {
    "sum": both(spmm, reference_spmm, "sw"),
    "sum of heads": both(spmm, reference_spmm, "shw"),
    "mean": both(spmm, reference_spmm, "sw", reduce="mean"),
    "max": both(spmm, reference_spmm, "sw", reduce="max", distinct=True),
    "weighted sum": both(spmm, reference_spmm, "sw e"),
    "one weight for all heads": both(spmm, reference_spmm, "shw e", reduce="mean"),
    "a weight for each head": both(spmm, reference_spmm, "shw eh", reduce="mean"),
    "scaled sum": Operator(lambda adj, x, w: weighted_sum(adj, x, w, *scales(adj)), scaled_reference, "sw e"),
    "columns": one(lambda op, adj, x: op(adj, x.t()), "ws", spmm, reference_spmm),
    "dot products": both(sddmm, reference_sddmm, "shw dhw"),
    "dot products of rows": both(sddmm, reference_sddmm, "sw dw"),
    "edge softmax": both(edge_softmax, reference_edge_softmax, "eh", scale=30.0),
    "messages": both(message_sum, reference_message_sum, "sw", scale=3.0),
    "messages of edges": both(message_sum, reference_message_sum, "sw ew", scale=3.0),
    "messages of a table": one(by_table, "sw cw", message_sum, reference_message_sum),
    # m - y and the temperature's gradient cancel, as a score's gradient does below.
    "softmax": both(*SOFTMAX, "sw -", scale=3.0, slack=4),
    "softmax of edges": one(lambda op, adj, x, edge, beta: op(adj, x, beta, edge), "sw ew -", *SOFTMAX, slack=4),
    "softmax of a table": one(by_table, "sw cw -", *SOFTMAX, slack=4),
    "gat": both(*GAT, "shw sh dh", scale=3.0, slack=2),
    "gat of slope 0": both(*GAT, "shw sh dh", scale=3.0, slack=2, negative_slope=0.0),
    "gat of slope 1.5": both(*GAT, "shw sh dh", scale=3.0, slack=2, negative_slope=1.5),
    "gat with dropout": both(*GAT, "shw sh dh", scale=3.0, slack=2, dropout=0.4, key=-(1 << 63)),
    "gatv2": both(*GATV2, "shw dhw hw", slack=2),
    "gatv2 with dropout": both(*GATV2, "shw dhw hw", slack=2, dropout=0.99, key=3),
    "gatv2 of one table": one(lambda op, adj, x, a: op(adj, x, x[: adj.num_dst], a), "shw hw", *GATV2, slack=2),
    "gatv2 scores": both(attention.gatv2_scores, attention.reference_gatv2_scores, "shw dhw hw", slack=20,
                         negative_slope=0.1),  # of sums over all edges
    "pairs": one(lambda op, adj, x: op(x, pairs_of(adj)), "sw", pair_product, reference_pair_product),
    "pairs of a slice": one(lambda op, adj, x: op(x[:, 2:6], pairs_of(adj).flip(0)), "sw", pair_product,
                            reference_pair_product),
    "pooled sum": of_offsets("sum"),
    "pooled mean": of_offsets("mean"),
    "pooled max": of_offsets("max"),
    "broadcast": Operator(lambda adj, x: segment_broadcast(x, adj.indptr),
                          lambda adj, x: x.repeat_interleave(adj.indptr.diff(), 0), "dw"),
}  # fmt: skip
GRAPHS: dict[str, Adjacency] = {
    "random": random_graph(),
    "gaps": Adjacency(torch.tensor([0, 0, 5, 6, 6, 6, 19, 20, 20]), torch.arange(20, dtype=torch.int32) * 7 % 9, 9),
    "no edges": without_edges(),
    "no sources": Adjacency(torch.zeros(4, dtype=torch.int64), torch.zeros(0, dtype=torch.int32), 0),
    "no rows": Adjacency(torch.zeros(1, dtype=torch.int64), torch.zeros(0, dtype=torch.int32), 0),
    "symmetric": symmetric_graph(),
}
OF_FLOAT32_ALWAYS = ("dot products", "dot products of rows", "gatv2 scores")


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("name", OPERATORS)
def test_values_and_gradients(name: str, graph: str) -> None:
    adj = GRAPHS[graph]
    if name == "gatv2 of one table" and adj.num_dst > adj.num_src:
        pytest.skip("destinations are sources")
    OPERATORS[name].check(adj, *OPERATORS[name].draw(adj))


@pytest.mark.parametrize(
    ("name", "heads", "width", "dtype"),
    [
        *(("sum", 1, width, dtype) for width in (1, 100, WIDEST + 44) for dtype in (F32, BF16)),
        ("max", 1, WIDEST // 2 + 7, F32),
        ("dot products", 1, WIDEST + 7, F32),
        ("edge softmax", 1, 1, F32),
        ("edge softmax", 4, 1, BF16),
        ("messages", 1, WIDEST + 20, F32),
        ("gat", 4, 8, BF16),
        ("gat", 2, 320, F32),  # heads in parts
        ("gatv2", 4, 8, BF16),
        ("gatv2", 1, 600, F32),  # wider heads than kernels take
        ("gatv2 scores", 4, 8, BF16),
        ("gatv2 scores", 1, 600, F32),
        ("pairs", 1, WIDEST + 7, F32),
        ("pairs", 1, 100, BF16),
        *((name, 3, 7, BF16) for name in ("mean", "max", "dot products", "messages of a table", "softmax of a table")),
        *((f"pooled {reduce}", 1, 7, BF16) for reduce in ("sum", "mean", "max")),
        ("broadcast", 1, 7, BF16),
    ],
)
def test_widths_and_dtypes(name: str, heads: int, width: int, dtype: torch.dtype) -> None:
    operator, adj = OPERATORS[name], random_graph()
    given = operator.draw(adj, heads, width, dtype)
    assert operator.fast(adj, *given).dtype == (F32 if name in OF_FLOAT32_ALWAYS else dtype)
    operator.check(adj, *given)


def test_weights_of_bfloat16_rows_and_bfloat16_scores() -> None:
    adj = random_graph()
    OPERATORS["weighted sum"].check(adj, numbers(53, 7, dtype=BF16), numbers(400, seed=2))
    x, *scores = OPERATORS["gat"].draw(adj, 4, 8)
    OPERATORS["gat"].check(adj, x.detach().bfloat16().requires_grad_(), *scores)


@pytest.mark.parametrize("dtype", [F32, BF16, torch.float64])
@pytest.mark.parametrize("graph", ["random", "no edges", "no sources"])
def test_no_columns_give_an_empty_result(graph: str, dtype: torch.dtype) -> None:
    for name, operator in OPERATORS.items():
        if "one table" in name or "slice" in name or name == "columns":
            continue
        given = operator.draw(GRAPHS[graph], 2, 0, dtype)
        made = operator.fast(GRAPHS[graph], *given)
        assert made.shape == operator.reference(GRAPHS[graph], *given).shape, name
        made.sum().backward()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    "name",
    ["sum", "max", "messages of a table", "softmax of edges", "gat", "gatv2", "gatv2 scores", "pairs", "pooled sum",
     "broadcast"],
)  # fmt: skip
def test_ranges_on_several_threads(name: str, threads: int) -> None:
    adj = large_graph()
    assert len(adj.chunks()) == (2 if threads == 1 else 13)
    OPERATORS[name].check(adj, *OPERATORS[name].draw(adj))


@pytest.mark.parametrize("name", ["gat", "gatv2", "messages of a table"])
def test_gradients_are_no_race(name: str) -> None:
    torch.set_num_threads(3)
    adj, operator = large_graph(), OPERATORS[name]
    given = operator.draw(adj)
    first, *others = [torch.autograd.grad(operator.fast(adj, *given).square().sum(), given) for _ in range(3)]
    for run in others:
        assert all(torch.equal(gradient, same) for gradient, same in zip(run, first, strict=True))


@pytest.mark.parametrize("name", ["sum", "softmax", "gat", "gatv2"])
def test_a_symmetric_graph_is_its_own_transpose(name: str) -> None:
    """Unless weights, edges' rows or dropout ask for positions of edges: those are compared above."""
    adj = symmetric_graph()
    OPERATORS[name].check(adj, *OPERATORS[name].draw(adj))
    assert adj.transposed is None


@pytest.mark.parametrize("name", ["weighted sum", "dot products", "edge softmax", "pairs"])
def test_gradients_of_float64_are_right(name: str) -> None:
    adj, operator = random_graph(5, 4, 9), OPERATORS[name]
    given = [rows.detach().double().requires_grad_() for rows in operator.draw(adj, 2, 3)]
    assert torch.autograd.gradcheck(partial(operator.fast, adj), given)


HUB = Adjacency(torch.tensor([0, 5000, 5002, 5002]), torch.arange(5002, dtype=torch.int32) % 4, 5)
"""A hub among the destinations, and among the sources: none has fewer than a thousand edges."""
BETA = torch.tensor(1.5)
HALVES = {
    **{name: OPERATORS[name] for name in ("messages", "messages of edges", "max", "edge softmax", "pairs", "pooled sum",
                                          "pooled mean", "broadcast")},
    "dot products": both(dot_edges, reference_sddmm, "sw dw"),
    "softmax": both(*SOFTMAX, "sw", beta=BETA),
    # Scores of both signs.
    "gat": one(lambda op, adj, x, src, dst: op(adj, x, 4 * src - 4, dst - 1), "shw sh dh", *GAT),
    "gatv2": one(lambda op, adj, x, dst, attn: op(adj, x, dst - 2, attn), "shw dhw hw", *GATV2),
}  # fmt: skip


@pytest.mark.parametrize("name", HALVES)
def test_many_numbers_of_16_bits_are_added_up_exactly(name: str) -> None:
    """Where rows go through torch's functions, as on a GPU, and on a CPU float16: in 16 bits sums end near 2048."""
    operator = HALVES[name]
    shapes = [rows.shape for rows in operator.draw(HUB, 2, 50 if name == "dot products" else 3)]
    generator = torch.Generator().manual_seed(1)
    given = [(torch.rand(shape, generator=generator) + 0.5).half().requires_grad_() for shape in shapes]
    exact = [rows.detach().double().requires_grad_() for rows in given]
    assert choose(given[0]) == "torch"
    y, expected = operator.fast(HUB, *given), operator.reference(HUB, *exact)
    assert y.dtype == (F32 if name in OF_FLOAT32_ALWAYS else torch.float16)
    change = (torch.rand(y.shape, generator=generator) + 0.5).to(y.dtype)  # no sums that cancel
    gradients = torch.autograd.grad(y, given, change)
    assert all(gradient.dtype == torch.float16 for gradient in gradients)
    expected_gradients = torch.autograd.grad(expected, exact, change.double())
    for value, other in zip((y, *gradients), (expected, *expected_gradients), strict=True):
        atol = 1e-3 * min(1.0, float(other.detach().abs().max()))
        torch.testing.assert_close(value.detach().double(), other.detach(), rtol=2e-3, atol=atol)


@pytest.mark.parametrize("weighted", [False, True])
def test_products_of_float32_rows_are_not_rounded_by_autocast(weighted: bool) -> None:
    """As a GPU computes them; on a CPU kernels do, which autocast knows nothing of."""
    adj, x = random_graph(12, 17, 80), numbers(17, 3).detach() * 1e5
    weight: Any = numbers(80, seed=2).detach() if weighted else None
    expected = multiply_torch(adj, x, weight, None, None, None)
    with torch.autocast("cpu", dtype=BF16):
        assert torch.equal(multiply_torch(adj, x, weight, None, None, None), expected)


@pytest.mark.parametrize("heads", [1, 3])
def test_torch_s_sparse_matrices_give_the_same(heads: int) -> None:
    """The path of other devices, on the CPU."""
    adj, x, weight = random_graph(), numbers(53, heads, 7).detach(), numbers(400, heads).detach()
    edges = torch.randperm(400, dtype=torch.int32)
    for given in ((weight, edges, *scales(adj)), (weight, None, None, None), (None, None, *scales(adj))):
        torch.testing.assert_close(multiply_torch(adj, x, *given), multiply(adj, x, *given))


def test_equal_sources_and_nan_of_a_maximum() -> None:
    """The first of equal sources has the gradient."""
    adj = Adjacency(torch.tensor([0, 4]), torch.tensor([2, 0, 1, 0], dtype=torch.int32), 3)
    x = torch.tensor([[1.0, -1.0, 5.0], [1.0, -1.0, 5.0], [0.0, -1.0, 5.0]], requires_grad=True)
    (gradient,) = torch.autograd.grad(spmm(adj, x, reduce="max").sum(), x)
    assert gradient.tolist() == [[1, 0, 0], [0, 0, 0], [0, 1, 1]]
    x = torch.tensor([[torch.nan, 1.0, 1.0], [1.0, torch.nan, 2.0], [2.0, 2.0, torch.nan]])
    assert spmm(adj, x, reduce="max").isnan().all()


def test_weights_of_a_destination_sum_to_one() -> None:
    adj = random_graph()
    is_reached = (adj.degrees() > 0).float()[:, None]
    sums = torch.zeros(37, 3).index_add(0, adj.targets(), edge_softmax(adj, numbers(400, 3) * 100))
    torch.testing.assert_close(sums, is_reached.expand(37, 3))
    y = attention.gat_attention(adj, torch.ones(53, 3, 5), *OPERATORS["gat"].draw(adj)[1:])
    torch.testing.assert_close(y, is_reached[..., None].expand_as(y))


@pytest.mark.parametrize("beta", [-2.0, 0.0])
def test_other_temperatures(beta: float) -> None:
    OPERATORS["softmax"].check(random_graph(), 3 * numbers(53, 7), torch.tensor(beta, requires_grad=True))


def test_limits_of_a_softmax_are_the_mean_and_the_maximum() -> None:
    adj, x = random_graph(), numbers(53, 7).detach()
    messages = [x[adj.indices[low:high].long()].relu() for low, high in adj.indptr[:11].unfold(0, 2, 1).tolist()]
    mean, largest = (softmax_aggregate(adj, x, torch.tensor([beta]))[:10] for beta in (1e-6, 1e6))
    torch.testing.assert_close(mean, torch.stack([rows.mean(0) for rows in messages]), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(largest, torch.stack([rows.amax(0) for rows in messages]), atol=1e-5, rtol=2e-3)
    beta = torch.ones(1, requires_grad=True)
    softmax_aggregate(adj, x, beta).sum().backward()
    assert beta.grad.shape == (1,), "a learnt number may be of any shape"


@pytest.mark.parametrize("name", ["gat", "gatv2"])
def test_huge_scores_do_not_overflow(name: str) -> None:
    operator = both(*(GAT if name == "gat" else GATV2), "", slack=2, negative_slope=0.5)
    rows = [row.detach() for row in OPERATORS[name].draw(random_graph())]
    factors = (1.0, 1000.0, 1000.0) if name == "gat" else (30.0, 30.0, 1.0)
    given = [(factor * row).round().requires_grad_() for factor, row in zip(factors, rows, strict=True)]
    operator.check(random_graph(), *given)


def test_a_head_wider_than_a_tile_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gatv2_rows, "_WIDEST", 4)
    OPERATORS["gatv2"].check(random_graph(), *OPERATORS["gatv2"].draw(random_graph()))


def test_dropout_keeps_its_share_and_depends_on_the_key_alone() -> None:
    weights = torch.ones(50_000, 3)
    masks = {key: EdgeDropout.of(0.3, key).mask(weights) for key in (0, 1, 1 << 40)}
    for mask in masks.values():
        kept = mask > 0
        assert kept.float().mean(0).tolist() == pytest.approx([0.7] * 3, abs=0.01)
        assert float(mask.max()) == pytest.approx(1 / 0.7)
        unrelated = (kept[1:] == kept[:-1]).float().mean()  # neighbours
        assert float(unrelated) == pytest.approx(0.58, abs=0.01)
    for first, second in ((0, 1), (0, 1 << 40), (1, 1 << 40)):
        same = ((masks[first] > 0) == (masks[second] > 0)).float().mean()
        assert float(same) == pytest.approx(0.7**2 + 0.3**2, abs=0.01)
    assert torch.equal(EdgeDropout.of(0.3, 1).mask(weights), masks[1])
    assert EdgeDropout.of(1 - 1e-15, 0).mask(weights).isfinite().all()
    for rate in (-0.1, 1.0):
        with pytest.raises(ValueError, match="rate"):
            EdgeDropout.of(rate, 0)


@pytest.mark.parametrize(("heads", "dim"), [(1, 1), (8, 8), (5, 33), (3, 256), (1, 257), (2, 512), (9, 50)])
def test_tiles_of_heads_cover_a_row_once(heads: int, dim: int) -> None:
    for splits in (True, False):
        columns: list[int] = []
        for tile in head_tiles(heads, dim, 256, splits):
            assert tile.first == tile.column // dim
            assert tile.heads.count * tile.heads.dim <= (256 if splits else max(256, dim))
            columns += range(tile.column, tile.column + tile.heads.count * tile.heads.dim)
        assert columns == list(range(heads * dim))
