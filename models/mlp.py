"""A model of single nodes: blind to edges, and with `preprocess.transforms: hops` not blind to the graph."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from configs.errors import RecipeError
from configs.registry import MODELS
from models.base import GraphModel
from models.block import Block
from models.configs import MlpConfig
from models.facts import GraphFacts
from models.kernels.dense import Linear
from models.layers import own_rows


class OwnRows(nn.Module):
    """y_v = W drop(x_v) + b: x (num_src, in_dim) -> (num_dst, out_dim)."""

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__()
        self.drop: nn.Module = nn.Identity()
        self.own = Linear(in_dim, out_dim)

    def forward(self, block: Block, x: Tensor) -> Tensor:
        """Map the destinations' rows; edges play no part."""
        y: Tensor = self.own(self.drop(own_rows(block, x)))
        return y


class GroupDropout(nn.Module):
    """Zero whole groups of a row's columns while training, the others unscaled: x (n, sum of widths) -> the same.

    What is left keeps its size, since a missing group is what a node without such neighbours looks like.
    """

    def __init__(self, widths: tuple[int, ...], rate: float) -> None:
        super().__init__()
        self.num_groups, self.rate = len(widths), rate
        self.group: Tensor
        self.register_buffer("group", torch.repeat_interleave(torch.tensor(widths)), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Drop; the first group, the node's own, always stays."""
        if not self.training:
            return x
        stays = torch.rand(len(x), self.num_groups, device=x.device) >= self.rate
        stays[:, 0] = True
        return x * stays.to(x.dtype)[:, self.group]


@MODELS.register("mlp")
class Mlp(GraphModel):
    """An MLP on each node's own features: what edges must beat; with the transform hops it knows the graph too.

    Edges are never read: with the loader `neighbor` a fanout of 1 a layer is enough.
    """

    Config = MlpConfig

    def __init__(self, config: Any, facts: GraphFacts) -> None:
        """Raises RecipeError for groups that are not the features', and for options that do nothing here."""
        if config.label_reuse:
            raise RecipeError("model.label_reuse does nothing in mlp, which sees no other node; remove it")
        if bool(config.groups) != bool(config.group_dropout):
            raise RecipeError("model.groups and model.group_dropout need each other; give both or neither")
        if config.groups and config.norm_first:
            raise RecipeError("model.groups cannot be used with model.norm_first; remove one of them")
        if config.groups and (facts.categories or sum(config.groups) != facts.feature_dim):
            found = f"{facts.feature_dim} numeric features" + (" beside categories" if facts.categories else "")
            raise RecipeError(
                f"model.groups add up to {sum(config.groups)} columns and the graph has {found}; "
                "give the width of each group of numeric features, and have no others"
            )
        super().__init__(config, facts)

    @property
    def reads_mean(self) -> bool:
        """Of neighbours nothing is read: a mean of theirs does as well as their rows, which need not be stored."""
        return bool(self.facts.feature_dim) and not self.facts.categories

    def make_conv(self, in_dim: int, out_dim: int) -> nn.Module:
        """Return one linear map."""
        return OwnRows(in_dim, out_dim)

    def make_layers(self, in_dim: int) -> nn.ModuleList:
        """Return the stack; groups are dropped before its first map."""
        layers = super().make_layers(in_dim)
        if self.config.groups:
            first = layers[0].conv
            assert isinstance(first, OwnRows)
            first.drop = GroupDropout(self.config.groups, self.config.group_dropout)
        return layers
