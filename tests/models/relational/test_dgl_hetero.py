"""The model dgl_hetero against dgl.nn.pytorch.HeteroGraphConv on random typed blocks, forward and gradient."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from configs.errors import RecipeError
from models.dgl.adapter import load_dgl
from models.dgl.convolutions import CONVOLUTIONS, check_convolution
from models.relational.base import RelationalModel
from models.relational.batch import TypedBlock
from tests.models.relational.typed_batches import FACTS, TYPES, make, random_batch
from tests.support import WITHOUT_DGL

pytestmark = pytest.mark.skipif(WITHOUT_DGL, reason="DGL has no wheel for this Python")

PLAIN_CONVS = ["AGNNConv", "DotGatConv", "EdgeConv", "GATConv", "GATv2Conv", "GINConv", "GraphConv", "SAGEConv"]
EDGE_CONVS = ["CFConv", "EdgeGATConv", "GINEConv", "NNConv"]


class Flat(torch.nn.Module):
    """A convolution with its heads side by side; DGL's EdgeConv fails where there is no edge, and means 0."""

    def __init__(self, conv: torch.nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, graph: Any, pair: tuple[Tensor, Tensor], *args: Any) -> Tensor:
        if type(self.conv).__name__ == "EdgeConv" and graph.num_edges() == 0:
            return torch.zeros(len(pair[1]), 12)
        return self.conv(graph, pair, *args).flatten(1)


def dgls_own(conv: Any, block: TypedBlock, x: dict[int, Tensor], aggregate: str) -> dict[int, Tensor]:
    """The same weights in DGL's HeteroGraphConv, on a DGL block of all relations with edges at once."""
    dgl = load_dgl()
    edges, mods, arguments = {}, {}, {}
    for number in conv.hop.relations:
        relation = block.by_number[number]
        triplet = TYPES[relation.source_type], f"r{number}", TYPES[relation.target_type]
        part = conv.mods[str(number)]
        indices = relation.indices.long()
        edges[triplet] = "csc", (relation.indptr, indices, torch.arange(len(indices)))
        mods[f"r{number}"] = Flat(part.conv)
        if part.edges is not None:
            arguments[f"r{number}"] = (part.edges(relation),)
    counts = [{TYPES[t]: n for t, n in enumerate(sizes)} for sizes in (block.num_src, block.num_dst)]
    names = [{t for ends in edges for t in (ends[side],)} for side in (0, 2)]
    graph = dgl.create_block(
        edges, *({name: count[name] for name in used} for count, used in zip(counts, names, strict=True))
    )
    layer = dgl.nn.pytorch.HeteroGraphConv(mods, aggregate=aggregate)
    inputs = {TYPES[t]: rows for t, rows in x.items()}
    ends = {TYPES[t]: rows[: block.num_dst[t]] for t, rows in x.items()}
    rows_of_types = layer(graph, (inputs, ends), mod_args=arguments)
    return {t: rows_of_types[TYPES[t]] for t in x if TYPES[t] in rows_of_types}


def check_equal(model: RelationalModel, aggregate: str, *, seed: int) -> None:
    batch = random_batch(seed=seed)
    for block, layer in zip(batch.blocks, model.layers, strict=True):
        conv: Any = layer.conv
        other = copy.deepcopy(conv)
        x = {t: torch.randn(block.num_src[t], 12, requires_grad=True) for t in sorted(layer.hop.sources)}
        y = {t: rows.detach().clone().requires_grad_() for t, rows in x.items()}
        made, expected = conv(block, x), dgls_own(other, block, y, aggregate)
        assert expected
        if aggregate == "stack":
            expected = {t: other.stacks[str(t)](rows.flatten(1)) for t, rows in expected.items()}
        weights = {t: torch.randn_like(rows) for t, rows in expected.items()}
        torch.testing.assert_close({t: made[t] for t in expected}, expected, rtol=1e-4, atol=1e-5)
        gradients = []
        for rows, module, given in ((made, conv, x), (expected, other, y)):
            total = sum((rows[t] * weight).sum() for t, weight in weights.items())
            leaves = [*module.parameters(), *given.values()]
            gradients.append(torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True))
        torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", [*PLAIN_CONVS, *EDGE_CONVS])
def test_convolutions_are_dgls_own(name: str) -> None:
    """Two relations have features of edges, the others read none."""
    conv = {"default": name} if name in PLAIN_CONVS else {"default": "SAGEConv", "has": name, "in": name}
    check_equal(make("dgl_hetero", conv=conv), "sum", seed=len(name))


@pytest.mark.parametrize("aggregate", ["sum", "mean", "max", "min", "stack"])
def test_aggregates_are_dgls_own(aggregate: str) -> None:
    mixed = {"default": "SAGEConv", "of": {"name": "GATv2Conv", "num_heads": 3}, "has": "GraphConv", "about": "GINConv"}
    check_equal(make("dgl_hetero", conv=mixed, aggregate=aggregate), aggregate, seed=7)


def test_all_that_fit_are_compared_and_the_others_refused() -> None:
    fitting = set()
    for name in CONVOLUTIONS:
        with contextlib.suppress(RecipeError):
            check_convolution("default", name, {}, width=12)
            fitting.add(name)
    assert fitting == {*PLAIN_CONVS, *EDGE_CONVS}


def test_a_type_without_relations_keeps_its_vectors() -> None:
    """No relation leads to reviews (3)."""
    model, batch = make("dgl_hetero", conv={"default": "SAGEConv"}), random_batch(seed=1)
    layer: Any = model.layers[0]
    x = {t: torch.randn(batch.blocks[0].num_src[t], 12) for t in layer.hop.sources}
    assert torch.equal(layer.conv(batch.blocks[0], x)[3], x[3][: batch.blocks[0].num_dst[3]])


@pytest.mark.parametrize(
    ("conv", "message"),
    [
        ({"default": "SageConv"}, r"no such convolution \(did you mean"),
        ({"default": {"name": "GATConv", "head": 4}}, r"model.conv\[default\]: GATConv has no option 'head'"),
        ({"default": {"name": "GATConv", "num_heads": 5}}, r"num_heads=5 does not divide model.hidden_dim=12"),
        ({"default": {"name": "GATConv", "num_heads": 0}}, r"num_heads=0 does not divide"),
        ({"default": {"heads": 4}}, r"model.conv\[default\] needs `name`"),
        ({"default": {"name": "GraphConv", "norm": "both"}}, r"divides by out-degrees"),
        ({"default": {"name": "SAGEConv", "aggregator_type": "median"}}, r"model.conv\[orders\]: SAGEConv refuses"),
        ({"default": "RelGraphConv"}, r"reads all relations itself"),
        ({"default": "GMMConv"}, r"reads degrees"),
        ({"default": "ChebConv"}, r"wants nodes of one type"),
        ({"default": "HeteroGraphConv"}, r"model dgl_hetero"),
        ({"default": "NNConv"}, r"model.conv\[orders\] reads edge features, and edges of orders have none"),
        ({"orders": "SAGEConv"}, r"says nothing of the relation of; name a convolution for it"),
        ({"default": "SAGEConv", "order": "GATConv"}, r"no relation order \(did you mean 'orders'\?\)"),
        ({}, r"at least 1"),
    ],
)
def test_what_does_not_fit_is_said(conv: dict[str, Any], message: str) -> None:
    with pytest.raises((RecipeError, ValueError), match=message):
        make("dgl_hetero", conv=conv)
    with pytest.raises(RecipeError, match="link task"):
        make("dgl_hetero", conv={"default": "SAGEConv"}, facts=dataclasses.replace(FACTS, task="link"))
