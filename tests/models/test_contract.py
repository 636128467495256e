"""What every registered model keeps, on node, link and graph tasks; and that a user's own file is enough for one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from configs.errors import RecipeError
from configs.registry import MODELS
from configs.trust import own_files
from models.base import GraphModel
from models.block import Batch, Block, Inputs, aggregate
from models.losses.chosen import loss_of
from tasks.inference.predictor import Predictor
from tasks.kinds.of import predict
from tasks.sampling.rows.features import FeatureSource, whole_graph
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import GraphStore
from tasks.train.loaders.base import Loader
from tests.loaders import make_loader
from tests.registered import forget_registered, models_of
from tests.support import WITHOUT_DGL, link_graph, molecule_graph, node_graph

MAKE = {"node": node_graph, "link": link_graph, "graph": molecule_graph}
LOADERS = [("node", "full"), ("node", "neighbor"), ("link", "full_edge"), ("link", "edge"), ("graph", "graph")]

NAMES = [name for name in models_of("gnn") if not (WITHOUT_DGL and name == "dgl")]

EXAMPLE = Path(__file__).parents[2] / "examples" / "damped_mean.py"


@pytest.fixture
def _own_models(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The user names files of their own; forget afterwards what they have registered."""
    forget_registered(monkeypatch, MODELS)
    with own_files():
        yield


def build(folder: Path, name: str, task: str, loader: str, **options: Any) -> tuple[GraphModel, GraphStore, Loader]:
    torch.manual_seed(0)
    parent = MAKE[task](folder)
    store = GraphStore(parent.folder, parent.manifest)
    config = MODELS.config({"name": name, "hidden_dim": 8, "num_layers": 2, "dropout": 0.0, **options})
    model: GraphModel = MODELS.create(config, graph_facts(parent.manifest))
    fanout = {"fanout": (3, 3)} if loader in ("neighbor", "edge") else {}
    return model, store, make_loader(loader, store, FeatureSource.of(store, model), model, **fanout)


def check_learns(model: GraphModel, store: GraphStore, loader: Loader, steps: int = 15) -> None:
    """Scores of the right shape, a gradient for every parameter, and a loss that falls on one batch."""
    loss, losses = loss_of(store.manifest.task_type), []
    parameters = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    optimizer = torch.optim.Adam(parameters.values(), lr=0.01)
    batch = loader.batch(np.arange(min(40, loader.num_seeds)), key=3)
    for step in range(steps):
        scores = model(batch)
        expected = () if store.manifest.task == "link" else (model.facts.out_dim,)
        assert scores.shape == (len(batch.target), *expected)
        cost = loss(scores, batch.target, batch.num_seeds)
        optimizer.zero_grad()
        cost.backward()
        if step == 0:
            assert_all_have_gradients(parameters)
        optimizer.step()
        losses.append(cost.item())
    assert np.isfinite(losses).all()
    assert min(losses[1:]) < losses[0]


def assert_all_have_gradients(parameters: dict[str, nn.Parameter]) -> None:
    for name, parameter in parameters.items():
        assert parameter.grad is not None, f"{name} got no gradient"
        assert torch.isfinite(parameter.grad).all(), name


@pytest.mark.parametrize(("task", "loader"), LOADERS)
@pytest.mark.parametrize("name", NAMES)
def test_every_model_learns(tmp_path: Path, name: str, task: str, loader: str) -> None:
    check_learns(*build(tmp_path, name, task, loader))


@pytest.mark.parametrize(("task", "loader"), LOADERS)
@pytest.mark.usefixtures("_own_models")
def test_one_file_is_a_model(tmp_path: Path, task: str, loader: str) -> None:
    model, store, made = build(tmp_path, "damped_mean", task, loader, file=str(EXAMPLE), alpha=0.3)
    assert model.config.alpha == 0.3
    assert MODELS.summary("damped_mean") == "Mean of the neighbours, damped by the node's own vector."
    check_learns(model, store, made)
    check_layered(model, store)


OPTIONS: list[dict[str, Any]] = [{}, {"norm": "layer", "residual": True}, {"norm_first": True, "feed_forward": 1}]


@pytest.mark.parametrize(
    ("name", "task", "options"),
    [
        *((name, task, options) for options in OPTIONS for task in MAKE for name in models_of("gnn")),
        ("gcn", "node", {"head": "none"}),
        ("deepgcn", "node", {"block": "res"}),
        ("deepgcn", "node", {"reversible": True}),
    ],
)
def test_every_model_predicts_alike_whole_and_layer_by_layer(
    tmp_path: Path, name: str, task: str, options: dict[str, Any]
) -> None:
    torch.manual_seed(0)
    parent = MAKE[task](tmp_path)
    store = GraphStore(parent.folder, parent.manifest)
    config = MODELS.config({"name": name, "hidden_dim": 8, "num_layers": 3, **options})
    try:
        model: GraphModel = MODELS.create(config, graph_facts(parent.manifest))
    except RecipeError as error:
        assert any(f"model.{option} " in str(error) for option in options)  # noqa: PT017
        return
    check_layered(model, store)
    assert model.training


def check_layered(model: GraphModel, store: GraphStore) -> None:
    whole = predict(Predictor(store), model, "test")
    pieces = predict(Predictor(store, whole_graph_bytes=0, batch_size=17, chunk_edges=50), model, "test")
    name = "positive" if store.manifest.task == "link" else "scores"
    np.testing.assert_allclose(getattr(pieces, name), getattr(whole, name), rtol=1e-4, atol=1e-4)
    assert np.isfinite(getattr(whole, name)).all()


def test_a_sampled_sum_has_the_full_sum_as_its_mean(tmp_path: Path) -> None:
    parent = node_graph(tmp_path, 120)
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


@pytest.mark.parametrize("name", NAMES)
def test_all_neighbours_sampled_is_the_whole_graph(tmp_path: Path, name: str) -> None:
    model, store, _ = build(tmp_path, name, "node", "neighbor")
    features = FeatureSource.of(store, model)
    loader = make_loader("neighbor", store, features, model, fanout=(-1, -1))
    block, inputs = whole_graph(store, features)
    rows = torch.from_numpy(np.asarray(store["train_idx"], np.int64))
    model.eval()
    with torch.no_grad():
        expected = model(Batch([block], inputs, torch.empty(0), 0, rows=rows))
        got = model(loader.batch(np.arange(loader.num_seeds), 0))
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_numbering_does_not_matter(tmp_path: Path, name: str) -> None:
    """Nodes renumbered: the same vectors, renumbered."""
    model, store, _ = build(tmp_path, name, "node", "full")
    block, inputs = whole_graph(store, FeatureSource.open(store, edges=False))
    order = torch.randperm(block.num_dst)  # new node i is old node order[i]
    place = torch.argsort(order)
    counts = block.indptr[1:] - block.indptr[:-1]
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts[order].cumsum(0)])
    old_edges = torch.cat([torch.arange(int(block.indptr[v]), int(block.indptr[v + 1])) for v in order])
    renumbered = Block(indptr, place[block.indices[old_edges]].to(torch.int32), block.num_src)
    assert inputs.feat is not None
    model.eval()
    with torch.no_grad():
        expected = model.represent(Batch([block], inputs, torch.empty(0), 0))
        got = model.represent(Batch([renumbered], Inputs(order, inputs.feat[order]), torch.empty(0), 0))
    torch.testing.assert_close(got, expected[order], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_state_and_seed_decide_everything(tmp_path: Path, name: str) -> None:
    """A model rebuilt from configuration, facts and state scores alike; so does one built from the same seed."""
    model, _, loader = build(tmp_path, name, "graph", "graph")
    twin, _, _ = build(tmp_path / "again", name, "graph", "graph")
    torch.manual_seed(9)
    restored: GraphModel = MODELS.create(model.config, model.facts)
    restored.load_state_dict(model.state_dict())
    batch = loader.batch(np.arange(loader.num_seeds), 0)
    with torch.no_grad():
        scores = [each.eval()(batch) for each in (model, twin, restored)]
    assert torch.equal(scores[0], scores[1])
    assert torch.equal(scores[0], scores[2])


@pytest.mark.parametrize("name", NAMES)
def test_every_model_computes_in_bfloat16(tmp_path: Path, name: str) -> None:
    """Under autocast vectors between layers are bfloat16, scores are about those of float32, gradients exist."""
    model, _, loader = build(tmp_path, name, "graph", "graph", norm="layer")
    batch = loader.batch(np.arange(loader.num_seeds), 0)
    expected = model(batch)
    with torch.autocast("cpu", torch.bfloat16):
        got = model(batch)
        assert model.layers[0](batch.blocks[0], model.encoder(batch.inputs).bfloat16()).dtype == torch.bfloat16
    assert (got.float() - expected).norm() < 0.05 * expected.norm()
    got.float().square().mean().backward()
    assert_all_have_gradients(dict(model.named_parameters()))
