"""GraphSAGE (Hamilton et al., NeurIPS 2017, https://arxiv.org/abs/1706.02216, algorithm 1) over typed relations."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor, nn

from configs.registry import MODELS
from models.facts import GraphFacts
from models.kernels.dense.linear import Linear
from models.kernels.sparse.adjacency import Adjacency
from models.kernels.sparse.spmm import weighted_sum
from models.relational.base import LayerPlan, RelationalModel, TypedConv
from models.relational.batch import RelationBlock, TypedBlock
from models.relational.configs import HeteroSageConfig
from models.relational.encoders import EdgeTerm


def stacked_relations(
    relations: list[RelationBlock], num_src: int, num_own: int
) -> tuple[Adjacency, Tensor, list[int]]:
    """Return several relations out of one type as one, so that their means are a single product.

    Args:
        relations: those out of the type.
        num_src: rows of the type.
        num_own: how many of these are wanted as they are; they come first, as a relation of an edge to itself.

    Returns:
        The edges, destinations relation by relation; float32 (rows,), 1 / number of in-edges; and the rows of each.
    """
    first = relations[0].indices if relations else torch.empty(0, dtype=torch.int32)
    loops = torch.arange(num_own, dtype=first.dtype, device=first.device)
    counts = torch.cat([torch.ones_like(loops, dtype=torch.int64), *(r.adjacency.degrees() for r in relations)])
    indptr = counts.new_zeros(len(counts) + 1)
    torch.cumsum(counts, 0, out=indptr[1:])
    indices = torch.cat([loops, *(relation.indices for relation in relations)])
    sizes = [num_own, *(relation.adjacency.num_dst for relation in relations)]
    return Adjacency(indptr, indices, num_src), counts.clamp(min=1).to(torch.float32).reciprocal(), sizes


class HeteroSageConv(TypedConv):
    """y_v = W_t x_v + b_t + sum_{r into t} (W_r mean_{u in N_r(v)} x_u + U_r mean_e f_e), t the type of v.

    The means are those of the sampled neighbours; a relation in which v has none adds 0.
    """

    def __init__(self, facts: GraphFacts, hop: LayerPlan, dim: int, *, ages: bool) -> None:
        super().__init__()
        self.hop = hop
        self.own = nn.ModuleDict({str(t): Linear(dim, dim) for t in hop.targets})
        self.maps = nn.ModuleDict({str(r): Linear(dim, dim, bias=False) for r in hop.relations})
        self.edges = nn.ModuleDict({str(r): EdgeTerm(facts, r, dim, ages=ages) for r in hop.relations})

    def forward(self, block: TypedBlock, x: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Convolve: x by type (num_src_t, dim) -> by target type (num_dst_t, dim)."""
        y: dict[int, Tensor] = {}
        means: dict[int, Tensor] = {}
        for source in sorted(self.hop.sources):
            relations = [r for r in block.relations if r.number in self.hop.relations and r.source_type == source]
            is_target = source in self.hop.targets
            num_own = block.num_dst[source] if is_target else 0
            make = partial(stacked_relations, relations, block.num_src[source], num_own)
            adj, scale, sizes = block.cached(f"stack of {source}", make)
            target_rows, *relation_means = torch.split(weighted_sum(adj, x[source], target_scale=scale), sizes)
            if is_target:
                y[source] = self.own[str(source)](target_rows)
            means |= {relation.number: mean for relation, mean in zip(relations, relation_means, strict=True)}
        for number in self.hop.relations:
            relation = block.by_number[number]
            t = relation.target_type
            y[t] += self.maps[str(number)](means[number])
            term = self.edges[str(number)](relation)
            if term is not None:
                y[t] += term
        return y


@MODELS.register("heterosage")
class HeteroSage(RelationalModel):
    """GraphSAGE by relation."""

    Config = HeteroSageConfig

    def make_typed_conv(self, hop: LayerPlan) -> TypedConv:
        """Return one convolution."""
        return HeteroSageConv(self.facts, hop, self.config.hidden_dim, ages=self.config.ages != "none")
