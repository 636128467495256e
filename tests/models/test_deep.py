"""Deep stacks: their formulas, and that recomputing and reversing change memory but no number."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from configs.errors import RecipeError
from configs.registry import MODELS
from models.base import GraphModel
from models.block import Batch, Block, Inputs
from models.facts import GraphFacts
from models.gnn.deepgcn import GenConv
from models.gnn.reversible import ReversibleLayer
from models.layers.layer import Dropout


def ring(num_nodes: int, dim: int, task: str = "node", dtype: torch.dtype = torch.float32) -> Batch:
    """Two in-edges a node, random features and labels, edges of two kinds."""
    generator = torch.Generator().manual_seed(7)
    indices = (torch.arange(2 * num_nodes) // 2 + torch.tensor([1, 3]).repeat(num_nodes)) % num_nodes
    block = Block(torch.arange(0, 2 * num_nodes + 1, 2), indices.to(torch.int32), num_nodes)
    block.edge_feat_cat = torch.arange(2 * num_nodes).remainder(3)[:, None]
    feat = torch.randn(num_nodes, dim, generator=generator).to(dtype)
    label = torch.randint(0, 3, (num_nodes,), generator=generator)
    offsets = torch.tensor([0, num_nodes // 2, num_nodes]) if task == "graph" else None
    return Batch([block], Inputs(torch.arange(num_nodes), feat), label, num_nodes, graph_offsets=offsets)


def deep(task: str = "node", *, edges: bool = True, **options: Any) -> GraphModel:
    torch.manual_seed(0)
    facts = GraphFacts(task, 3, 12, feature_dim=5, edge_categories=(3,) if edges else ())  # type: ignore[arg-type]
    config = MODELS.config({"name": "deepgcn", "hidden_dim": 8, "num_layers": 3, **options})
    model: GraphModel = MODELS.create(config, facts)
    return model


def gradients(model: GraphModel, batch: Batch, seed: int = 5) -> tuple[Tensor, dict[str, Tensor]]:
    """Scores and gradients of one training step, dropout seeded."""
    torch.manual_seed(seed)
    model.train()
    model.zero_grad()
    scores = model(batch)
    nn.functional.cross_entropy(scores, batch.target[: len(scores)]).backward()
    return scores.detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def saved_bytes(model: GraphModel, batch: Batch) -> int:
    """What autograd keeps from a forward pass for the backward pass, parameters left out."""
    own = {p.data_ptr() for p in model.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() not in own:
            kept[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    model.train()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        scores = model(batch)
    assert scores.requires_grad
    return sum(kept.values())


@pytest.mark.parametrize("task", ["node", "graph"])
@pytest.mark.parametrize("kind", ["plain", "res", "res+"])
def test_a_stack_is_its_formula(kind: str, task: str) -> None:
    model = deep(task, block=kind, dropout=0.0).eval()
    batch = ring(12, 5)
    x = model.encoder(batch.inputs)
    for number, layer in enumerate(model.layers):
        each: Any = layer
        if kind == "res+":
            x = each.conv(batch.blocks[0], x) if not number else x + each.conv(batch.blocks[0], each.norm(x).relu())
            continue
        y = each.norm(each.conv(batch.blocks[0], x))
        y = y if kind == "plain" and number == 2 and task == "graph" else y.relu()
        x = y + x if kind == "res" and number else y
    torch.testing.assert_close(model.represent(batch), x)
    assert model.vector_dim == x.shape[1] == 8
    if kind == "res+":
        finish: Any = model.finish
        x = finish[0](x).relu() if task == "node" else finish[0](x)
    torch.testing.assert_close(model.finish(model.represent(batch)), x)


@pytest.mark.parametrize("kind", ["res+", "plain"])
@pytest.mark.parametrize("norm", ["batch", "layer"])
def test_recomputed_layers_give_the_same(kind: str, norm: str) -> None:
    options: dict[str, Any] = {"block": kind, "norm": norm, "dropout": 0.3, "mlp_layers": 2, "learn_aggregator": True}
    plain, again = deep(**options), deep(**options, checkpoint=True)
    batch = ring(12, 5)
    expected, got = gradients(plain, batch), gradients(again, batch)
    torch.testing.assert_close(got, expected, rtol=0, atol=0)
    for (name, buffer), other in zip(plain.named_buffers(), again.buffers(), strict=True):
        assert torch.equal(buffer, other), name  # batch norms saw the batch once
    assert gradients(plain, batch, 6)[0].tolist() != expected[0].tolist()  # there is dropout


@pytest.mark.parametrize("options", [{}, {"groups": 4, "norm": "batch", "mlp_layers": 2}])
def test_reversed_layers_give_the_same_gradients(options: dict[str, Any]) -> None:
    model = deep(reversible=True, dropout=0.3, learn_aggregator=True, num_layers=4, **options).double()
    batch = ring(12, 5, dtype=torch.float64)
    scores, grads = gradients(model, batch)
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    model = deep(reversible=True, dropout=0.3, learn_aggregator=True, num_layers=4, **options).double()

    def remember(batch: Batch) -> Tensor:
        x = model.encoder(batch.inputs)
        for layer in model.layers:
            x = layer(batch.blocks[0], x)
        return x

    model.represent = remember  # type: ignore[method-assign]
    expected, expected_grads = gradients(model, batch)
    torch.testing.assert_close(scores, expected, rtol=1e-12, atol=1e-12)
    assert grads.keys() == expected_grads.keys() == {name for name, _ in model.named_parameters()}
    torch.testing.assert_close(grads, expected_grads, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(buffers, dict(model.named_buffers()))


def test_a_reversible_layer_is_its_formula() -> None:
    model = deep(reversible=True, groups=4, dropout=0.0).double()
    block, layer = ring(12, 5).blocks[0], model.layers[0]
    assert isinstance(layer, ReversibleLayer)
    x = torch.randn(12, 8, dtype=torch.float64)
    parts, outputs = x.chunk(4, 1), []
    before = parts[1] + parts[2] + parts[3]
    for group, part in zip(layer.groups, parts, strict=True):
        before = part + group(block, before)
        outputs.append(before)
    y = torch.cat(outputs, 1)
    torch.testing.assert_close(layer(block, x), y)
    back, _ = layer.reverse(block, y.detach(), torch.zeros_like(y), 0, lambda group, gradients: None)
    torch.testing.assert_close(back, x, rtol=1e-12, atol=1e-12)


def test_groups_share_the_dropout_mask() -> None:
    model = deep(reversible=True, groups=2, dropout=0.5, edges=False)
    layer: Any = model.layers[0]
    seen: list[Tensor] = []
    for group in layer.groups:
        group.norm, group.activation = nn.Identity(), Dropout(0.5)
        group.conv.forward = lambda block, x: seen.append(x == 0) or x  # type: ignore[func-returns-value]
    layer.train()(ring(12, 5).blocks[0], torch.randn(12, 8))
    assert torch.equal(seen[0], seen[1])
    assert 0 < seen[0].sum() < seen[0].numel()


def test_memory_does_not_grow_with_reversible_depth() -> None:
    batch = ring(200, 5)
    used = {
        (kind, depth): saved_bytes(deep(num_layers=depth, edges=False, **{kind: True} if kind else {}), batch)
        for kind in ("reversible", "checkpoint", "")
        for depth in (2, 4, 16)
    }
    assert used["reversible", 16] == used["reversible", 2]
    row_bytes = 4 * 8 * 200
    assert used["checkpoint", 16] - used["checkpoint", 4] <= 12 * 1.1 * row_bytes  # a layer's input, and no more
    assert used["", 16] - used["", 4] > 3 * 12 * row_bytes


def test_virtual_nodes_join_res_blocks_as_published() -> None:
    """They hear of what a layer's convolution would read, and add their own to it."""
    model: Any = deep("graph", virtual_node=True, norm="batch", num_layers=3).double().eval()
    nn.init.normal_(model.start)
    batch = ring(12, 5, "graph", torch.float64)
    graph, block = torch.arange(12) // 6, batch.blocks[0]
    state = model.start.expand(2, -1)
    x = model.layers[0].conv(block, model.encoder(batch.inputs) + state[graph])
    for layer, virtual in zip(model.layers[1:], model.virtual, strict=True):
        ready = layer.norm(x).relu()
        linear, norm = virtual.mlp[0], virtual.mlp[1]
        state = norm(linear(state + torch.stack([ready[:6].sum(0), ready[6:].sum(0)]))).relu()
        x = x + layer.conv(block, ready + state[graph])
    torch.testing.assert_close(model.represent(batch), x)
    [scores, grads] = gradients(model, batch)
    assert scores.shape == (2, 3)
    assert grads.keys() == {name for name, _ in model.named_parameters()}


@pytest.mark.parametrize("aggregator", ["mean", "sum"])
def test_messages_stay_positive_with_edge_features_too(aggregator: str) -> None:
    batch, plain = ring(7, 8), ring(7, 8)
    plain.block(0).edge_feat_cat = None
    of_edges, without = (
        GenConv(8, 8, deep(edges=edges).facts, deep(aggregator=aggregator, edges=edges).config)
        for edges in (True, False)
    )
    nn.init.zeros_(of_edges.edges.categories.table)
    x = -torch.ones(7, 8)
    expected = without._aggregate(plain.block(0), x)
    assert expected.gt(0).all()
    torch.testing.assert_close(of_edges._aggregate(batch.block(0), x), expected)


def test_reversible_layers_refuse_sampled_blocks() -> None:
    model = deep(reversible=True, edges=False)
    block = Block(torch.tensor([0, 1]), torch.tensor([1]), 2, degree=torch.tensor([1.0, 4.0]))
    batch = Batch([block], Inputs(torch.arange(2), torch.randn(2, 5)), torch.zeros(1, dtype=torch.int64), 1)
    with pytest.raises(RecipeError, match=r"train\.loader=full, cluster"):
        model(batch)
