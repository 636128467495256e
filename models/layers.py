"""What stands between convolutions: norms, activations, feed-forward maps, residual connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from models.dropout import Dropout

if TYPE_CHECKING:
    from models.base import ModelConfig
    from models.block import Block


class Activation(nn.Module):
    """ReLU, ELU or GELU by name."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor:
        """Apply to each element."""
        if self.kind == "relu":
            return torch.relu(x)
        return F.elu(x) if self.kind == "elu" else F.gelu(x)

    def extra_repr(self) -> str:
        """Show which."""
        return self.kind


def make_norm(kind: str, dim: int) -> nn.Module:
    """Return the normalisation of that name over `dim` columns."""
    if kind == "batch":
        return nn.BatchNorm1d(dim)
    return nn.LayerNorm(dim) if kind == "layer" else nn.Identity()


class FeedForward(nn.Module):
    """One or two linear maps after a convolution, the last one behind dropout and activation: (n, dim) -> (n, dim).

    y = drop(W_2 act(drop(z))), z = x or W_1 x, as the feed-forward modules of Platonov et al.
    (https://arxiv.org/abs/2302.11640).
    """

    def __init__(self, dim: int, maps: int, config: ModelConfig) -> None:
        super().__init__()
        self.first = nn.Linear(dim, dim) if maps == 2 else nn.Identity()
        self.activation = Activation(config.activation)
        self.last = nn.Linear(dim, dim)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Map each row."""
        return self.dropout(self.last(self.activation(self.dropout(self.first(x)))))


class Layer(nn.Module):
    """Convolution, feed-forward, norm, activation, dropout and residual: x (num_src, in) -> (num_dst, out)."""

    def __init__(
        self, conv: nn.Module, in_dim: int, out_dim: int, config: ModelConfig, *, bare: bool, activate: bool
    ) -> None:
        """`bare`: neither norm nor dropout; `activate`: whether the activation stands between them."""
        super().__init__()
        self.out_dim = out_dim
        """Columns of the result."""
        self.conv = conv
        maps = 0 if bare else config.feed_forward
        self.feed_forward = FeedForward(out_dim, maps, config) if maps else nn.Identity()
        self.norm = make_norm("none" if bare else config.norm, out_dim)
        self.activation = Activation(config.activation) if activate and not bare else nn.Identity()
        self.dropout = Dropout(0.0 if bare else config.dropout)
        self.shortcut: nn.Module | None = None
        if config.residual:
            self.shortcut = nn.Identity() if in_dim == out_dim else nn.Linear(in_dim, out_dim, bias=False)

    def forward(self, block: Block, x: Tensor) -> Tensor:
        """Run the layer."""
        y = self.dropout(self.activation(self.norm(self.feed_forward(self.conv(block, x)))))
        return y if self.shortcut is None else y + self.shortcut(x[: block.num_dst])


class NormFirstLayer(nn.Module):
    """x_dst + f(conv(norm(x))), f the feed-forward maps, or activation and dropout without them.

    x (num_src, hidden) -> (num_dst, hidden).
    """

    def __init__(self, conv: nn.Module, config: ModelConfig) -> None:
        super().__init__()
        self.out_dim = config.hidden_dim
        """Columns of the result."""
        self.norm = make_norm(config.norm, config.hidden_dim)
        self.conv = conv
        self.feed_forward = (
            FeedForward(config.hidden_dim, config.feed_forward, config)
            if config.feed_forward
            else nn.Sequential(Activation(config.activation), Dropout(config.dropout))
        )

    def forward(self, block: Block, x: Tensor) -> Tensor:
        """Run the layer."""
        return x[: block.num_dst] + self.feed_forward(self.conv(block, self.norm(x)))
