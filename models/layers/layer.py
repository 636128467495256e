"""What stands between convolutions: norms, activations, feed-forward maps, residual connections."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from configs.errors import RecipeError
from models.block import Block
from models.configs import ModelConfig
from models.facts import GraphFacts
from models.kernels.dense.batch_norm import Running, batch_norm
from models.kernels.dense.dropout import dropout, elu_dropout, relu_dropout
from models.kernels.dense.linear import Linear


def draw_key() -> int:
    """Return a key for kernels that derive their own random bits; drawn from torch's CPU generator.

    A step seeds that generator, and recomputed layers get its state back: so they draw the same keys.
    """
    return int(torch.randint(2**31 - 1, ()))


class Dropout(nn.Module):
    """nn.Dropout through the kernel, whose bits are hashed from a key of torch's generator and kept nowhere."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """Drop while training."""
        return dropout(x, self.rate) if self.training and self.rate else x


def own_rows(block: Block, x: Tensor) -> Tensor:
    """Return the destinations' rows of x (num_src, D): x itself where all nodes are both (a slice costs a backward)."""
    return x if block.num_src == block.num_dst else x[: block.num_dst]


class FusedSequential(nn.Sequential):
    """Modules one after the other; a norm and what follows it in one pass where that can be."""

    def forward(self, x: Tensor) -> Tensor:
        """Run them."""
        parts, at = list(self), 0
        while at < len(parts):
            if isinstance(parts[at], BatchNorm) and at + 1 < len(parts):
                x = normalise(parts[at], parts[at + 1], x)
                at += 2
            else:
                x = parts[at](x)
                at += 1
        return x


def normalise(norm: nn.Module, activation: nn.Module, x: Tensor) -> Tensor:
    """activation(norm(x)); a batch norm in training, ReLU and dropout in one pass. x (n, D) -> (n, D)."""
    if not (isinstance(norm, BatchNorm) and norm.training and activation.training and len(x) > 1):
        return activation(norm(x))
    if isinstance(activation, Activation) and activation.kind == "relu":
        return norm.normalise(x, relu=True, rate=activation.rate)
    if isinstance(activation, Dropout):
        return norm.normalise(x, relu=False, rate=activation.rate)
    return activation(norm.normalise(x, relu=False, rate=0.0))


_FUNCTIONS = {"relu": torch.relu, "elu": F.elu, "gelu": F.gelu}


class Activation(nn.Module):
    """ReLU, ELU or GELU by name, and dropout behind it; GELU alone keeps two tensors for the backward pass."""

    def __init__(self, kind: str, rate: float = 0.0, *, inplace: bool = False) -> None:
        """`inplace`: in training it may write over its input, which nobody else reads."""
        super().__init__()
        self.kind, self.rate, self.inplace = kind, rate, inplace
        self.dropout = Dropout(rate)

    def forward(self, x: Tensor) -> Tensor:
        """Apply to each element."""
        if self.kind == "relu" and self.rate and self.training:
            return relu_dropout(x, self.rate, inplace=self.inplace)
        if self.kind == "elu" and self.training:
            return elu_dropout(x, self.rate, inplace=self.inplace)
        return self.dropout(_FUNCTIONS[self.kind](x))


class DropoutFirst(Activation):
    """The same with dropout before the activation; a ReLU does not mind."""

    def forward(self, x: Tensor) -> Tensor:
        """Apply to each element."""
        return super().forward(x) if self.kind == "relu" else _FUNCTIONS[self.kind](self.dropout(x))


class BatchNorm(nn.BatchNorm1d):
    """Batch normalisation; a single row, which has no spread, goes by the running statistics, as in evaluation."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the columns of x (n, D)."""
        if not self.training:
            return super().forward(x)
        if len(x) < 2:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        return self.normalise(x, relu=False, rate=0.0)

    def normalise(self, x: Tensor, *, relu: bool, rate: float) -> Tensor:
        """Normalise rows, two at least, by their own statistics, which the running ones learn; ReLU and dropout."""
        assert self.num_batches_tracked is not None
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.momentum is not None
        self.num_batches_tracked.add_(1)
        running = Running(self.running_mean, self.running_var, self.momentum)
        return batch_norm(x, self.weight, self.bias, running, self.eps, relu=relu, rate=rate)


def make_norm(kind: str, dim: int) -> nn.Module:
    """Return the normalisation of that name over `dim` columns."""
    if kind == "batch":
        return BatchNorm(dim)
    return nn.LayerNorm(dim) if kind == "layer" else nn.Identity()


def hidden_layers(
    in_dim: int, dim: int, count: int, activation: str, dropout: float = 0.0, norm: str | None = None
) -> list[nn.Module]:
    """Return `count` linear maps to `dim` columns, each with its norm (None: no module), activation and dropout."""
    parts: list[nn.Module] = []
    for number in range(count):
        norms = [] if norm is None else [make_norm(norm, dim)]
        parts += [Linear(dim if number else in_dim, dim), *norms, Activation(activation, dropout)]
    return parts


class FeedForward(nn.Module):
    """One or two linear maps after a convolution, the last one behind dropout and activation: (n, dim) -> (n, dim).

    y = drop(W_2 act(drop(z))), z = x or W_1 x, as the feed-forward modules of Platonov et al.
    (https://arxiv.org/abs/2302.11640).
    """

    def __init__(self, dim: int, maps: int, config: ModelConfig) -> None:
        super().__init__()
        self.first = Linear(dim, dim) if maps == 2 else nn.Identity()
        self.dropout = Dropout(config.dropout)
        self.activation = DropoutFirst(config.activation, config.dropout)
        self.last = Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Map each row."""
        return self.dropout(self.last(self.activation(self.first(x))))


class Layer(nn.Module):
    """Convolution, feed-forward, norm, activation, dropout and residual: x (num_src, in) -> (num_dst, out)."""

    def __init__(
        self, conv: nn.Module, in_dim: int, out_dim: int, config: ModelConfig, *, bare: bool, activate: bool
    ) -> None:
        """`bare`: neither norm nor dropout; `activate`: whether the activation stands between them."""
        super().__init__()
        self.out_dim = out_dim
        self.conv = conv
        maps = 0 if bare else config.feed_forward
        self.feed_forward = FeedForward(out_dim, maps, config) if maps else nn.Identity()
        self.norm = make_norm("none" if bare else config.norm, out_dim)
        self.activation: nn.Module = Dropout(0.0 if bare else config.dropout)
        """And dropout."""
        if activate and not bare:
            may_overwrite = maps > 0 or config.norm != "none" or getattr(conv, "returns_own_rows", False)
            self.activation = Activation(config.activation, config.dropout, inplace=may_overwrite)
        self.shortcut: nn.Module | None = None
        if config.residual:
            self.shortcut = nn.Identity() if in_dim == out_dim else Linear(in_dim, out_dim, bias=False)

    def forward(self, block: Block, x: Tensor) -> Tensor:
        """Run the layer."""
        y = normalise(self.norm, self.activation, self.feed_forward(self.conv(block, x)))
        return y if self.shortcut is None else y + self.shortcut(own_rows(block, x))


class NormFirstLayer(nn.Module):
    """x_dst + f(conv(norm(x))), f the feed-forward maps, or activation and dropout without them.

    x (num_src, hidden) -> (num_dst, hidden).
    """

    def __init__(self, conv: nn.Module, config: ModelConfig) -> None:
        super().__init__()
        self.out_dim = config.hidden_dim
        self.norm = make_norm(config.norm, config.hidden_dim)
        self.conv = conv
        self.feed_forward = (
            FeedForward(config.hidden_dim, config.feed_forward, config)
            if config.feed_forward
            else Activation(config.activation, config.dropout)
        )

    def forward(self, block: Block, x: Tensor) -> Tensor:
        """Run the layer."""
        return own_rows(block, x) + self.feed_forward(self.conv(block, self.norm(x)))


class VirtualNode(nn.Module):
    """s' = MLP(s + sum of the graph's rows): how virtual nodes go from one layer to the next.

    Each map of the MLP has norm and ReLU behind it, the last one dropout as well; all but the last are twice as wide.
    """

    def __init__(self, dim: int, dropout: float, *, norm: str = "batch", maps: int = 2) -> None:
        """`maps`: linear maps of the MLP, at least one."""
        super().__init__()
        wide = hidden_layers(dim, 2 * dim, maps - 1, "relu", norm=norm)
        self.mlp = FusedSequential(*wide, *hidden_layers(2 * dim if wide else dim, dim, 1, "relu", dropout, norm))

    def forward(self, state: Tensor, pooled: Tensor) -> Tensor:
        """Update: state and the sums of the graphs' rows, both (G, dim) -> (G, dim)."""
        return self.mlp(state + pooled)


def refuse_without_graphs(facts: GraphFacts) -> None:
    """Raise RecipeError where `model.virtual_node` has no graphs to join the nodes of."""
    if not facts.many_graphs:
        raise RecipeError(f"model.virtual_node is for graph tasks and this is a {facts.task} task; remove it")
