"""SIGN: scalable inception graph networks (Rossi et al., 2020, https://arxiv.org/abs/2004.11198, equation 4)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from configs.registry import MODELS
from models.block import Block
from models.configs import SignConfig
from models.gnn.gcn import propagate
from models.gnn.sgc import PropagatedModel
from models.layers.layer import hidden_layers


class HopPropagation(nn.Module):
    """One hop more: [x | ... | P^k x] (num_src, (k + 1) D) -> [x | ... | P^(k+1) x] (num_dst, (k + 2) D)."""

    def __init__(self, dim: int, number: int) -> None:
        super().__init__()
        self.dim = dim
        self.out_dim = dim * (number + 2)

    def forward(self, block: Block, x: Tensor) -> Tensor:
        """Propagate all hops, since on sampled blocks the sources of one are not those of the next."""
        return torch.cat([x[: block.num_dst, : self.dim], propagate(block, x)], 1)


class Inception(nn.Module):
    """A map with norm and activation a hop, side by side, and one on all: (n, (K + 1) D) -> (n, hidden_dim)."""

    def __init__(self, num_hops: int, dim: int, config: SignConfig) -> None:
        super().__init__()
        hidden = config.hidden_dim
        options = (config.activation, config.dropout, config.norm)
        self.hops = nn.ModuleList(nn.Sequential(*hidden_layers(dim, hidden, 1, *options)) for _ in range(num_hops))
        self.mix = nn.Sequential(*hidden_layers(num_hops * hidden, hidden, 1, *options))

    def forward(self, x: Tensor) -> Tensor:
        """Map each row."""
        parts = [hop(part) for hop, part in zip(self.hops, x.chunk(len(self.hops), 1), strict=True)]
        return self.mix(torch.cat(parts, 1))


@MODELS.register("sign")
class SignModel(PropagatedModel):
    """SIGN: an MLP on features propagated 0 to num_layers times; made for the precomputed loader."""

    Config = SignConfig

    def make_layers(self, in_dim: int) -> nn.ModuleList:
        """Return the propagations, which keep all hops."""
        return nn.ModuleList(HopPropagation(in_dim, number) for number in range(self.config.num_layers))

    def make_finish(self) -> nn.Module:
        """Return all that learns."""
        return Inception(self.config.num_layers + 1, self.encoder.out_dim, self.config)

    @property
    def head_dim(self) -> int:
        """The MLP's width."""
        return self.config.hidden_dim
