"""Models: formulas on small graphs against plain references, and contracts that every registered one keeps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from configs.errors import RecipeError
from configs.registry import MODELS
from models.base import GraphModel
from models.block import Batch, Block, Inputs, aggregate
from models.facts import GraphFacts
from models.gnn.gcn import GcnConv
from models.gnn.gin import GinConv
from models.gnn.graphsage import SageConv
from models.layers.dropout import Dropout
from models.losses import LOSSES
from tasks.inference.predictor import Predictor
from tasks.sampling.rows.features import FeatureSource
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import GraphStore
from tests.loaders import make_loader
from tests.registered import models_of
from tests.support import as_partition, link_graph, molecule_graph, node_graph

# Four nodes; in-edges: 0 <- 1, 2; 1 <- 0; 2 <- (none); 3 <- 0, 1, 3.
SOURCES = [[1, 2], [0], [], [0, 1, 3]]


def block(**extra: torch.Tensor) -> Block:
    indptr = torch.tensor(np.concatenate([[0], np.cumsum([len(s) for s in SOURCES])]))
    return Block(indptr, torch.tensor([u for sources in SOURCES for u in sources], dtype=torch.int32), 4, **extra)


def reference(x: torch.Tensor, reduce: str) -> torch.Tensor:
    rows = []
    for sources in SOURCES:
        rows.append(torch.zeros(x.shape[1]) if not sources else getattr(x[sources], reduce)(0))
    return torch.stack(
        [row.values if hasattr(row, "values") and not isinstance(row, torch.Tensor) else row for row in rows]
    )


@pytest.mark.parametrize("reduce", ["sum", "mean", "amax"])
def test_aggregate_and_its_gradient(reduce: str) -> None:
    x = torch.randn(4, 5, dtype=torch.float32, requires_grad=True)
    y = aggregate(block(), x, reduce.removeprefix("a"))
    expected = reference(x, reduce)
    assert torch.allclose(y, expected)
    weight = torch.randn_like(y)
    ours = torch.autograd.grad((y * weight).sum(), x)[0]
    theirs = torch.autograd.grad((expected * weight).sum(), x)[0]
    assert torch.allclose(ours, theirs, atol=1e-6)


@pytest.mark.parametrize(("in_dim", "out_dim"), [(5, 3), (3, 5)])  # maps first, or aggregates first
@pytest.mark.parametrize("aggregator", ["mean", "sum", "max"])
def test_sage_is_its_formula(in_dim: int, out_dim: int, aggregator: str) -> None:
    torch.manual_seed(0)
    conv, x = SageConv(in_dim, out_dim, aggregator), torch.randn(4, in_dim)
    pooled = x if conv.pool is None else conv.pool(x)
    expected = conv.own(x) + conv.neighbor(reference(pooled, "amax" if aggregator == "max" else aggregator))
    assert torch.allclose(conv(block(), x), expected, atol=1e-6)


@pytest.mark.parametrize(("in_dim", "out_dim"), [(5, 3), (3, 5)])
def test_gcn_is_its_formula(in_dim: int, out_dim: int) -> None:
    torch.manual_seed(0)
    conv, x = GcnConv(in_dim, out_dim), torch.randn(4, in_dim)
    adjacency = torch.eye(4)
    for v, sources in enumerate(SOURCES):
        for u in sources:
            adjacency[v, u] += 1
    degree = torch.tensor([len(s) + 1.0 for s in SOURCES]).rsqrt()
    expected = (degree[:, None] * adjacency * degree) @ conv.linear(x) + conv.bias
    assert torch.allclose(conv(block(), x), expected, atol=1e-6)


def test_gin_adds_edge_features_before_the_relu() -> None:
    torch.manual_seed(0)
    facts = GraphFacts("node", 2, 4, edge_feature_dim=3, edge_categories=(4, 2))
    conv = GinConv(5, 6, facts).eval()
    conv.eps.data.fill_(0.3)
    edges = block(edge_feat=torch.randn(6, 3), edge_feat_cat=torch.randint(0, 2, (6, 2)))
    x, at, rows = torch.randn(4, 5), 0, []
    assert conv.edges is not None
    encoded = conv.edges(edges, torch.float32)
    for v, sources in enumerate(SOURCES):
        total = 1.3 * x[v]
        for u in sources:
            total = total + torch.relu(x[u] + encoded[at])
            at += 1
        rows.append(total)
    assert torch.allclose(conv(edges, x), conv.mlp(torch.stack(rows)), atol=1e-5)


def test_a_sampled_sum_has_the_full_sum_as_its_mean(tmp_path: Path) -> None:
    parent = as_partition(node_graph(tmp_path, 120))
    store = GraphStore(parent.folder, parent.manifest)
    features = FeatureSource.open(store, edges=False)
    exact = make_loader("neighbor", store, features, fanout=(-1,)).batch(np.arange(30), 0)
    full = aggregate(exact.blocks[0], exact.inputs.feat, "sum")  # type: ignore[arg-type]
    loader = make_loader("neighbor", store, features, fanout=(3,))
    sums = []
    for key in range(600):
        batch = loader.batch(np.arange(30), key)
        sums.append(aggregate(batch.blocks[0], batch.inputs.feat, "sum"))  # type: ignore[arg-type]
    stacked = torch.stack(sums)
    error = (stacked.mean(0) - full).abs() / (stacked.std(0) / 600**0.5 + 1e-6)
    assert error.max() < 6


def test_losses_leave_missing_labels_out() -> None:
    scores = torch.tensor([[2.0, -1.0], [0.5, 0.5]], requires_grad=True)
    target = torch.tensor([[1.0, float("nan")], [float("nan"), 0.0]])
    expected = (torch.nn.functional.softplus(torch.tensor(-2.0)) + torch.nn.functional.softplus(torch.tensor(0.5))) / 2
    assert torch.allclose(LOSSES["multilabel"](scores, target), expected)
    assert torch.allclose(LOSSES["regression"](scores, target), torch.tensor((1.0 + 0.25) / 2))
    assert torch.allclose(
        LOSSES["multiclass"](scores, torch.tensor([0, -1])), torch.nn.functional.softplus(torch.tensor(-3.0))
    )
    nothing = LOSSES["binary"](scores, torch.full((2, 2), float("nan")))
    nothing.backward()
    assert nothing == 0
    pairs = torch.tensor([1.0, -1.0, 3.0])
    softplus = torch.nn.functional.softplus
    expected = softplus(-pairs[0]) + (softplus(pairs[1]) + softplus(pairs[2])) / 2
    assert torch.allclose(LOSSES["link"](pairs, torch.tensor([1.0, 0.0, 0.0])), expected)


MAKE = {"node": node_graph, "link": link_graph, "graph": molecule_graph}


LAYERED: list[dict[str, object]] = [
    {},
    {"norm": "layer", "residual": True, "jumping": "max"},
    {"jumping": "cat"},
    {"norm_first": True, "feed_forward": 1},
]


@pytest.mark.parametrize("options", LAYERED)
@pytest.mark.parametrize("task", ["node", "link", "graph"])
@pytest.mark.parametrize("name", models_of("gnn"))
def test_every_model_predicts_alike_whole_and_layer_by_layer(
    tmp_path: Path, name: str, task: str, options: dict[str, object]
) -> None:
    torch.manual_seed(0)
    parent = as_partition(MAKE[task](tmp_path))
    store = GraphStore(parent.folder, parent.manifest)
    config = MODELS.config({"name": name, "hidden_dim": 8, "num_layers": 3, **options})
    model: GraphModel
    refusal = ""
    try:
        model = MODELS.create(config, graph_facts(parent.manifest))
    except RecipeError as error:
        refusal = str(error)
    if refusal:
        assert any(f"model.{option} " in refusal for option in options)
        return
    whole = Predictor(store).predict(model, "test")
    pieces = Predictor(store, batch_size=17, whole_graph_bytes=0).predict(model, "test")
    for ours, theirs in ((whole.scores, pieces.scores), (whole.positive, pieces.positive)):
        if ours is not None:
            assert np.allclose(ours, theirs, atol=1e-4)
            assert np.isfinite(ours).all()
    assert model.training


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gcn", {"head": "none"}),
        ("deepgcn", {"block": "res", "jumping": "cat"}),
        ("deepgcn", {"reversible": True}),
    ],
)
def test_layers_of_other_widths_predict_alike(tmp_path: Path, name: str, options: dict[str, object]) -> None:
    parent = node_graph(tmp_path)
    store = GraphStore(parent.folder, parent.manifest)
    weight = np.random.default_rng(0).exponential(1, len(store["csc_indices"])).astype(np.float32)
    store._open["edge_weight"] = weight
    store.manifest.arrays["edge_weight"] = store.manifest.arrays["csc_indices"]
    config = MODELS.config({"name": name, "hidden_dim": 8, "num_layers": 3, **options})
    model: GraphModel = MODELS.create(config, graph_facts(store.manifest))
    whole = Predictor(store).predict(model, "test").scores
    pieces = Predictor(store, whole_graph_bytes=0, chunk_edges=50).predict(model, "test").scores
    np.testing.assert_allclose(pieces, whole, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("node", {"decoder": "dot"}),
        ("node", {"pooling": "sum"}),
        ("graph", {"decoder_layers": 2}),
        ("link", {"decoder": "dot", "decoder_layers": 2}),
        ("node", {"virtual_node": True}),
    ],
)
def test_options_that_would_do_nothing_are_refused(task: str, options: dict[str, object]) -> None:
    facts = GraphFacts(task, 2, 10, 4)  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match="remove it"):
        MODELS.create(MODELS.config({"name": "gin", **options}), facts)


@pytest.mark.parametrize("name", ["gin", "deepgcn"])
def test_virtual_nodes_carry_messages_between_components_of_a_graph(name: str) -> None:
    torch.manual_seed(0)
    facts = GraphFacts("graph", 1, 4, 3)
    lonely = Block(torch.zeros(5, dtype=torch.int64), torch.zeros(0, dtype=torch.int32), 4)
    for virtual, moves in ((False, False), (True, True)):
        config = MODELS.config({"name": name, "hidden_dim": 8, "num_layers": 2, "virtual_node": virtual})
        model: GraphModel = MODELS.create(config, facts).eval()
        x = torch.randn(4, 3)
        offsets = torch.tensor([0, 2, 4])
        before = model.represent(Batch([lonely], Inputs(torch.arange(4), x), torch.empty(0), 2, graph_offsets=offsets))
        changed = x.clone()
        changed[0] += 1
        inputs = Inputs(torch.arange(4), changed)
        after = model.represent(Batch([lonely], inputs, torch.empty(0), 2, graph_offsets=offsets))
        assert torch.equal(before[1], after[1]) is not moves  # the other node of the same graph
        assert torch.equal(before[2:], after[2:])  # the other graph


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.9])
def test_dropout_drops_its_share_at_random_and_keeps_the_mean(rate: float) -> None:
    torch.manual_seed(0)
    layer = Dropout(rate)
    x = torch.ones(999, 1001, requires_grad=True)
    y = layer(x)
    count, expected = int((y != 0).sum()), x.numel() * (1 - rate)
    assert abs(count - expected) <= 5 * (x.numel() * rate * (1 - rate)) ** 0.5
    for part in (y[:, ::4], y[:, 1::4], y[:, 2::4], y[:, 3::4]):  # whichever bits of a word an element gets
        assert abs(part.mean().item() - 1) < 0.02
    y.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, y.detach())
    assert torch.equal(layer.eval()(x), x)
    torch.manual_seed(0)
    assert torch.equal(layer.train()(x), y)
