"""What a model is. A new one is one file in this folder:

    @MODELS.register("mine")
    class Mine(GraphModel):
        \"\"\"One line for `graphmill models`.\"\"\"

        class Config(ModelConfig):
            alpha: float = 0.1
            \"\"\"Options of its own; those of ModelConfig come with it.\"\"\"

        def make_conv(self, in_dim: int, out_dim: int) -> nn.Module:
            return MyConv(in_dim, out_dim, self.config.alpha)   # forward(block, x (num_src, in)) -> (num_dst, out)

Loaders, heads, losses, inference and checkpoints then work on node, link and graph tasks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from configs.base import ComponentConfig
from configs.errors import RecipeError
from models.block import Batch, Block
from models.dropout import Dropout
from models.encoders import NodeEncoder
from models.heads import GraphHead, LinkHead, NodeHead


@dataclass(frozen=True)
class GraphFacts:
    """All that a model needs to know of a graph and a task to size its parameters."""

    task: Literal["node", "link", "graph"]
    out_dim: int
    """Scores a node or graph: classes of a multiclass label, else label columns; 1 on link tasks."""
    num_nodes: int
    feature_dim: int = 0
    categories: tuple[int, ...] = ()
    edge_feature_dim: int = 0
    edge_categories: tuple[int, ...] = ()

    @property
    def has_edge_features(self) -> bool:
        """Whether edges carry features."""
        return self.edge_feature_dim > 0 or bool(self.edge_categories)


class ModelConfig(ComponentConfig):
    """Options of every stacked message-passing model."""

    hidden_dim: int = Field(default=256, ge=1)
    """Width of all layers."""
    num_layers: int = Field(default=3, ge=1)
    """Message-passing layers; nodes see so many hops."""
    dropout: float = Field(default=0.5, ge=0, lt=1)
    """Share of a layer's outputs that is dropped while training."""
    norm: Literal["batch", "layer", "none"] = "batch"
    """Normalisation after each layer (none after the last layer of a link task)."""
    residual: bool = False
    """Add a layer's input to its output (through a linear map where their widths differ)."""
    jumping: Literal["none", "sum", "max"] = "none"
    """Jumping knowledge: combine the outputs of all layers instead of taking the last."""
    decoder: Literal["mlp", "dot"] | None = None
    """Link tasks: score a pair by an MLP on the product of its ends, or by their dot product; null: mlp."""
    decoder_layers: int | None = Field(default=None, ge=1)
    """Link tasks with the MLP decoder: its linear layers; null: 3."""
    pooling: Literal["mean", "sum", "max"] | None = None
    """Graph tasks: how a graph's nodes become one vector; null: mean."""


class Layer(nn.Module):
    """Convolution, norm, ReLU, dropout and residual: x (num_src, in) -> (num_dst, hidden)."""

    def __init__(self, conv: nn.Module, in_dim: int, config: ModelConfig, *, norm: bool, activate: bool) -> None:
        super().__init__()
        self.conv = conv
        self.norm = make_norm(config.norm if norm else "none", config.hidden_dim)
        self.activate = activate
        self.dropout = Dropout(config.dropout if norm else 0.0)
        self.shortcut: nn.Module | None = None
        if config.residual:
            same = in_dim == config.hidden_dim
            self.shortcut = nn.Identity() if same else nn.Linear(in_dim, config.hidden_dim, bias=False)

    def forward(self, block: Block, x: Tensor) -> Tensor:
        """Run the layer."""
        y = self.norm(self.conv(block, x))
        if self.activate:
            y = torch.relu(y)
        y = self.dropout(y)
        return y if self.shortcut is None else y + self.shortcut(x[: block.num_dst])


class GraphModel(nn.Module):
    """Encoder of nodes, a stack of layers, and a head that fits the task.

    The last layer has no ReLU where the head is more than a linear map of single nodes: on graph tasks it keeps norm
    and dropout, on link tasks it is the bare convolution (both as in OGB's examples).
    """

    uses_edge_features: ClassVar[bool] = False
    project_inputs: ClassVar[bool] = False
    """Whether the encoder maps numeric features to hidden_dim; else the first layer reads them as they are."""

    def __init__(self, config: Any, facts: GraphFacts) -> None:
        """`config` is the model's own `Config`. Raises RecipeError for options that do not fit the task."""
        super().__init__()
        self.config = config
        self.facts = facts
        _refuse_foreign_options(config, facts)
        self.encoder = NodeEncoder(facts, config.hidden_dim, project=self.project_inputs)
        self.layers = nn.ModuleList()
        in_dim = self.encoder.out_dim
        for number in range(config.num_layers):
            last = number == config.num_layers - 1
            conv = self.make_conv(in_dim, config.hidden_dim)
            norm, activate = not (last and facts.task == "link"), not last or facts.task == "node"
            self.layers.append(Layer(conv, in_dim, config, norm=norm, activate=activate))
            in_dim = config.hidden_dim
        self.head = _make_head(config, facts)

    def make_conv(self, in_dim: int, out_dim: int) -> nn.Module:
        """Return one convolution: forward(block, x (num_src, in_dim)) -> (num_dst, out_dim)."""
        raise TypeError(f"{type(self).__name__} must define make_conv(in_dim, out_dim)")

    def forward(self, batch: Batch) -> Tensor:
        """Return the scores that the batch asks for: (n, out_dim), or (n,) for pairs; higher is likelier."""
        scores: Tensor = self.head(self.represent(batch), batch)
        return scores

    def represent(self, batch: Batch) -> Tensor:
        """Return the last block's destinations as vectors: (num_dst, hidden_dim)."""
        x = self.encoder(batch.inputs)
        num_final = batch.blocks[-1].num_dst
        collected: Tensor | None = None
        for number, layer in enumerate(self.layers):
            x = layer(batch.block(number), x)
            collected = self.collect(collected, x[:num_final])
        assert collected is not None
        return collected

    def score(self, *vectors: Tensor) -> Tensor:
        """Return scores from vectors: of nodes (n, hidden) -> (n, out_dim), or of both ends of pairs -> (n,)."""
        assert isinstance(self.head, NodeHead | LinkHead), "graphs are scored from whole batches"
        scores: Tensor = self.head.score(*vectors)
        return scores

    def collect(self, collected: Tensor | None, x: Tensor) -> Tensor:
        """Combine the outputs of the layers so far with those of the next one."""
        if collected is None or self.config.jumping == "none":
            return x
        return collected + x if self.config.jumping == "sum" else torch.maximum(collected, x)


def make_norm(kind: str, dim: int) -> nn.Module:
    """Return the normalisation of that name over `dim` columns."""
    if kind == "batch":
        return nn.BatchNorm1d(dim)
    return nn.LayerNorm(dim) if kind == "layer" else nn.Identity()


def _make_head(config: ModelConfig, facts: GraphFacts) -> nn.Module:
    if facts.task == "link":
        return LinkHead(config.hidden_dim, config.decoder or "mlp", config.decoder_layers or 3, config.dropout)
    if facts.task == "graph":
        return GraphHead(config.hidden_dim, facts.out_dim, config.pooling or "mean")
    return NodeHead(config.hidden_dim, facts.out_dim)


def _refuse_foreign_options(config: ModelConfig, facts: GraphFacts) -> None:
    """An option that would do nothing is refused, not ignored."""
    for name, task in (("decoder", "link"), ("decoder_layers", "link"), ("pooling", "graph")):
        if getattr(config, name) is not None and facts.task != task:
            raise RecipeError(f"model.{name} is for {task} tasks and this is a {facts.task} task; remove it")
    if config.decoder == "dot" and config.decoder_layers is not None:
        raise RecipeError("model.decoder_layers does nothing with decoder=dot; remove it or take decoder=mlp")
