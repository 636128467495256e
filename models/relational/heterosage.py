"""GraphSAGE (Hamilton et al., NeurIPS 2017, https://arxiv.org/abs/1706.02216, algorithm 1) over typed relations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import Tensor, nn

from configs.registry import MODELS
from models.kernels.dense.linear import Linear
from models.kernels.sparse.spmm import weighted_sum
from models.relational.base import Hop, RelationalModel, TypedConv
from models.relational.configs import HeteroSageConfig
from models.relational.encoders import EdgeTerm

if TYPE_CHECKING:
    from models.facts import GraphFacts
    from models.relational.batch import TypedBlock


class HeteroSageConv(TypedConv):
    """y_v = W_t x_v + b_t + sum_{r into t} (W_r mean_{u in N_r(v)} x_u + U_r mean_e f_e), t the type of v.

    The means are those of the sampled neighbours; a relation in which v has none adds 0.
    """

    def __init__(self, facts: GraphFacts, hop: Hop, dim: int, *, ages: bool) -> None:
        super().__init__()
        self.hop = hop
        self.own = nn.ModuleDict({str(t): Linear(dim, dim) for t in hop.targets})
        self.maps = nn.ModuleDict({str(r): Linear(dim, dim, bias=False) for r in hop.relations})
        self.edges = nn.ModuleDict({str(r): EdgeTerm(facts, r, dim, ages=ages) for r in hop.relations})

    def forward(self, block: TypedBlock, x: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Convolve: x by type (num_src_t, dim) -> by target type (num_dst_t, dim)."""
        y = {t: self.own[str(t)](x[t][: block.num_dst[t]]) for t in self.hop.targets}
        for number in self.hop.relations:
            relation = block.by_number[number]
            adj, t = relation.adjacency, relation.target_type
            mean = weighted_sum(adj, x[relation.source_type], target_scale=adj.degree_scale())
            y[t] = y[t] + self.maps[str(number)](mean)
            term = self.edges[str(number)](relation)
            y[t] = y[t] if term is None else y[t] + term
        return y


@MODELS.register("heterosage")
class HeteroSage(RelationalModel):
    """GraphSAGE by relation."""

    Config = HeteroSageConfig

    def make_typed_conv(self, hop: Hop) -> TypedConv:
        """Return one convolution."""
        return HeteroSageConv(self.facts, hop, self.config.hidden_dim, ages=self.config.ages != "none")
