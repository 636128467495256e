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
from models.losses import LOSSES
from tasks.inference.predictor import Predictor
from tasks.kinds.of import predict
from tasks.sampling.rows.features import FeatureSource
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import GraphStore
from tests.loaders import make_loader
from tests.registered import models_of
from tests.support import as_partition, link_graph, molecule_graph, node_graph


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
    {"norm": "layer", "residual": True},
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
    whole = predict(Predictor(store), model, "test")
    pieces = predict(Predictor(store, batch_size=17, whole_graph_bytes=0), model, "test")
    for ours, theirs in ((whole.scores, pieces.scores), (whole.positive, pieces.positive)):
        if ours is not None:
            assert np.allclose(ours, theirs, atol=1e-4)
            assert np.isfinite(ours).all()
    assert model.training


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gcn", {"head": "none"}),
        ("deepgcn", {"block": "res"}),
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
    whole = predict(Predictor(store), model, "test").scores
    pieces = predict(Predictor(store, whole_graph_bytes=0, chunk_edges=50), model, "test").scores
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
