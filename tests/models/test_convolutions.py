"""Convolutions and their gradients against dense matrices in plain torch, in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from configs.registry import MODELS
from models.block import Block
from models.dgl import adapter as dgl_adapter
from models.dgl.conv import block_handle
from models.facts import GraphFacts
from models.gnn.deepgcn import GenConv
from models.gnn.gat import GatConv, Gatv2Conv
from models.gnn.gcn import GcnConv
from models.gnn.gin import GinConv
from models.gnn.graphsage import SageConv
from models.gnn.rgcn import RelationalConv
from models.layers.encoders import EdgeEncoder
from tests.support import WITHOUT_DGL

EDGE_FACTS = GraphFacts("node", 3, 1, feature_dim=1, edge_feature_dim=2, edge_categories=(3, 2))
BOND_FACTS = GraphFacts("node", 3, 1, feature_dim=1, edge_categories=(3, 2))
PLAIN_FACTS = GraphFacts("node", 3, 1, feature_dim=1)


def make_block(num_dst: int, num_src: int, num_edges: int, *, sampled: bool, seed: int = 0) -> Block:
    """Random edges with repetitions, self-loops and destinations without any; `sampled` adds true degrees."""
    rng = np.random.default_rng(seed)
    dst = np.sort(rng.integers(0, max(1, num_dst - 2), num_edges))  # the last two have no in-edges
    src = rng.integers(0, num_src, num_edges)
    indptr = np.searchsorted(dst, np.arange(num_dst + 1)).astype(np.int64)
    block = Block(torch.from_numpy(indptr), torch.from_numpy(src.astype(np.int32)), num_src)
    if sampled:
        extra = torch.from_numpy(rng.integers(0, 4, num_src).astype(np.float32))
        block.degree = extra + torch.cat([block.counts, torch.ones(num_src - num_dst)])
        block.degree[num_dst - 1] = 0
    block.edge_feat = torch.from_numpy(rng.standard_normal((num_edges, 2)))
    block.edge_feat_cat = torch.from_numpy(rng.integers(0, [3, 2], (num_edges, 2)))
    block.edge_type = torch.from_numpy(rng.integers(0, 2, num_edges))  # of three
    return block


BLOCKS: dict[str, Callable[[], Block]] = {
    "whole": lambda: make_block(11, 11, 40, sampled=False),
    "sampled": lambda: make_block(5, 13, 17, sampled=True),
    "no edges": lambda: make_block(3, 3, 0, sampled=False),
    "one node": lambda: make_block(1, 1, 2, sampled=False),
}


def destinations(block: Block) -> Tensor:
    return torch.repeat_interleave(torch.arange(block.num_dst), block.indptr[1:] - block.indptr[:-1])


def adjacency(block: Block) -> Tensor:
    """(num_dst, num_src): how many edges."""
    matrix = torch.zeros(block.num_dst, block.num_src, dtype=torch.float64)
    return matrix.index_put((destinations(block), block.indices), torch.ones(1, dtype=torch.float64), accumulate=True)


def true_over_sampled(block: Block) -> Tensor:
    counts = adjacency(block).sum(1)
    true = counts if block.degree is None else block.degree[: block.num_dst].double()
    return torch.where(counts > 0, true / counts.clamp(min=1), 0.0)[:, None]


def edge_rows(maps: Any, block: Block) -> Tensor | None:
    """What each edge adds, (E, D)."""
    if maps is None:
        return None
    assert block.edge_feat is not None
    rows = maps.categories.table[block.edge_feat_cat[:, 0]] + maps.categories.table[3 + block.edge_feat_cat[:, 1]]
    linear = maps.linear if isinstance(maps, EdgeEncoder) else maps.numbers
    return rows if linear is None else rows + linear(block.edge_feat)  # type: ignore[no-any-return]


def into(block: Block) -> Tensor:
    """(num_dst, E): 1 where an edge ends."""
    return (torch.arange(block.num_dst)[:, None] == destinations(block)[None]).double()


def dense_sage(conv: SageConv, block: Block, x: Tensor) -> Tensor:
    a = adjacency(block)
    counts = a.sum(1, keepdim=True)
    if conv.aggregator == "mean":
        neighbors = a @ x / counts.clamp(min=1)
    elif conv.aggregator == "sum":
        neighbors = a @ x * true_over_sampled(block)
    else:
        assert conv.pool is not None
        masked = torch.where(a[:, :, None] > 0, conv.pool(x)[None], float("-inf")).amax(1)
        neighbors = torch.where(counts > 0, masked, 0.0)
    y = x[: block.num_dst] @ conv.own.weight.T + conv.own.bias + neighbors @ conv.neighbor.weight.T
    rows = edge_rows(conv.edges, block)
    if rows is None:
        return y
    scale = true_over_sampled(block) if conv.aggregator == "sum" else 1 / counts.clamp(min=1)
    return y + into(block) @ rows * scale


def dense_gcn(conv: GcnConv, block: Block, x: Tensor) -> Tensor:
    degree = adjacency(block).sum(1) if block.degree is None else block.degree.double()
    a = adjacency(block) * true_over_sampled(block)
    a = a + torch.eye(block.num_dst, block.num_src, dtype=torch.float64)
    norm = (degree + 1).rsqrt()
    y = (norm[: block.num_dst, None] * a * norm) @ x @ conv.linear.weight.T + conv.bias
    rows = edge_rows(conv.edges, block)
    if rows is None:
        return y
    rows = rows * norm[block.indices.long()][:, None]
    return y + into(block) @ rows * true_over_sampled(block) * norm[: block.num_dst, None]


def dense_gin(conv: GinConv, block: Block, x: Tensor) -> Tensor:
    messages, extra = x[block.indices.long()], edge_rows(conv.edges, block)
    sums = into(block) @ (messages if extra is None else torch.relu(messages + extra))
    return conv.mlp((1 + conv.eps) * x[: block.num_dst] + sums * true_over_sampled(block))


def dense_relational(conv: RelationalConv, block: Block, x: Tensor) -> Tensor:
    y = x[: block.num_dst] @ conv.own.weight.T + conv.own.bias
    maps = conv.maps if conv.coefficients is None else torch.tensordot(conv.coefficients, conv.maps, 1)
    for relation, matrix in enumerate(maps):
        chosen = block.edge_type == relation
        assert isinstance(chosen, Tensor)
        a = torch.zeros(block.num_dst, block.num_src, dtype=torch.float64)
        ends = (destinations(block)[chosen], block.indices[chosen])
        a = a.index_put(ends, torch.ones(1, dtype=torch.float64), accumulate=True)
        y = y + a @ x / a.sum(1, keepdim=True).clamp(min=1) @ matrix
    return y


def gen_conv(edges: bool, **options: Any) -> Callable[[int, int], nn.Module]:
    config = MODELS.config({"name": "deepgcn", **options})
    return lambda i, o: GenConv(i, o, EDGE_FACTS if edges else PLAIN_FACTS, config)  # type: ignore[arg-type]


def edge_by_edge_gen(conv: GenConv, block: Block, x: Tensor) -> Tensor:
    messages, extra = x[block.indices.long()], edge_rows(conv.edges, block)
    messages = torch.relu(messages if extra is None else messages + extra) + 1e-7
    rows = []
    for v, (low, high) in enumerate(block.indptr.unfold(0, 2, 1).tolist()):
        m = messages[low:high]
        if conv.beta is not None:
            rows.append((torch.softmax(conv.beta * m, 0) * m).sum(0))
        elif conv.aggregator == "max":
            rows.append(m.amax(0) if high > low else torch.zeros_like(x[0]))
        else:
            scale = 1 / max(high - low, 1) if conv.aggregator == "mean" else true_over_sampled(block)[v]
            rows.append(m.sum(0) * scale)
    return conv.mlp(x[: block.num_dst] + torch.stack(rows))


def gat_conv(kind: Any, edges: GraphFacts | None = None, **options: Any) -> Callable[[int, int], nn.Module]:
    """Two heads: side by side where they fit, else their mean."""
    config = MODELS.config({"name": "gat" if kind is GatConv else "gatv2", **options})
    mean = bool(options.get("output"))
    return lambda i, o: kind(i, 2 if mean else 1, o, mean=mean, config=config, edges=edges)


def dense_attention(conv: Any, block: Block, x: Tensor) -> Tensor:
    a = adjacency(block)
    if conv.self_loops:
        a = a + torch.eye(block.num_dst, block.num_src, dtype=torch.float64)
    heads = []
    for h in range(conv.heads):
        columns = slice(h * conv.dim, (h + 1) * conv.dim)
        if isinstance(conv, GatConv):
            z = x @ conv.linear.weight[columns].T
            scores = nn.functional.leaky_relu(z @ conv.source[h] + (z[: block.num_dst] @ conv.target[h])[:, None], 0.2)
        else:
            z = x @ conv.source.weight[columns].T + conv.source.bias[columns]
            own = x[: block.num_dst] @ conv.target.weight[columns].T + conv.target.bias[columns]
            scores = nn.functional.leaky_relu(z[None] + own[:, None], 0.2) @ conv.attention[h]
        weights = a * (scores - scores.max()).exp()
        heads.append(weights @ z / weights.sum(1, keepdim=True).clamp(min=1e-30))
    return (torch.stack(heads).mean(0) if conv.mean else torch.cat(heads, 1)) + conv.bias


def edge_by_edge_attention(conv: Any, block: Block, x: Tensor) -> Tensor:
    """Scores and messages of edges one after the other; an edge that is there for attention alone carries nothing."""
    rows = edge_rows(conv.carried, block).view(  # type: ignore[union-attr]
        -1, conv.heads, conv.dim
    )
    if isinstance(conv, GatConv):
        z = (x @ conv.linear.weight.T).view(-1, conv.heads, conv.dim)
        own = z
    else:
        z, own = ((x @ one.weight.T + one.bias).view(-1, conv.heads, conv.dim) for one in (conv.source, conv.target))
    scores: list[list[Tensor]] = [[] for _ in range(block.num_dst)]
    messages: list[list[Tensor]] = [[] for _ in range(block.num_dst)]
    edges = list(zip(block.indices.tolist(), destinations(block).tolist(), rows, strict=True))
    loops = [(v, v, torch.zeros_like(z[0])) for v in range(block.num_dst)] if conv.self_loops else []
    for u, v, row in edges + loops:
        extra = (conv.carried.vector * row).sum(1)
        if isinstance(conv, GatConv):
            score = (conv.source * z[u]).sum(1) + (conv.target * own[v]).sum(1) + extra
            scores[v].append(nn.functional.leaky_relu(score, 0.2))
        else:
            scores[v].append((conv.attention * nn.functional.leaky_relu(z[u] + own[v], 0.2)).sum(1) + extra)
        messages[v].append(z[u] + row)
    sums = [
        (torch.softmax(torch.stack(scores[v]), 0)[:, :, None] * torch.stack(messages[v])).sum(0)
        if scores[v]
        else 0 * z.sum(0)
        for v in range(block.num_dst)
    ]
    y = torch.stack(sums)
    return (y.mean(1) if conv.mean else y.flatten(1)) + conv.bias


CASES: dict[str, tuple[Callable[[int, int], nn.Module], Callable[..., Tensor]]] = {
    "sage-mean": (lambda i, o: SageConv(i, o, "mean"), dense_sage),
    "sage-sum": (lambda i, o: SageConv(i, o, "sum"), dense_sage),
    "sage-max": (lambda i, o: SageConv(i, o, "max"), dense_sage),
    "gcn": (GcnConv, dense_gcn),
    "sage-mean-edges": (lambda i, o: SageConv(i, o, "mean", EDGE_FACTS), dense_sage),
    "sage-sum-bonds": (lambda i, o: SageConv(i, o, "sum", BOND_FACTS), dense_sage),
    "sage-max-edges": (lambda i, o: SageConv(i, o, "max", EDGE_FACTS), dense_sage),
    "gcn-edges": (lambda i, o: GcnConv(i, o, EDGE_FACTS), dense_gcn),
    "gat-edges": (gat_conv(GatConv, EDGE_FACTS), edge_by_edge_attention),
    "gat-bonds": (gat_conv(GatConv, BOND_FACTS, output="mean", self_loops=False), edge_by_edge_attention),
    "gatv2-edges": (gat_conv(Gatv2Conv, EDGE_FACTS, output="mean"), edge_by_edge_attention),
    "gatv2-bonds": (gat_conv(Gatv2Conv, BOND_FACTS), edge_by_edge_attention),
    "rgcn": (lambda i, o: RelationalConv(i, o, 3, None), dense_relational),
    "rgcn-bases": (lambda i, o: RelationalConv(i, o, 3, 2), dense_relational),
    "gin": (lambda i, o: GinConv(i, o, PLAIN_FACTS), dense_gin),
    "gin-edges": (lambda i, o: GinConv(i, o, EDGE_FACTS), dense_gin),
    "gin-bonds": (lambda i, o: GinConv(i, o, BOND_FACTS), dense_gin),
    "gat": (gat_conv(GatConv), dense_attention),
    "gat-mean": (gat_conv(GatConv, output="mean", self_loops=False), dense_attention),
    "gatv2": (gat_conv(Gatv2Conv), dense_attention),
    "gatv2-mean": (gat_conv(Gatv2Conv, output="mean"), dense_attention),
    "gen-softmax": (gen_conv(True, beta=0.7, learn_aggregator=True), edge_by_edge_gen),
    "gen-softmax-plain": (gen_conv(False), edge_by_edge_gen),
    "gen-mean": (gen_conv(True, aggregator="mean", mlp_layers=2), edge_by_edge_gen),
    "gen-sum": (gen_conv(True, aggregator="sum"), edge_by_edge_gen),
    "gen-max": (gen_conv(False, aggregator="max"), edge_by_edge_gen),
}


@pytest.mark.parametrize("width", [(4, 3), (3, 5)], ids=["narrowing", "widening"])
@pytest.mark.parametrize("shape", BLOCKS)
@pytest.mark.parametrize("case", CASES)
def test_convolution_and_gradient(case: str, shape: str, width: tuple[int, int]) -> None:
    torch.manual_seed(1)
    make, dense = CASES[case]
    # eval: batch norm over one row has no variance, and its statistics are not what is compared here
    conv, block = make(*width).double().eval(), BLOCKS[shape]()
    for parameter in conv.parameters():
        parameter.data += 0.1 * torch.rand_like(parameter)
    outcomes = []
    weights = torch.randn(block.num_dst, width[1], dtype=torch.float64)
    start = torch.randn(block.num_src, width[0], dtype=torch.float64)
    for run in (lambda x: conv(block, x), lambda x: dense(conv, block, x)):
        x = start.clone().requires_grad_()
        conv.zero_grad()
        y: Tensor = run(x)
        (y * weights).sum().backward()
        gradients = {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in conv.named_parameters()}
        outcomes.append((y.detach(), x.grad, gradients))
    assert outcomes[0][0].shape == (block.num_dst, width[1])
    torch.testing.assert_close(*outcomes, rtol=1e-5, atol=1e-6)  # degrees and scales are float32


@pytest.mark.parametrize("shape", ["whole", "sampled"])
@pytest.mark.parametrize("case", [case for case in CASES if not case.startswith("gen")])
def test_kernels_say_what_plain_torch_says(case: str, shape: str) -> None:
    """In float32, weighted where that can be, and with dropout of attention."""
    torch.manual_seed(1)
    conv, block = CASES[case][0](16, 8).train(not case.startswith("gin")), BLOCKS[shape]()
    if hasattr(conv, "rate"):
        conv.rate = 0.3
    block.edge_feat = block.edge_feat.float()  # type: ignore[union-attr]
    if case.startswith(("gcn", "sage-mean")):
        block.weight = torch.rand(block.num_edges)
    x = torch.randn(block.num_src, 16)
    outcomes = []
    for kind in (torch.float32, torch.float64):
        torch.manual_seed(2)
        own, rows = conv.to(kind), x.to(kind, copy=True).requires_grad_()
        moved = replace(block, edge_feat=block.edge_feat.to(kind))
        own.zero_grad()
        y = own(moved, rows)
        y.square().sum().backward()
        gradients = {name: p.grad.to(torch.float32, copy=True) for name, p in own.named_parameters()}  # type: ignore[union-attr]
        outcomes.append((y.detach().float(), rows.grad.float(), gradients))  # type: ignore[union-attr]
    torch.testing.assert_close(outcomes[0][:2], outcomes[1][:2], rtol=1e-4, atol=1e-5)
    # What parameters get is summed over all edges, and much of attention's cancels: it rounds by the largest term.
    largest = max(float(gradient.abs().max()) for gradient in outcomes[1][2].values())
    torch.testing.assert_close(outcomes[0][2], outcomes[1][2], rtol=1e-4, atol=1e-6 * max(10.0, largest))


def test_attention_with_and_without_loops_reads_one_block() -> None:
    """A graph stays in memory for several models."""
    torch.manual_seed(1)
    block, x = BLOCKS["whole"](), torch.randn(11, 4, dtype=torch.float64)
    for self_loops in (True, False):
        conv = gat_conv(GatConv, EDGE_FACTS, self_loops=self_loops)(4, 6).double()
        torch.testing.assert_close(conv(block, x), edge_by_edge_attention(conv, BLOCKS["whole"](), x))


@pytest.mark.parametrize("case", ["sage-mean", "gcn", "gat", "gatv2"])
def test_edges_that_carry_zeros_are_edges_that_carry_nothing(case: str) -> None:
    """The same weights, without their own of edges: the fused way, and the one that keeps numbers of edges."""
    torch.manual_seed(1)
    makers = {"sage-mean": lambda e: SageConv(8, 6, "mean", e), "gcn": lambda e: GcnConv(8, 6, e)}
    makers |= {name: lambda e, k=kind: gat_conv(k, e)(8, 6) for name, kind in (("gat", GatConv), ("gatv2", Gatv2Conv))}
    facts, block = GraphFacts("node", 3, 1, feature_dim=1, edge_feature_dim=2), BLOCKS["whole"]()
    reading, plain = makers[case](facts), makers[case](None)
    plain.load_state_dict(reading.state_dict(), strict=False)
    block.edge_feat = torch.zeros(block.num_edges, 2)
    x = torch.randn(block.num_src, 8)
    torch.testing.assert_close(reading(block, x), plain(block, x))


@pytest.mark.skipif(WITHOUT_DGL, reason="DGL has no wheel for this Python")
def test_the_dgl_block_is_the_same_graph() -> None:
    block = make_block(5, 13, 17, sampled=True)
    handle: Any = block_handle(block)
    assert (handle.num_src_nodes(), handle.num_dst_nodes(), handle.num_edges()) == (13, 5, 17)
    src, dst, edge = handle.edges(form="all", order="eid")
    assert torch.equal(edge, torch.arange(17))
    assert torch.equal(src, block.indices.long())
    assert torch.equal(dst, destinations(block))
    assert dgl_adapter.import_mode() in ("native", "stand-in")


def test_a_block_that_moves_to_where_it_is_stays_itself() -> None:
    """Else the whole graph would lose its DGL handle at every step."""
    block = make_block(4, 4, 5, sampled=False)
    assert block.to(torch.device("cpu")) is block
    away = block.to(torch.device("meta"))
    assert away.indices.device.type == "meta"
    assert away.to(torch.device("meta")) is away
    assert block.indices.device.type == "cpu"
