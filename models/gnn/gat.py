"""Graph attention: GAT (Veličković et al., ICLR 2018, https://arxiv.org/abs/1710.10903, equations 1 to 6) and GATv2
(Brody et al., ICLR 2022, https://arxiv.org/abs/2105.14491, equation 7), whose attention comes after the LeakyReLU."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from configs.errors import RecipeError
from configs.registry import MODELS
from models.base import GraphModel
from models.block import Block
from models.configs import AttentionConfig, GatConfig, Gatv2Config
from models.facts import GraphFacts
from models.kernels.attention.attention import gat_attention, gatv2_attention, gatv2_scores
from models.kernels.attention.edge_dropout import EdgeDropout
from models.kernels.backends import widen
from models.kernels.dense.linear import Linear, linear
from models.kernels.sparse.adjacency import Adjacency
from models.kernels.sparse.edge_softmax import edge_softmax
from models.kernels.sparse.spmm import weighted_sum
from models.layers.edge_features import AttendedEdges, among_loops
from models.layers.layer import draw_key, own_rows


def with_self_loops(block: Block) -> Adjacency:
    """Return the block's edges and, as the last in-edge of every destination, one from itself; made once a block."""

    def make() -> Adjacency:
        nodes = torch.arange(block.num_dst, dtype=block.indices.dtype, device=block.indices.device)
        indptr = block.indptr + torch.arange(block.num_dst + 1, device=block.indptr.device)
        indices = torch.empty(block.num_edges + block.num_dst, dtype=nodes.dtype, device=nodes.device)
        indices[among_loops(indptr, block.num_edges)] = block.indices
        indices[indptr[1:] - 1] = nodes
        return Adjacency(indptr, indices, block.num_src)

    return block.cached("with_self_loops", make)


class AttentionModel(GraphModel):
    """What GAT and GATv2 share: how many heads a layer has, and how they combine."""

    conv: ClassVar[type[nn.Module]]
    """The convolution of one layer."""
    uses_edge_features = True

    def __init__(self, config: Any, facts: GraphFacts) -> None:
        """Raises RecipeError where heads do not divide a layer's width."""
        self.output = config.output or ("mean" if config.head == "none" else "concat")
        self.output_heads: int = config.output_heads or config.heads
        last_dim = facts.out_dim if config.head == "none" else config.hidden_dim
        for heads, width, option in (
            (config.heads if config.num_layers > 1 else 1, config.hidden_dim, "heads"),
            (self.output_heads if self.output == "concat" else 1, last_dim, "output_heads"),
        ):
            if width % heads:
                raise RecipeError(f"model.{option}={heads} does not divide the layer's width {width}; change one")
        super().__init__(config, facts)

    def make_conv(self, in_dim: int, out_dim: int) -> nn.Module:
        """Return a convolution whose heads stand side by side."""
        heads: int = self.config.heads
        return self.conv(in_dim, heads, out_dim // heads, mean=False, config=self.config, edges=self.edge_facts)

    def make_last_conv(self, in_dim: int, out_dim: int) -> nn.Module:
        """Return the last convolution."""
        heads, mean, edges = self.output_heads, self.output == "mean", self.edge_facts
        dim = out_dim if mean else out_dim // heads
        return self.conv(in_dim, heads, dim, mean=mean, config=self.config, edges=edges)


class AttentionConv(nn.Module):
    """What attention convolutions share: which edges, dropout's key, how heads combine, the bias, edge features.

    Where edges carry features f, <e^h, U^h f_uv> is added to a head's score and U^h f_uv to its message.
    """

    returns_own_rows = True

    def __init__(
        self, heads: int, dim: int, *, mean: bool, config: AttentionConfig, edges: GraphFacts | None = None
    ) -> None:
        """`edges`: of a graph whose edge features are read."""
        super().__init__()
        self.heads, self.dim, self.mean = heads, dim, mean
        self.rate, self.slope, self.self_loops = config.attention_dropout, config.negative_slope, config.self_loops
        self.bias = nn.Parameter(torch.zeros(dim if mean else heads * dim))
        self.carried = None if edges is None else AttendedEdges(edges, heads, dim)

    def split(self, x: Tensor) -> Tensor:
        """View (n, heads * dim) as (n, heads, dim)."""
        return x.view(len(x), self.heads, self.dim)

    def edges(self, block: Block) -> Adjacency:
        """Return the edges that are attended to."""
        return with_self_loops(block) if self.self_loops else block.adjacency

    def drop(self) -> dict[str, Any]:
        """Return rate and key of the coefficients' dropout, a new key each time."""
        active = self.training and self.rate > 0
        return {"dropout": self.rate if active else 0.0, "key": draw_key() if active else 0}

    def attend(self, block: Block, z: Tensor, scores: Tensor) -> Tensor:
        """Sum messages z (num_src, H, dim) and those of edge features by scores of nodes, float32 (E, H).

        Numbers for each edge and head are kept, which attention without edge features does not.
        """
        assert self.carried is not None
        adj, drop = self.edges(block), self.drop()
        attention = edge_softmax(adj, scores)
        if drop["dropout"]:
            attention = attention * EdgeDropout.of(drop["dropout"], drop["key"]).mask(attention)
        return weighted_sum(adj, z, attention) + self.carried.messages(block, adj, attention).to(z.dtype)

    def combine(self, y: Tensor) -> Tensor:
        """Combine heads: (n, heads, dim) -> (n, dim) or (n, heads * dim)."""
        return (y.mean(1) if self.mean else y.flatten(1)) + self.bias.to(y.dtype)


class GatConv(AttentionConv):
    """y_v = combine_h sum_{u in N(v) + v} a_uv^h W^h x_u, a = softmax_u LeakyReLU(<s^h, W^h x_u> + <t^h, W^h x_v>)."""

    def __init__(
        self, in_dim: int, heads: int, dim: int, *, mean: bool, config: AttentionConfig, edges: GraphFacts | None = None
    ) -> None:
        super().__init__(heads, dim, mean=mean, config=config, edges=edges)
        self.linear = Linear(in_dim, heads * dim, bias=False)
        self.source = nn.Parameter(torch.empty(heads, dim))
        self.target = nn.Parameter(torch.empty(heads, dim))
        for weight in (self.linear.weight, self.source, self.target):
            nn.init.xavier_uniform_(weight)

    def forward(self, block: Block, x: Tensor) -> Tensor:
        """Convolve: x (num_src, in_dim) -> (num_dst, dim or heads * dim)."""
        # <s, W x> = <W^T s, x>: the scores come from the narrow side, without products of the size of z.
        weight = self.linear.weight.view(self.heads, self.dim, -1)
        folded = torch.cat([(weight * vector.unsqueeze(2)).sum(1) for vector in (self.source, self.target)])
        z, (score_src, score_dst) = self.split(self.linear(x)), linear(x, folded).chunk(2, 1)
        score_dst = own_rows(block, score_dst)
        if self.carried is not None:
            adj = self.edges(block)
            ends = score_src.index_select(0, adj.indices), score_dst.index_select(0, adj.targets())
            sums = widen(ends[0]) + widen(ends[1]) + self.carried.scores(block, adj)
            return self.combine(self.attend(block, z, F.leaky_relu(sums, self.slope)))
        y = gat_attention(self.edges(block), z, score_src, score_dst, self.slope, **self.drop())
        return self.combine(y)


@MODELS.register("gat")
class Gat(AttentionModel):
    """GAT: neighbours weighted by learnt attention."""

    reads_degrees = False

    Config = GatConfig
    conv = GatConv


class Gatv2Conv(AttentionConv):
    """y_v = combine_h sum_{u in N(v) + v} a_uv^h W_s^h x_u, a = softmax_u <a^h, LeakyReLU(W_s^h x_u + W_t^h x_v)>."""

    def __init__(
        self, in_dim: int, heads: int, dim: int, *, mean: bool, config: Gatv2Config, edges: GraphFacts | None = None
    ) -> None:
        super().__init__(heads, dim, mean=mean, config=config, edges=edges)
        self.source = Linear(in_dim, heads * dim)
        self.target = Linear(in_dim, heads * dim)
        self.attention = nn.Parameter(torch.empty(heads, dim))
        for weight in (self.source.weight, self.target.weight, self.attention):
            nn.init.xavier_uniform_(weight)

    def forward(self, block: Block, x: Tensor) -> Tensor:
        """Convolve: x (num_src, in_dim) -> (num_dst, dim or heads * dim)."""
        source, target = self.split(self.source(x)), self.split(self.target(own_rows(block, x)))
        if self.carried is not None:
            adj = self.edges(block)
            scores = gatv2_scores(adj, source, target, self.attention, self.slope) + self.carried.scores(block, adj)
            return self.combine(self.attend(block, source, scores))
        y = gatv2_attention(self.edges(block), source, target, self.attention, self.slope, **self.drop())
        return self.combine(y)


@MODELS.register("gatv2")
class Gatv2(AttentionModel):
    """GATv2: attention that ranks neighbours differently for each node."""

    reads_degrees = False

    Config = Gatv2Config
    conv = Gatv2Conv
