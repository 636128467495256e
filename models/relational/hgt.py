"""Heterogeneous graph transformer (Hu et al., WWW 2020, https://arxiv.org/abs/2003.01332, section 3)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from configs.registry import MODELS
from models.facts import GraphFacts
from models.kernels.dense.linear import Linear, linear
from models.kernels.sparse.adjacency import Adjacency
from models.kernels.sparse.edge_softmax import edge_softmax
from models.kernels.sparse.spmm import sddmm, weighted_sum
from models.layers.layer import Dropout
from models.relational.base import LayerPlan, RelationalModel, TypedConv
from models.relational.batch import RelationBlock, TypedBlock
from models.relational.configs import HgtConfig
from models.relational.encoders import EdgeTerm


def joined(relations: list[RelationBlock], num_dst: int) -> Adjacency:
    """Return the in-edges of all relations into one type as those of one: sources lie relation by relation."""
    targets = torch.cat([relation.adjacency.targets() for relation in relations])
    starts = [0]
    for relation in relations:
        starts.append(starts[-1] + relation.num_src)
    sources = [relation.indices + start for relation, start in zip(relations, starts, strict=False)]
    order = torch.argsort(targets, stable=True)
    indptr = targets.new_zeros(num_dst + 1)
    indptr[1:] = sum(relation.adjacency.degrees() for relation in relations)
    return Adjacency(indptr.cumsum(0), torch.cat(sources)[order], starts[-1])


class RelationMaps(nn.Module):
    """A relation's own part of keys and values: W_att and W_msg, (H, d, d), and the prior mu, (H,)."""

    def __init__(self, heads: int, dim: int) -> None:
        super().__init__()
        self.attention = nn.Parameter(torch.empty(heads, dim // heads, dim // heads))
        self.message = nn.Parameter(torch.empty(heads, dim // heads, dim // heads))
        self.prior = nn.Parameter(torch.ones(heads))
        for weight in (self.attention, self.message):
            nn.init.xavier_uniform_(weight)

    def forward(self, x: Tensor, key: nn.Linear, value: nn.Linear) -> tuple[Tensor, Tensor]:
        """Return K(x) W_att mu / sqrt(d) and V(x) W_msg, each (n, H, d), of x (n, dim)."""
        scaled = self.attention * (self.prior / math.sqrt(self.attention.shape[1])).view(-1, 1, 1)
        return _through(x, key, scaled), _through(x, value, self.message)


def _through(x: Tensor, first: nn.Linear, second: Tensor) -> Tensor:
    """Return (x A^T + a) B head by head, by one product: both maps are multiplied first, which are smaller than x."""
    heads, dim, out = second.shape
    weight = torch.einsum("hdi,hde->hei", first.weight.view(heads, dim, -1), second).reshape(heads * out, -1)
    bias = torch.einsum("hd,hde->he", first.bias.view(heads, dim), second).flatten()
    return linear(x, weight, bias).view(len(x), heads, out)


class HgtConv(TypedConv):
    """y_v = alpha_t A_t gelu(sum_e a_e M_e) + (1 - alpha_t) x_v, e over the in-edges of all relations, t the type of v.

    a = softmax_e <K_s(x_u) W_att_r, Q_t(x_v)> mu_r / sqrt(d) by head, M_e = V_s(x_u) W_msg_r. The gate alpha =
    sigmoid(skip_t) is that of the authors' code; the paper's equation 5 adds x_v without one. What edges carry is added
    to the sum as the mean U_r f_e of each relation, which the paper does not have; its relative temporal encoding is
    the encoders' ages here.
    """

    def __init__(self, facts: GraphFacts, hop: LayerPlan, config: HgtConfig) -> None:
        super().__init__()
        self.hop, self.heads = hop, config.heads
        dim, ages = config.hidden_dim, config.ages != "none"
        sources = sorted({facts.relation_ends[r][0] for r in hop.relations})
        reached = sorted({facts.relation_ends[r][1] for r in hop.relations})
        self.keys = nn.ModuleDict({str(t): Linear(dim, dim) for t in sources})
        self.values = nn.ModuleDict({str(t): Linear(dim, dim) for t in sources})
        self.queries = nn.ModuleDict({str(t): Linear(dim, dim) for t in reached})
        self.outputs = nn.ModuleDict({str(t): Linear(dim, dim) for t in hop.targets})
        self.skips = nn.ParameterDict({str(t): nn.Parameter(torch.ones(())) for t in hop.targets})
        self.maps = nn.ModuleDict({str(r): RelationMaps(self.heads, dim) for r in hop.relations})
        self.edges = nn.ModuleDict({str(r): EdgeTerm(facts, r, dim, ages=ages) for r in hop.relations})
        self.dropout = Dropout(config.dropout)

    def forward(self, block: TypedBlock, x: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Convolve: x by type (num_src_t, dim) -> by target type (num_dst_t, dim)."""
        y = {}
        for t in self.hop.targets:
            target_rows = x[t][: block.num_dst[t]]
            relations = [r for r in (block.by_number[n] for n in self.hop.relations) if r.target_type == t]
            gathered = self._attend(block, t, relations, x, target_rows) if relations else torch.zeros_like(target_rows)
            for relation in relations:
                term = self.edges[str(relation.number)](relation)
                gathered = gathered if term is None else gathered + term
            gate = torch.sigmoid(self.skips[str(t)])
            y[t] = gate * self.dropout(self.outputs[str(t)](F.gelu(gathered))) + (1 - gate) * target_rows
        return y

    def _attend(
        self, block: TypedBlock, t: int, relations: list[RelationBlock], x: Mapping[int, Tensor], own: Tensor
    ) -> Tensor:
        """Return sum_e a_e M_e for the destinations of type t: (num_dst_t, dim)."""
        adj = block.cached(f"joined {t}", lambda: joined(relations, block.num_dst[t]))
        keys, values = [], []
        for relation in relations:
            source = str(relation.source_type)
            maps = self.maps[str(relation.number)]
            key, value = maps(x[relation.source_type], self.keys[source], self.values[source])
            keys.append(key)
            values.append(value)
        query = self.queries[str(t)](own).view(len(own), self.heads, own.shape[1] // self.heads)
        weight = edge_softmax(adj, sddmm(adj, torch.cat(keys), query))
        return weighted_sum(adj, torch.cat(values), weight).flatten(1)


@MODELS.register("hgt")
class Hgt(RelationalModel):
    """Heterogeneous graph transformer."""

    Config = HgtConfig
    activates = False

    def make_typed_conv(self, hop: LayerPlan) -> TypedConv:
        """Return one convolution."""
        return HgtConv(self.facts, hop, self.config)
