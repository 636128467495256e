"""SGC (Wu et al., ICML 2019, https://arxiv.org/abs/1902.07153, equation 7) and SIGN (Rossi et al., 2020,
https://arxiv.org/abs/2004.11198, equation 4): features are propagated first, and then single nodes are looked at."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from configs.errors import RecipeError
from configs.registry import MODELS
from models.base import GraphModel
from models.block import Block
from models.configs import ModelConfig, SgcConfig, SignConfig
from models.facts import GraphFacts
from models.gnn.gcn import propagate
from models.layers.layer import Dropout, hidden_layers, make_norm

_NO_LAYERS = {"norm_first": False, "feed_forward": 0, "residual": False, "head": "linear"}


class Propagation(nn.Module):
    """y = P x: x (num_src, D) -> (num_dst, D), P the propagation matrix of GCN. Learns nothing."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.out_dim = dim

    def forward(self, block: Block, x: Tensor) -> Tensor:
        """Propagate."""
        return propagate(block, x)


class PropagatedModel(GraphModel):
    """A model that propagates K = num_layers times without learning and then looks at single nodes.

    The loader `precomputed` brings rows [x | P x | ... | P^K x] and no blocks; `finish` takes such rows.
    """

    uses_edge_weights = True

    def __init__(self, config: Any, facts: GraphFacts) -> None:
        """Raises RecipeError for options of layers that learn."""
        for name, value in _NO_LAYERS.items():
            if getattr(config, name) != value:
                raise RecipeError(f"model.{name} does nothing in {config.name}, whose layers learn nothing; remove it")
        super().__init__(config, facts)

    @property
    def num_propagations(self) -> int:  # type: ignore[override]
        """K, where the loader can precompute the powers: on numeric features as they are."""
        return self.config.num_layers if self.encoder.is_plain else 0


class LastHop(nn.Module):
    """The last `dim` columns of a row of hops, normalised, with dropout: (n, any) -> (n, dim)."""

    def __init__(self, dim: int, config: ModelConfig) -> None:
        super().__init__()
        self.dim = dim
        self.norm, self.dropout = make_norm(config.norm, dim), Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Take the last power."""
        return self.dropout(self.norm(x[:, -self.dim :]))


@MODELS.register("sgc")
class Sgc(PropagatedModel):
    """SGC: a linear model of features propagated num_layers times; seconds with the precomputed loader."""

    Config = SgcConfig

    def __init__(self, config: Any, facts: GraphFacts) -> None:
        """Raises RecipeError for an activation: a linear model has none."""
        if config.activation != "relu":
            raise RecipeError("model.activation does nothing in sgc, a linear model; remove it")
        super().__init__(config, facts)

    def make_layers(self, in_dim: int) -> nn.ModuleList:
        """Return the propagations."""
        return nn.ModuleList(Propagation(in_dim) for _ in range(self.config.num_layers))

    def make_finish(self) -> nn.Module:
        """Return what takes the last power."""
        return LastHop(self.head_dim, self.config)

    @property
    def head_dim(self) -> int:
        """Features keep their width."""
        return self.encoder.out_dim


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
