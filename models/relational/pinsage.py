"""PinSAGE (Ying et al., KDD 2018, https://arxiv.org/abs/1806.01973): importance pooling over what walks visit most."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from configs.registry import MODELS
from models.facts import GraphFacts
from models.kernels.dense.linear import Linear
from models.kernels.sparse.spmm import weighted_sum
from models.layers.layer import Dropout
from models.relational.base import LayerPlan, RelationalModel, TypedConv
from models.relational.batch import TypedBlock, visits_number
from models.relational.configs import ImportanceWalksConfig, PinSageConfig


class PinSageConv(TypedConv):
    """y_v = sqrt(d) z / |z|, z = ReLU(W_t [x_v, n_v] + w_t), n_v = sum_u a_vu ReLU(Q_t x_u + q_t), t the type of v.

    a_vu is the share of v's visits that u has, and n_v = 0 where walks from v visit nothing (algorithm 1). The paper's
    rows have length 1; here a mean square of 1, as the maps that follow begin with, else they learn several times
    slower.
    """

    def __init__(self, hop: LayerPlan, dim: int, kind: int, dropout: float) -> None:
        """`kind`: number of the type whose rows are visited."""
        super().__init__()
        self.hop, self.kind = hop, kind
        self.messages = nn.ModuleDict({str(t): Linear(dim, dim) for t in hop.targets})
        self.own = nn.ModuleDict({str(t): Linear(dim, dim) for t in hop.targets})
        self.pooled = nn.ModuleDict({str(t): Linear(dim, dim, bias=False) for t in hop.targets})
        self.dropout = Dropout(dropout)

    def forward(self, block: TypedBlock, x: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Convolve: x by type (num_src_t, dim) -> by target type (num_dst_t, dim)."""
        y: dict[int, Tensor] = {}
        for t in self.hop.targets:
            relation = block.by_number[visits_number(t)]
            messages = torch.relu(self.messages[str(t)](x[self.kind]))
            pooled = weighted_sum(relation.adjacency, self.dropout(messages), relation.weight)
            z = torch.relu(self.own[str(t)](x[t][: block.num_dst[t]]) + self.pooled[str(t)](pooled))
            y[t] = math.sqrt(z.shape[1]) * F.normalize(z, dim=1)
        return y


@MODELS.register("pinsage")
class PinSage(RelationalModel):
    """PinSAGE: of what is recommended, and of entities over what they were linked to and what is near to that."""

    Config = PinSageConfig
    activates = False

    @property
    def walks(self) -> tuple[ImportanceWalksConfig, int] | None:
        """Options of walks, and for how many layers."""
        return self.config.walks, self.config.num_layers

    def plan(self, facts: GraphFacts, num_layers: int) -> list[LayerPlan]:
        """Return a layer's types and relations: rows read what their walks visit, and nothing else."""
        kind = facts.seed_type if facts.rank_type is None else facts.rank_type
        targets = tuple(sorted({facts.seed_type, kind}))
        hop = LayerPlan(targets, tuple(visits_number(t) for t in targets), frozenset(targets))
        return [hop] * num_layers

    def make_typed_conv(self, hop: LayerPlan) -> TypedConv:
        """Return one convolution."""
        facts = self.facts
        kind = facts.seed_type if facts.rank_type is None else facts.rank_type
        return PinSageConv(hop, self.config.hidden_dim, kind, self.config.dropout)
