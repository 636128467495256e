"""Graph isomorphism network (Xu et al., ICLR 2019, https://arxiv.org/abs/1810.00826, eq. 4.1), as in OGB's examples."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from configs.registry import MODELS
from models.base import GraphModel
from models.block import Batch, Block, aggregate
from models.configs import GinConfig
from models.facts import GraphFacts
from models.kernels.dense.linear import Linear
from models.kernels.sparse.message import message_sum
from models.kernels.sparse.segment import segment_broadcast, segment_reduce
from models.layers.encoders import EdgeEncoder
from models.layers.layer import FusedSequential, VirtualNode, hidden_layers, own_rows, refuse_without_graphs


class GinConv(nn.Module):
    """y_v = MLP((1 + eps) x_v + sum_{u in N(v)} m_uv), eps learnt.

    m_uv = x_u, or ReLU(x_u + e_uv) where edges carry features (Hu et al., https://arxiv.org/abs/1905.12265).
    """

    def __init__(self, in_dim: int, out_dim: int, facts: GraphFacts) -> None:
        super().__init__()
        self.eps = nn.Parameter(torch.zeros(1))
        self.edges = EdgeEncoder(facts, in_dim) if facts.has_edge_features else None
        hidden = hidden_layers(in_dim, 2 * out_dim, 1, "relu", norm="batch")
        self.mlp = FusedSequential(*hidden, Linear(2 * out_dim, out_dim))

    def forward(self, block: Block, x: Tensor) -> Tensor:
        """Convolve: x (num_src, in_dim) -> (num_dst, out_dim)."""
        if self.edges is None:
            summed = aggregate(block, x, "sum")
        else:
            summed = message_sum(block.adjacency, x, self.edges(block, x.dtype))
            summed = summed if block.scale is None else summed * block.scale.unsqueeze(1).to(x.dtype)
        return self.mlp((1 + self.eps).to(x.dtype) * own_rows(block, x) + summed)


@MODELS.register("gin")
class Gin(GraphModel):
    """GIN: sums over neighbours through MLPs, with edge features and an optional virtual node; made for molecules."""

    reads_degrees = False

    uses_edge_features = True
    project_inputs = True

    Config = GinConfig

    def __init__(self, config: Any, facts: GraphFacts) -> None:
        """Raises RecipeError for a virtual node without graphs."""
        super().__init__(config, facts)
        self.virtual: nn.ModuleList | None = None
        if config.virtual_node:
            refuse_without_graphs(facts)
            self.start = nn.Parameter(torch.zeros(1, config.hidden_dim))
            count = config.num_layers - 1
            self.virtual = nn.ModuleList(VirtualNode(config.hidden_dim, config.dropout) for _ in range(count))

    def make_conv(self, in_dim: int, out_dim: int) -> nn.Module:
        """Return one convolution."""
        return GinConv(in_dim, out_dim, self.facts)

    @property
    def is_layered(self) -> bool:
        """Without virtual nodes, who see all nodes of a graph between layers."""
        return self.virtual is None

    def represent(self, batch: Batch) -> Tensor:
        """Return nodes as vectors, the virtual nodes' messages included."""
        if self.virtual is None:
            return super().represent(batch)
        offsets = batch.graph_offsets
        assert offsets is not None
        state = self.start.expand(len(offsets) - 1, -1)
        x = self.encoder(batch.inputs)
        for number, layer in enumerate(self.layers):
            x = x + segment_broadcast(state.to(x.dtype), offsets, len(x))
            if number < len(self.virtual):
                state = self.virtual[number](state, segment_reduce(x, offsets, "sum"))
            x = layer(batch.block(number), x)
        return x
