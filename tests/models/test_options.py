"""Options of every model, each by its formula on small graphs; published recipes that they add up to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from configs.errors import RecipeError
from configs.registry import MODELS
from models.base import GraphModel
from models.block import Batch, Block, Inputs
from models.facts import GraphFacts
from models.gnn.gat import with_self_loops
from models.gnn.gcn import propagate
from models.layers.layer import Activation, DropoutFirst

N = 11


def graph(dim: int = 5, seed: int = 0, *, weights: bool = False) -> Batch:
    """Random edges, of nodes without some too."""
    rng = np.random.default_rng(seed)
    dst = np.sort(rng.integers(0, N - 2, 30))
    indptr = torch.from_numpy(np.searchsorted(dst, np.arange(N + 1)).astype(np.int64))
    block = Block(indptr, torch.from_numpy(rng.integers(0, N, 30).astype(np.int32)), N)
    if weights:
        block.weight = torch.from_numpy(rng.random(30).astype(np.float32))
    feat = torch.from_numpy(rng.standard_normal((N, dim)).astype(np.float32)) if dim else None
    return Batch([block], Inputs(torch.arange(N), feat), torch.empty(0), N)


def double(model: GraphModel, batch: Batch) -> tuple[GraphModel, Batch]:
    """In float64, where attention is plain torch: each shape of heads would be a kernel to compile."""
    batch.inputs.feat = batch.inputs.feat.double()
    return model.double(), batch


def make(name: str, task: str = "node", facts: dict[str, Any] | None = None, **options: Any) -> GraphModel:
    torch.manual_seed(0)
    given = {"feature_dim": 5, **(facts or {})}
    config = MODELS.config({"name": name, "hidden_dim": 8, "num_layers": 2, **options})
    model: GraphModel = MODELS.create(config, GraphFacts(task, 3, N, **given))  # type: ignore[arg-type]
    return model


def test_cora_gcn_as_published() -> None:
    """Kipf and Welling: ReLU between two convolutions, the last one makes the scores."""
    model = make("gcn", hidden_dim=16, dropout=0.5, input_dropout=0.5, norm="none", head="none")
    assert {name: tuple(p.shape) for name, p in model.named_parameters()} == {
        "layers.0.conv.linear.weight": (16, 5),
        "layers.0.conv.bias": (16,),
        "layers.1.conv.linear.weight": (3, 16),
        "layers.1.conv.bias": (3,),
    }
    batch = graph()
    block, first, last = batch.blocks[0], *(layer.conv for layer in model.layers)  # type: ignore[misc]
    hidden = propagate(block, batch.inputs.feat @ first.linear.weight.T) + first.bias  # type: ignore[operator,union-attr]
    expected = propagate(block, hidden.relu() @ last.linear.weight.T) + last.bias  # type: ignore[operator,union-attr]
    torch.testing.assert_close(model.eval()(batch), expected)
    rows = model.train().encoder(batch.inputs)
    assert 0.2 < (rows == 0).float().mean() < 0.8  # the inputs have dropout


def test_cora_gat_as_published() -> None:
    """Eight heads of eight side by side, ELU, one averaged output head, dropout on inputs and coefficients."""
    options = {"norm": "none", "head": "none", "activation": "elu", "output_heads": 1, "num_layers": 2}
    model = make("gat", hidden_dim=64, heads=8, dropout=0.6, input_dropout=0.6, attention_dropout=0.6, **options)
    model, batch = double(model.eval(), graph())
    first, last = (layer.conv for layer in model.layers)
    assert (first.heads, first.dim, first.mean) == (8, 8, False)
    assert (last.heads, last.dim, last.mean) == (1, 3, True)
    hidden = F.elu(first(batch.blocks[0], batch.inputs.feat))
    assert hidden.shape == (N, 64)
    torch.testing.assert_close(model(batch), last(batch.blocks[0], hidden))


@pytest.mark.parametrize("name", ["gat", "gatv2"])
def test_attention_dropout_acts_in_training_only_and_by_the_seed(name: str) -> None:
    model, batch = double(make(name, dropout=0.0, norm="none", heads=2, attention_dropout=0.5), graph())
    calm = model.eval()(batch)
    assert torch.equal(calm, model(batch))
    model.train()
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(model(batch))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert not torch.allclose(drawn[0], calm)


@pytest.mark.parametrize("output", ["mean", "concat"])
def test_the_last_heads_combine(output: str) -> None:
    model, batch = double(make("gatv2", heads=4, output_heads=2, output=output, hidden_dim=8), graph())
    last: Any = model.layers[1]
    assert (last.conv.heads, last.conv.dim) == ((2, 8) if output == "mean" else (2, 4))
    assert model(batch).shape == (N, 3)


def test_self_loops_are_the_last_edge_of_every_node() -> None:
    block = graph().blocks[0]
    looped = with_self_loops(block)
    assert with_self_loops(block) is looped
    for v in range(N):
        own = looped.indices[looped.indptr[v] : looped.indptr[v + 1]].tolist()
        assert own == [*block.indices[block.indptr[v] : block.indptr[v + 1]].tolist(), v]


@pytest.mark.parametrize(("name", "maps"), [("graphsage", 1), ("gat", 2), ("gcn", 0)])
def test_norm_first_is_its_formula(name: str, maps: int) -> None:
    """The residual blocks of Platonov et al.: SAGE with one further map, GAT with two."""
    options = {"norm_first": True, "feed_forward": maps, "activation": "gelu", "norm": "layer", "dropout": 0.2}
    model, batch = double(make(name, **options).eval(), graph())
    assert model.encoder.linear is not None
    x = F.gelu(model.encoder.linear(batch.inputs.feat))
    for layer in model.layers:
        each: Any = layer
        assert isinstance(each.norm, nn.LayerNorm)
        y = each.conv(batch.blocks[0], each.norm(x))
        if maps == 2:
            y = y @ each.feed_forward.first.weight.T + each.feed_forward.first.bias
        y = F.gelu(y)
        x = x + (each.feed_forward.last(y) if maps else y)
    torch.testing.assert_close(model.represent(batch), x)
    finish, head = model.finish, model.head
    assert isinstance(finish, nn.LayerNorm)
    torch.testing.assert_close(model(batch), head.linear(finish(x)))  # type: ignore[operator]
    torch.testing.assert_close(model.score(x), model(batch))


@pytest.mark.parametrize("name", ["gcn", "gin"])
def test_embeddings_have_the_width_that_was_asked_for(name: str) -> None:
    model = make(name, facts={"feature_dim": 0}, embedding_dim=6)
    assert model.encoder.embedding.weight.shape == (N, 6)
    assert model.encoder.out_dim == (8 if name == "gin" else 6)
    assert model(graph(0)).shape == (N, 3)


def test_known_labels_are_further_inputs() -> None:
    model = make("graphsage", label_reuse=True).eval()
    label = torch.full((N,), -1)
    label[:3] = torch.tensor([2, 0, 1])
    batch = graph()
    batch.inputs.label = label
    rows = model.encoder(batch.inputs)
    assert torch.equal(rows[:, :5], batch.inputs.feat)  # type: ignore[arg-type]
    assert rows[:3, 5:].tolist() == [[0, 0, 1], [1, 0, 0], [0, 1, 0]]
    assert not rows[3:, 5:].any()
    assert not model.reads_mean
    scores = model(batch)
    batch.inputs.label = torch.full((N,), -1)
    assert not torch.allclose(model(batch), scores)


def test_known_labels_of_several_columns_or_without_features() -> None:
    label = torch.full((N, 3), float("nan"))
    label[0] = torch.tensor([1.0, 0.0, 1.0])
    encoder = make("gin", facts={"feature_dim": 0}, label_reuse=True).encoder
    assert encoder.labels is not None
    expected = encoder.embedding.weight.clone()
    expected[0] += encoder.labels.weight @ torch.tensor([1.0, -1.0, 1.0])
    torch.testing.assert_close(encoder(replace(graph(0).inputs, label=label)), expected)


@pytest.mark.parametrize(("name", "aggregator"), [("gcn", None), ("graphsage", "mean"), ("graphsage", "sum")])
def test_edge_weights_weigh_messages(name: str, aggregator: str | None) -> None:
    options = {"aggregator": aggregator} if aggregator else {}
    model = make(name, facts={"has_edge_weights": True}, edge_weights=True, **options).eval()
    batch = graph(weights=True)
    block, conv, x = batch.blocks[0], model.layers[0].conv, batch.inputs.feat  # type: ignore[union-attr]
    assert block.weight is not None
    assert x is not None
    a = torch.zeros(N, N)
    targets = torch.repeat_interleave(torch.arange(N), block.indptr[1:] - block.indptr[:-1])
    a.index_put_((targets, block.indices.long()), block.weight, accumulate=True)
    if name == "gcn":
        norm = (block.counts + 1).rsqrt()
        expected = (norm[:, None] * (a + torch.eye(N)) * norm) @ x @ conv.linear.weight.T + conv.bias
    else:
        neighbors = a @ x / (a.sum(1, keepdim=True).clamp(min=1e-9) if aggregator == "mean" else 1)
        expected = conv.own(x) + conv.neighbor(neighbors)
    torch.testing.assert_close(conv(block, x), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["sgc", "sign"])
def test_rows_that_were_propagated_before_give_the_same(name: str) -> None:
    model = make(name, num_layers=3, norm="layer").eval()
    batch = graph()
    assert model.num_propagations == 3
    hops = [batch.inputs.feat]
    for _ in range(3):
        hops.append(propagate(batch.blocks[0], hops[-1]))  # type: ignore[arg-type]
    rows = Inputs(torch.arange(N), torch.cat(hops, 1))  # type: ignore[arg-type]
    torch.testing.assert_close(model(Batch([], rows, torch.empty(0), N)), model(batch))
    if name == "sgc":
        return
    torch.testing.assert_close(model.represent(batch), rows.feat)
    finish: Any = model.finish
    parts = [F.relu(hop[1](hop[0](x))) for hop, x in zip(finish.hops, hops, strict=True)]
    torch.testing.assert_close(finish(rows.feat), F.relu(finish.mix[1](finish.mix[0](torch.cat(parts, 1)))))


def test_edges_play_no_part_in_an_mlp() -> None:
    model, batch, other = make("mlp").eval(), graph(), graph(seed=1)
    other.inputs = batch.inputs
    before = model(batch)
    torch.testing.assert_close(model(other), before)
    batch.inputs.feat[3] += 1
    assert (model(batch) != before).any(1).nonzero().flatten().tolist() == [3]


def test_sgc_is_a_linear_model_of_the_last_power() -> None:
    model = make("sgc").eval()
    batch = graph()
    x = propagate(batch.blocks[0], propagate(batch.blocks[0], batch.inputs.feat))  # type: ignore[arg-type]
    torch.testing.assert_close(model(batch), model.head.linear(x))  # type: ignore[operator,union-attr]


def test_who_reads_only_a_mean_of_raw_features() -> None:
    assert make("graphsage").reads_mean
    assert make("graphsage", aggregator="sum").reads_mean
    for options in ({"aggregator": "max"}, {"input_dropout": 0.1}, {"norm_first": True}):
        assert not make("graphsage", **options).reads_mean
    assert not any(make(name).reads_mean for name in ("gcn", "gat", "gin"))
    assert not make("graphsage", facts={"feature_dim": 0}).reads_mean
    assert not make("graphsage", facts={"categories": (3,)}).reads_mean


@pytest.mark.parametrize("aggregator", ["mean", "sum"])
@pytest.mark.parametrize("hidden", [4, 8])  # maps first, or aggregates first
def test_a_mean_that_the_loader_took_gives_the_same(aggregator: str, hidden: int) -> None:
    model = make("graphsage", aggregator=aggregator, hidden_dim=hidden, num_layers=1).eval()
    batch = graph()
    block, feat = batch.blocks[0], batch.inputs.feat
    means = [feat[block.indices[a:b].long()].mean(0).nan_to_num() for a, b in block.indptr.unfold(0, 2, 1)]
    fused = Block(block.indptr, torch.empty(0, dtype=torch.int32), N, degree=block.counts, mean=torch.stack(means))
    torch.testing.assert_close(model(Batch([fused], batch.inputs, torch.empty(0), N)), model(batch))


def test_relations_have_maps_of_their_own() -> None:
    model = make("rgcn", facts={"num_edge_types": 4}).eval()
    batch = graph()
    batch.blocks[0].edge_type = torch.arange(30) % 3  # the fourth has no edges
    before = model(batch)
    batch.blocks[0] = replace(batch.blocks[0], edge_type=(torch.arange(30) + 1) % 3)
    assert not torch.allclose(model(batch), before)


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("task", ["node", "link", "graph"])
def test_the_stack_is_its_formula(task: str, residual: bool) -> None:
    model, batch = make("graphsage", task, residual=residual, norm="layer", num_layers=3).eval(), graph()
    x = batch.inputs.feat
    for number, layer in enumerate(model.layers):
        each: Any = layer
        last = number == 2
        y = each.conv(batch.blocks[0], x)
        if not (last and task == "link"):
            assert isinstance(each.norm, nn.LayerNorm)
            y = each.norm(y)
        if not last or task == "node":
            y = y.clamp(min=0)
        if residual:
            y = y + (x @ each.shortcut.weight.T if number == 0 else x)
        x = y
    torch.testing.assert_close(model.represent(batch), x)


def test_dropout_acts_in_training_only() -> None:
    model, batch = make("gcn", hidden_dim=64, num_layers=1, dropout=0.75, norm="none"), graph()
    kept = model.eval().represent(batch)
    dropped = model.train().represent(batch)
    alive = dropped != 0
    torch.testing.assert_close(dropped[alive], 4 * kept[alive])
    assert 0.15 < alive.float().sum() / (kept != 0).float().sum() < 0.35


@pytest.mark.parametrize("kind", ["relu", "elu", "gelu"])
def test_dropout_stands_behind_the_activation_or_before_it(kind: str) -> None:
    x, function = torch.ones(40, 50), getattr(F, kind)
    for module, kept in ((Activation(kind, 0.5), 2 * function(x)), (DropoutFirst(kind, 0.5), function(2 * x))):
        y = module.train()(x)
        torch.testing.assert_close(y, torch.where(y == 0, 0, kept))
        assert 0.4 < (y == 0).float().mean() < 0.6
        torch.testing.assert_close(module.eval()(-x), function(-x))


@pytest.mark.parametrize("name", ["gin", "deepgcn"])
@pytest.mark.parametrize("virtual", [False, True])
def test_virtual_nodes_carry_messages_between_components_of_a_graph(name: str, virtual: bool) -> None:
    lonely = Block(torch.zeros(5, dtype=torch.int64), torch.zeros(0, dtype=torch.int32), 4)
    model, x = make(name, "graph", virtual_node=virtual).eval(), torch.randn(4, 5)
    vectors = []
    for change in (0, 1):
        inputs = Inputs(torch.arange(4), x + change * (torch.arange(4) == 0)[:, None])
        batch = Batch([lonely], inputs, torch.empty(0), 2, graph_offsets=torch.tensor([0, 2, 4]))
        vectors.append(model.represent(batch))
    before, after = vectors
    assert torch.equal(before[1], after[1]) is not virtual  # the other node of the same graph
    assert torch.equal(before[2:], after[2:])  # the other graph


@pytest.mark.parametrize(
    ("name", "task", "options", "message"),
    [
        ("gcn", "link", {"head": "none"}, r"model\.head is for node tasks"),
        ("gcn", "graph", {"label_reuse": True}, r"model\.label_reuse is for node tasks"),
        ("gcn", "node", {"embedding_dim": 4}, r"model\.embedding_dim is for graphs without node features"),
        ("gin", "node", {"edge_weights": True}, r"model\.edge_weights does nothing in gin"),
        ("gcn", "node", {"edge_weights": True}, r"the graph's edges have no weights"),
        ("graphsage", "node", {"edge_weights": True, "aggregator": "max"}, r"does nothing with aggregator=max"),
        ("gcn", "node", {"norm_first": True, "residual": True}, r"residual cannot be used with model\.norm_first"),
        ("mlp", "node", {"label_reuse": True}, r"model\.label_reuse does nothing in mlp"),
        ("sgc", "node", {"residual": True}, r"model\.residual does nothing in sgc"),
        ("sgc", "node", {"activation": "elu"}, r"model\.activation does nothing in sgc"),
        ("sign", "node", {"head": "none"}, r"model\.head does nothing in sign"),
        ("gin", "node", {"decoder": "dot"}, "remove it"),
        ("gin", "node", {"pooling": "sum"}, "remove it"),
        ("gin", "graph", {"decoder_layers": 2}, "remove it"),
        ("gin", "link", {"decoder": "dot", "decoder_layers": 2}, "remove it"),
        ("gin", "node", {"virtual_node": True}, "remove it"),
        ("gat", "node", {"heads": 3}, r"model\.heads=3 does not divide the layer's width 8"),
        ("gat", "node", {"heads": 2, "head": "none", "output": "concat"}, r"output_heads=2 does not divide .* width 3"),
        ("deepgcn", "node", {"norm_first": True}, "model.norm_first does nothing in deepgcn"),
        ("deepgcn", "node", {"residual": True}, "model.residual does nothing"),
        ("deepgcn", "node", {"head": "none"}, "model.head=none does nothing"),
        ("deepgcn", "node", {"aggregator": "mean", "beta": 2.0}, "model.beta is for model.aggregator=softmax"),
        ("deepgcn", "node", {"aggregator": "sum", "learn_aggregator": True}, "a sum has nothing to learn"),
        ("deepgcn", "node", {"aggregator": "max", "edges": True}, "does not read edge features"),
        ("deepgcn", "node", {"groups": 2}, "model.groups is for model.reversible"),
        ("deepgcn", "node", {"reversible": True, "groups": 3}, "groups=3 does not divide hidden_dim=8"),
        ("deepgcn", "node", {"reversible": True, "block": "res"}, "model.reversible works with model.block=res. only"),
        ("deepgcn", "node", {"reversible": True, "checkpoint": True}, "model.checkpoint=false only"),
        ("deepgcn", "node", {"virtual_node": True}, "virtual_node is for graph tasks and this is a node task"),
        ("deepgcn", "link", {"virtual_node": True}, "virtual_node is for graph tasks and this is a link task"),
        ("deepgcn", "graph", {"virtual_node": True, "block": "res"}, "virtual_node works with model.block=res. only"),
        ("deepgcn", "graph", {"virtual_node": True, "checkpoint": True}, "model.checkpoint=false only"),
        ("deepgcn", "graph", {"virtual_node": True, "reversible": True}, "model.reversible=false only"),
        ("deepgcn", "graph", {"virtual_node": True, "num_layers": 1}, "take model.num_layers=2"),
    ],
)
def test_options_that_do_not_fit_are_refused(name: str, task: str, options: dict[str, Any], message: str) -> None:
    facts = {"edge_categories": (3,)} if options.pop("edges", False) else None
    with pytest.raises(RecipeError, match=message):
        make(name, task, facts, **options)
