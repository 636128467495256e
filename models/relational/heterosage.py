"""GraphSAGE (Hamilton et al., NeurIPS 2017, https://arxiv.org/abs/1706.02216, algorithm 1) over typed relations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import Tensor, nn

from configs.registry import MODELS
from models.kernels.dense.linear import Linear
from models.relational.base import LayerPlan, RelationalModel, TypedConv
from models.relational.configs import HeteroSageConfig
from models.relational.encoders import EdgeTerm
from models.relational.stacking import stack_of

if TYPE_CHECKING:
    from models.facts import GraphFacts
    from models.relational.batch import TypedBlock


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
            target_rows, *relation_means = stack_of(block, source, relations, own=source in self.hop.targets).means(
                x[source]
            )
            if source in self.hop.targets:
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
