"""Relational graph attention (Busbridge et al., 2019, https://arxiv.org/abs/1904.05811), within relations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from configs.registry import MODELS
from models.facts import GraphFacts
from models.kernels.attention.attention import gat_attention
from models.kernels.dense.linear import Linear, linear
from models.layers.layer import draw_key
from models.relational.base import LayerPlan, RelationalModel, TypedConv
from models.relational.batch import RelationBlock, TypedBlock
from models.relational.configs import RgatConfig
from models.relational.encoders import EdgeTerm


class RelationAttention(nn.Module):
    """z_v = concat_h sum_{u in N_r(v)} a_uv^h W_r^h x_u, a = softmax_u LeakyReLU(<s_r^h, W_r^h x_u> + <t_r^h, x_v>).

    The paper's attention within relations with additive logits (WIRGAT, equations 4 to 6); where it reads a destination
    by W_r too, t_r reads it directly, for its type may be another one than the sources'.
    """

    def __init__(self, dim: int, config: Any) -> None:
        super().__init__()
        self.heads: int = config.heads
        self.rate, self.slope = config.attention_dropout, config.negative_slope
        self.map = Linear(dim, dim, bias=False)
        self.source = nn.Parameter(torch.empty(self.heads, dim // self.heads))
        self.target = nn.Parameter(torch.empty(self.heads, dim))
        for weight in (self.map.weight, self.source, self.target):
            nn.init.xavier_uniform_(weight)

    def forward(self, relation: RelationBlock, x: Tensor, x_dst: Tensor) -> Tensor:
        """Attend: x (num_src, dim), x_dst (num_dst, dim) -> (num_dst, dim)."""
        # <s, W x> = <W^T s, x>
        weight = self.map.weight.view(self.heads, -1, x.shape[1])
        z, score_src = self.map(x), linear(x, (weight * self.source.unsqueeze(2)).sum(1))
        score_dst = linear(x_dst, self.target)
        active = self.training and self.rate > 0
        y = gat_attention(
            relation.adjacency,
            z.view(len(z), *self.source.shape),
            score_src,
            score_dst,
            self.slope,
            dropout=self.rate if active else 0.0,
            key=draw_key() if active else 0,
        )
        return y.flatten(1)


class RgatConv(TypedConv):
    """y_v = W_t x_v + b_t + sum_{r into t} (z_v of `RelationAttention` + U_r mean_e f_e), t the type of v."""

    def __init__(self, facts: GraphFacts, hop: LayerPlan, config: Any) -> None:
        super().__init__()
        self.hop = hop
        dim, ages = config.hidden_dim, config.ages != "none"
        self.own = nn.ModuleDict({str(t): Linear(dim, dim) for t in hop.targets})
        self.attention = nn.ModuleDict({str(r): RelationAttention(dim, config) for r in hop.relations})
        self.edges = nn.ModuleDict({str(r): EdgeTerm(facts, r, dim, ages=ages) for r in hop.relations})

    def forward(self, block: TypedBlock, x: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Convolve: x by type (num_src_t, dim) -> by target type (num_dst_t, dim)."""
        target_rows = {t: x[t][: block.num_dst[t]] for t in self.hop.targets}
        y = {t: self.own[str(t)](target_rows[t]) for t in self.hop.targets}
        for number in self.hop.relations:
            relation = block.by_number[number]
            t = relation.target_type
            y[t] = y[t] + self.attention[str(number)](relation, x[relation.source_type], target_rows[t])
            term = self.edges[str(number)](relation)
            y[t] = y[t] if term is None else y[t] + term
        return y


@MODELS.register("rgat")
class Rgat(RelationalModel):
    """GAT by relation."""

    Config = RgatConfig

    def make_typed_conv(self, hop: LayerPlan) -> TypedConv:
        """Return one convolution."""
        return RgatConv(self.facts, hop, self.config)
