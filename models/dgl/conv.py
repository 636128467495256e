"""One of DGL's convolutions as a layer's convolution; `models/dgl/convolutions.py` says how each is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from configs.errors import RecipeError
from models.block import Block
from models.dgl.adapter import give_degrees, load_dgl, make_handle
from models.dgl.configs import DglConfig
from models.dgl.convolutions import complete_options, find_convolution
from models.facts import GraphFacts
from models.kernels.dense.linear import Linear
from models.layers.encoders import EdgeEncoder
from models.layers.layer import BatchNorm, own_rows


@dataclass(frozen=True)
class Sizes:
    """What the arguments of a constructor are filled with, by the words of `Convolution.sizes`."""

    in_dim: int
    out_dim: int
    heads: int
    last: bool
    """Whether the result is the scores: then heads are as wide as these and averaged, else they stand side by side."""
    layer: int
    """From 1."""
    edge_dim: int
    facts: GraphFacts
    pair: bool = False
    """Whether sources and destinations have maps of their own."""

    def fill(self, word: str) -> Any:
        """Return an argument."""
        made = {
            "in": (self.in_dim, self.in_dim) if self.pair else self.in_dim,
            "out": self.out_dim,
            "wider": max(self.in_dim, self.out_dim),
            "head": self.out_dim if self.last else self.out_dim // self.heads,
            "edge": self.edge_dim,
            "edge_if_any": self.edge_dim if self.facts.has_edge_features else 0,
            "layer": self.layer,
            "node_types": self.facts.num_node_types,
            "relations": self.facts.num_edge_types,
            "two": 2,
            "none": None,
            "no": False,
        }
        if word == "mlp":
            return nn.Sequential(Linear(self.in_dim, self.out_dim), nn.ReLU(), Linear(self.out_dim, self.out_dim))
        if word == "edge_map":
            return Linear(self.edge_dim, self.in_dim * self.out_dim)
        return made[word]


def make_convolution(name: str, options: Mapping[str, Any], sizes: Sizes, place: str = "model.options") -> nn.Module:
    """Build a class of `dgl.nn.pytorch`. Raises RecipeError with what its constructor says against the options.

    `place` is what messages call the options.
    """
    spec, given = find_convolution(name), dict(options)
    try:
        if name == "AtomicConv":
            given = {key: torch.tensor(value, dtype=torch.float32) for key, value in given.items()}
        made = getattr(load_dgl().nn.pytorch, name)(
            **{key: sizes.fill(word) for key, word in spec.sizes.items()}, **given
        )
    except Exception as error:  # assertions, KeyErrors, DGLErrors: whatever the class checks its arguments by
        raise RecipeError(f"{place}: {name} refuses {given}: {type(error).__name__}: {error}") from error
    if name == "GatedGCNConv":
        made.bn_edge = nn.Identity()  # what it makes of the edges goes nowhere: each layer reads the graph's own
    for part in made.modules():
        if type(part) is nn.BatchNorm1d:
            part.__class__ = BatchNorm  # which stands a single node or edge
    if name == "EGNNConv":
        made.message = partial(_without_gradients_of_no_distance, made.message)
    if name == "TWIRLSConv":
        made.cacheable = False  # it would keep the first batch's result
    return made


def _without_gradients_of_no_distance(message: Callable[[Any], Any], edges: Any) -> Any:
    """Call EGNNConv's `message`; where both ends are in one place, as in a loop, distance and direction pass on 0.

    The gradient of their roots is infinite there, and the parameters of all layers before would become NaN.
    """
    radial, direction = edges.data["radial"], edges.data["x_diff"]
    if radial.requires_grad:
        for each in (radial, direction):
            each.register_hook(lambda gradient: gradient.masked_fill(radial == 0, 0))
    return message(edges)


class DglConv(nn.Module):
    """One of DGL's convolutions: (block, x (num_src, in), carried (num_src, w)) -> (num_dst, out), (num_dst, w).

    Its result goes through a linear map where the convolution itself decides how many columns it gives.
    """

    def __init__(self, config: DglConfig, sizes: Sizes) -> None:
        """Raises RecipeError where options, graph and convolution do not fit."""
        super().__init__()
        self.name, self.spec, facts = config.conv, find_convolution(config.conv), sizes.facts
        options = complete_options(config.conv, config.options)
        self.mean, self.weighted = sizes.last, config.edge_weights
        self.edges: EdgeEncoder | None = None
        like_nodes = "edges_like_nodes" in self.spec.reads
        if like_nodes or "edges" in self.spec.reads or ("edges_if_any" in self.spec.reads and facts.has_edge_features):
            self.edges = EdgeEncoder(facts, sizes.in_dim if like_nodes else sizes.edge_dim)
        self.pseudo = nn.Sequential(Linear(2, 2), nn.Tanh()) if "degrees" in self.spec.reads else None
        self.conv = make_convolution(config.conv, options, sizes)
        self.linear: nn.Module = nn.Identity()
        self.width = self._measured_width(config, sizes)
        if self.width != sizes.out_dim:
            self.linear = Linear(self.width, sizes.out_dim)

    def _measured_width(self, config: DglConfig, sizes: Sizes) -> int:
        """Convolve a ring of three nodes and return how wide the result is. Raises RecipeError."""
        if any(each.is_meta for each in self.parameters()):  # weights are only counted; DGL has no such device
            with torch.device("cpu"):
                return DglConv(config, sizes).width
        facts, in_dim = sizes.facts, sizes.in_dim
        block = Block(torch.tensor([0, 2, 4, 6]), torch.tensor([0, 1, 1, 2, 2, 0], dtype=torch.int32), 3)
        block.weight = torch.ones(6) if self.weighted else None
        block.edge_feat = torch.zeros(6, facts.edge_feature_dim) if facts.edge_feature_dim else None
        block.edge_feat_cat = torch.zeros(6, len(facts.edge_categories), dtype=torch.int64)
        block.edge_type = torch.zeros(6, dtype=torch.int64)
        carried = torch.zeros(3, in_dim if "first_vectors" in self.spec.reads else 1)
        self.eval()
        try:
            with torch.no_grad():
                y, _ = self._convolve(block, torch.zeros(3, in_dim), carried)
        except Exception as error:  # whatever its code stumbles over with these options
            raise RecipeError(f"model.conv={self.name} with model.options={dict(config.options)}: {error}") from error
        self.train()
        return y.shape[1]

    def forward(self, block: Block, x: Tensor, carried: Tensor | None = None) -> Any:
        """Convolve in float32, whatever the precision is; without `carried` only the vectors come back."""
        with torch.autocast(x.device.type, enabled=False):
            if block.num_edges:
                y, kept = self._convolve(block, x.float(), carried)
            else:
                y, kept = self._convolve_without_edges(block, x.float(), carried)
            y = self.linear(y).to(x.dtype)
        return y if carried is None else (y, kept)

    def _convolve_without_edges(self, block: Block, x: Tensor, carried: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Convolve with one more node that has a loop: some convolutions fail where no message is sent at all."""
        n = block.num_dst

        def longer(rows: Tensor | None, count: int) -> Tensor | None:
            return None if rows is None else torch.cat([rows[:count], rows.new_zeros(1, *rows.shape[1:])])

        ends = torch.cat([block.indptr, block.indptr.new_ones(1)])
        looped = Block(ends, torch.tensor([n], device=x.device), n + 1)
        looped.weight = None if block.weight is None else block.weight.new_ones(1)  # some divide by its root
        looped.edge_feat, looped.edge_feat_cat = longer(block.edge_feat, 0), longer(block.edge_feat_cat, 0)
        looped.edge_type = longer(block.edge_type, 0)
        counts = graph_handle(block).batch_num_nodes()  # of each graph, where there are many: some divide by it
        handle = graph_handle(looped)
        handle.set_batch_num_nodes(torch.cat([counts, counts.new_ones(1)]))
        handle.set_batch_num_edges(torch.cat([counts.new_zeros(len(counts)), counts.new_ones(1)]))
        longer_x = longer(x, n)
        assert longer_x is not None
        y, kept = self._convolve(looped, longer_x, longer(carried, n))
        return y[:n], None if kept is None else kept[:n]

    def _convolve(self, block: Block, x: Tensor, carried: Tensor | None) -> tuple[Tensor, Tensor | None]:
        dgl = load_dgl()
        homogeneous = self.spec.homogeneous or bool(self.spec.whole)
        graph = graph_handle(block) if homogeneous else block_handle(block)
        if self.spec.refuses_isolated:
            degrees = graph.in_degrees().clamp(min=1)
            graph = give_degrees(graph.local_var(), degrees, degrees)
        kept = None if carried is None else own_rows(block, carried)
        weights = {"edge_weight": block.weight} if self.weighted else {}
        try:
            y = self.conv(graph, x, *self._read(block, graph, carried), **weights)
        except (dgl.DGLError, RuntimeError, TypeError, ValueError, AssertionError, KeyError) as error:
            raise RecipeError(f"dgl.nn.pytorch.{self.name}: {str(error).strip() or type(error).__name__}") from error
        if isinstance(y, tuple):
            if "coordinates" in self.spec.reads:
                kept = own_rows(block, y[1])
            y = y[0]
        if y.dim() == 3:
            y = y.mean(1) if self.mean else y.flatten(1)
        return own_rows(block, y) if homogeneous else y, kept

    def _read(self, block: Block, graph: Any, carried: Tensor | None) -> list[Any]:
        """Return what `forward` of the convolution takes beside graph and node features."""
        arguments: list[Any] = []
        for word in self.spec.reads:
            if word in ("edges", "edges_if_any", "edges_like_nodes"):
                if self.edges is not None:
                    edges: Any = self.edges(block, torch.float32)
                    arguments.append(edges if isinstance(edges, Tensor) else edges[0][edges[1].long()])
            elif word == "relations":
                arguments.append(torch.zeros(block.num_edges).long() if block.edge_type is None else block.edge_type)
            elif word == "distances":
                assert block.edge_feat is not None, "the loader gave no edge features"
                arguments.append(block.edge_feat.norm(dim=1, keepdim=True))
            elif word == "degrees":
                assert self.pseudo is not None
                scale = (end_degrees(block) + 1).rsqrt()
                ends = torch.stack([scale[block.indices.long()], scale[graph.edges(order="eid")[1]]], 1)
                arguments.append(self.pseudo(ends))
            elif word == "lambda_max":
                arguments.append([2.0] * graph.batch_size)
            else:
                assert carried is not None
                arguments.append(carried.flatten().long() if word == "node_types" else carried)
        return arguments


def block_handle(block: Block) -> Any:
    """Return a block as a DGL block, whose sources' degrees are `end_degrees`.

    Where all nodes are both ends it is a graph, whose degrees are those of its own edges, in and out.
    """

    def make() -> Any:
        handle = make_handle(block.indptr, block.indices.long(), block.num_src)
        if block.degree is None or block.num_src == block.num_dst:
            return handle
        return give_degrees(handle, block.counts, end_degrees(block))

    return block.cached("DGL block", make)


def graph_handle(block: Block) -> Any:
    """Return a block as a DGL graph of the sources, of which only the destinations have in-edges."""
    if block.num_src == block.num_dst:
        return block_handle(block)

    def make() -> Any:
        indptr = torch.cat([block.indptr, block.indptr[-1:].expand(block.num_src - block.num_dst)])
        degrees = end_degrees(block)
        return give_degrees(make_handle(indptr, block.indices.long(), block.num_src), degrees, degrees)

    return block.cached("DGL graph", make)


def end_degrees(block: Block) -> Tensor:
    """Return in-degrees of the sources, those of the destinations counted in the block: float32 (num_src,)."""
    return torch.cat([block.counts, block.degrees[block.num_dst :]])
