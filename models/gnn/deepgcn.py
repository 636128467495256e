"""Deep GCNs: DeepGCNs (https://arxiv.org/abs/1904.03751), DeeperGCN (https://arxiv.org/abs/2006.07739), RevGNN
(https://arxiv.org/abs/2106.07476). A subclass with a `make_conv` of its own gets another convolution just as deep."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from configs.errors import RecipeError
from configs.registry import MODELS
from models.base import GraphModel
from models.block import Batch, Block, aggregate
from models.configs import DeepConfig
from models.facts import GraphFacts
from models.gnn.reversible import ReversibleLayer, run_reversibly
from models.kernels.dense.linear import Linear
from models.kernels.sparse.message import message_sum, softmax_aggregate
from models.kernels.sparse.segment import segment_broadcast, segment_reduce
from models.layers.encoders import EdgeEncoder
from models.layers.layer import (
    Activation,
    Dropout,
    FusedSequential,
    VirtualNode,
    hidden_layers,
    make_norm,
    normalise,
    own_rows,
    refuse_without_graphs,
)
from models.layers.recompute import recomputed


class DeepLayer(nn.Module):
    """One layer of a deep stack, by `block`: x (num_src, in) -> (num_dst, out_dim)."""

    def __init__(self, conv: nn.Module, norm: nn.Module, config: DeepConfig, *, number: int, activate: bool) -> None:
        """`number` from 0: the first layer has nothing before it to add; `activate`: not where the head does more."""
        super().__init__()
        self.kind = config.block if number or config.block == "plain" else "first " + config.block
        self.out_dim = config.hidden_dim
        self.conv, self.norm = conv, norm
        if activate and self.kind != "res":  # which adds before it drops
            self.activation: nn.Module = Activation(config.activation, config.dropout)
            self.dropout: nn.Module = nn.Identity()
        else:
            self.activation = Activation(config.activation) if activate else nn.Identity()
            self.dropout = Dropout(config.dropout)
        self.checkpoint = config.checkpoint

    def forward(self, block: Block, x: Tensor) -> Tensor:
        """Run the layer."""
        if self.checkpoint and self.training and torch.is_grad_enabled():
            return recomputed(self, self.run, block, x)
        return self.run(block, x)

    def run(self, block: Block, x: Tensor) -> Tensor:
        """Compute the layer."""
        if self.kind == "first res+":
            return self.conv(block, x)
        if self.kind == "res+":
            return own_rows(block, x) + self.conv(block, normalise(self.norm, self.activation, x))
        y = normalise(self.norm, self.activation, self.conv(block, x))
        return self.dropout(y + own_rows(block, x) if self.kind == "res" else y)


class ReversibleGroup(nn.Module):
    """f(x) = conv(drop(act(norm(x)))): one group's part of a reversible layer."""

    def __init__(self, conv: nn.Module, norm: nn.Module, config: DeepConfig) -> None:
        super().__init__()
        self.conv, self.norm = conv, norm
        self.activation = Activation(config.activation, config.dropout)
        """And dropout."""

    def forward(self, block: Block, x: Tensor) -> Tensor:
        """Compute f."""
        return self.conv(block, normalise(self.norm, self.activation, x))


@MODELS.register("deepgcn")
class DeepGcn(GraphModel):
    """DeeperGCN and RevGNN: up to hundreds of layers, residual, checkpointed or reversible."""

    uses_edge_features = True
    project_inputs = True

    Config = DeepConfig

    def __init__(self, config: Any, facts: GraphFacts) -> None:
        """Raises RecipeError for options that exclude each other or would do nothing."""
        _refuse(config, facts)
        super().__init__(config, facts)
        self.virtual: nn.ModuleList | None = None
        if config.virtual_node:
            self.start = nn.Parameter(torch.zeros(1, config.hidden_dim))
            self.virtual = nn.ModuleList(
                VirtualNode(config.hidden_dim, config.dropout, norm=config.norm, maps=1)
                for _ in range(config.num_layers - 1)
            )

    def make_conv(self, in_dim: int, out_dim: int) -> nn.Module:
        """Return one convolution."""
        return GenConv(in_dim, out_dim, self.facts, self.config)

    def make_layers(self, in_dim: int) -> nn.ModuleList:
        """Return the stack."""
        config, width = self.config, self.config.hidden_dim
        layers = nn.ModuleList()
        for number in range(config.num_layers):
            if config.reversible:
                count = config.groups or 2
                part = width // count
                groups = [
                    ReversibleGroup(self.make_conv(part, part), make_norm(config.norm, part), config)
                    for _ in range(count)
                ]
                layers.append(ReversibleLayer(groups, width))
                continue
            conv = self.make_conv(in_dim, width)
            norm = make_norm("none" if config.block == "res+" and not number else config.norm, width)
            last = number == config.num_layers - 1
            activate = config.block != "plain" or not last or self.facts.scores_nodes
            layers.append(DeepLayer(conv, norm, config, number=number, activate=activate))
            in_dim = width
        return layers

    def make_finish(self) -> nn.Module:
        """Return the last pre-activation; without activation where the head is more than a linear map of nodes."""
        config = self.config
        if config.block != "res+":
            return nn.Identity()
        linear = self.facts.scores_nodes
        last = Activation(config.activation, config.dropout) if linear else Dropout(config.dropout)
        return FusedSequential(make_norm(config.norm, self.vector_dim), last)

    @property
    def is_layered(self) -> bool:
        """Reversible layers want the same nodes before and after them, virtual nodes hear of all: the whole graph."""
        return not (self.config.reversible or self.config.virtual_node)

    def represent(self, batch: Batch) -> Tensor:
        """Return nodes as vectors; reversible layers remember the last one's result only."""
        if self.virtual is not None:
            return self._represent_joined(batch, self.virtual)
        if not self.config.reversible:
            return super().represent(batch)
        x = run_reversibly(list(self.layers), batch.blocks[0], self.encoder(batch.inputs))  # type: ignore[arg-type]
        return x[: batch.blocks[-1].num_dst]

    def _represent_joined(self, batch: Batch, virtual: nn.ModuleList) -> Tensor:
        """Return nodes as vectors, virtual nodes' messages included: as in the authors' code for OGB's molecules."""
        offsets = batch.graph_offsets
        assert offsets is not None
        state = self.start.expand(len(offsets) - 1, -1)
        x = self.encoder(batch.inputs)
        x = self.layers[0](batch.block(0), x + segment_broadcast(state, offsets, len(x)))
        for number, node in enumerate(virtual, 1):
            layer: Any = self.layers[number]  # res+; virtual nodes hear of its convolution's input, and add their own
            ready = normalise(layer.norm, layer.activation, x)
            state = node(state, segment_reduce(ready, offsets, "sum"))
            x = x + layer.conv(batch.block(number), ready + segment_broadcast(state, offsets, len(ready)))
        return x


_UNSUPPORTED = ("norm_first", "feed_forward", "residual")
_PARTS_OF = (("beta", "aggregator", "softmax"), ("groups", "reversible", True))


def _refuse(config: DeepConfig, facts: GraphFacts) -> None:
    """Refuse what would do nothing and what cannot be combined."""
    for name in _UNSUPPORTED:
        if getattr(config, name):
            raise RecipeError(
                f"model.{name} does nothing in {config.name}: model.block says what a layer is; remove it"
            )
    if config.head == "none":
        raise RecipeError(f"model.head=none does nothing in {config.name}, whose layers have one width; remove it")
    for name, owner, value in _PARTS_OF:
        if getattr(config, name) not in (None, False) and getattr(config, owner) != value:
            raise RecipeError(f"model.{name} is for model.{owner}={value}; set that or remove model.{name}")
    if config.learn_aggregator and config.aggregator != "softmax":
        raise RecipeError(f"model.learn_aggregator: a {config.aggregator} has nothing to learn; remove it")
    if config.aggregator == "max" and facts.has_edge_features:
        raise RecipeError("model.aggregator=max does not read edge features, and the graph has some; take softmax")
    if config.reversible:
        if config.hidden_dim % (config.groups or 2):
            raise RecipeError(f"model.groups={config.groups or 2} does not divide hidden_dim={config.hidden_dim}")
        _require(config, "reversible", block="res+", checkpoint=False)
    if config.virtual_node:
        refuse_without_graphs(facts)
        if config.num_layers == 1:
            raise RecipeError("model.virtual_node carries messages from one layer to the next; take model.num_layers=2")
        _require(config, "virtual_node", block="res+", checkpoint=False, reversible=False)


def _require(config: DeepConfig, option: str, **others: str | bool) -> None:
    """Raise RecipeError where one of the other options has not the value that `option` needs."""
    for name, value in others.items():
        if getattr(config, name) != value:
            raise RecipeError(f"model.{option} works with model.{name}={str(value).lower()} only; remove one of them")


_EPS = 1e-7  # messages stay positive


class GenConv(nn.Module):
    """DeeperGCN's (equations 3 and 7): y_v = MLP(x_v + m_v), m_v = AGG_{u in N(v)} (ReLU(x_u + e_uv) + 1e-7).

    AGG is softmax: sum_u softmax_u(beta m_uv) m_uv; or mean, sum, max. beta is one number a convolution, learnt if
    asked for. Nothing of size E x D is stored unless edges carry numbers.
    """

    def __init__(self, in_dim: int, out_dim: int, facts: GraphFacts, config: DeepConfig) -> None:
        super().__init__()
        self.aggregator = config.aggregator
        self.edges = EdgeEncoder(facts, in_dim) if facts.has_edge_features else None
        start = torch.tensor(1.0 if config.beta is None else config.beta)
        self.beta: Tensor | None
        if config.aggregator == "softmax":
            self.beta = nn.Parameter(start) if config.learn_aggregator else nn.Buffer(start)
        else:
            self.beta = None
        hidden = hidden_layers(in_dim, 2 * in_dim, config.mlp_layers - 1, config.activation, norm=config.norm)
        self.mlp = FusedSequential(*hidden, Linear(2 * in_dim if hidden else in_dim, out_dim))

    def forward(self, block: Block, x: Tensor) -> Tensor:
        """Convolve: x (num_src, in_dim) -> (num_dst, out_dim)."""
        return self.mlp(own_rows(block, x) + self._aggregate(block, x))

    def _aggregate(self, block: Block, x: Tensor) -> Tensor:
        edge = None if self.edges is None else self.edges(block, x.dtype)
        if self.beta is not None:
            return softmax_aggregate(block.adjacency, x, self.beta, edge, _EPS)
        if edge is None:
            return aggregate(block, torch.relu(x) + _EPS, self.aggregator)
        summed = message_sum(block.adjacency, x, edge) + _EPS * block.counts.unsqueeze(1).to(x.dtype)
        if self.aggregator == "mean":
            return summed * block.adjacency.degree_scale().unsqueeze(1).to(x.dtype)
        return summed if block.scale is None else summed * block.scale.unsqueeze(1).to(x.dtype)
