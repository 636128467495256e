"""DGL's convolutions as models: all that are exported, on every task, from training to serving."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from configs.errors import RecipeError
from configs.registry import MODELS
from models.base import GraphModel
from models.block import Batch, Block, Inputs
from models.dgl.adapter import convolution_options, load_dgl
from models.dgl.convolutions import CONVOLUTIONS, REFUSED, find_convolution
from models.facts import GraphFacts
from tasks.apply.model.published import model_recipe
from tasks.inference.predictor import Predictor
from tasks.kinds.of import predict
from tasks.sampling.rows.features import FeatureSource, whole_graph
from tasks.stage import Parent
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import ArrayWriter, GraphStore
from tasks.train.state.checkpoint import best_state, load_model, save_atomic
from tests.loaders import make_loader
from tests.models.test_contract import check_learns
from tests.support import WITHOUT_DGL, link_graph, molecule_graph, node_graph

pytestmark = pytest.mark.skipif(WITHOUT_DGL, reason="DGL has no wheel for this Python")

ROOT = Path(__file__).resolve().parent.parent.parent
# Of several hops, these can be told to look one far: then they read blocks as well.
ONE_HOP: dict[str, dict[str, Any]] = {
    "APPNPConv": {"k": 1},
    "GatedGraphConv": {"n_steps": 1},
    "SGConv": {"k": 1},
    "TAGConv": {"k": 1},
}
FACTS = GraphFacts("node", 4, 100, feature_dim=8, edge_feature_dim=2)


def rich_graph(folder: Path, task: str) -> Parent:
    """A small graph with all that a convolution may read: features, weights and relations of edges, types of nodes."""
    if task == "node":
        parent = node_graph(folder, num_nodes=90, dim=8)
    else:
        parent = link_graph(folder, num_nodes=60, dim=8) if task == "link" else molecule_graph(folder, 40)
    rng, found, writer = np.random.default_rng(0), parent.manifest, ArrayWriter(folder)
    n, e = found.num_nodes, found.num_edges
    writer.write("edge_feat", rng.random((e, 2)).astype(np.float32))
    writer.write("edge_weight", rng.random(e).astype(np.float32) + 0.5)
    writer.write("edge_type", rng.integers(0, 2, e).astype(np.int16))
    writer.write("node_type", rng.integers(0, 2, n).astype(np.int16))
    if task == "graph":
        writer.write("feat", rng.random((n, 8)).astype(np.float32))
    given = {"feature_dim": 8, "edge_feature_dim": 2, "node_types": ("a", "b"), "edge_types": ("r", "s")}
    return Parent(found.model_copy(update={**given, "arrays": {**found.arrays, **writer.entries}}), folder)


def build(parent: Parent, conv: str, **options: Any) -> tuple[GraphModel, GraphStore]:
    torch.manual_seed(0)
    given = {"name": "dgl", "conv": conv, "hidden_dim": 8, "num_layers": 2, "dropout": 0.0, **options}
    model: GraphModel = MODELS.create(MODELS.config(given), graph_facts(parent.manifest))
    return model, GraphStore(parent.folder, parent.manifest)


def saved_and_loaded(model: GraphModel, folder: Path) -> GraphModel:
    save_atomic(best_state(model, "digest", 1, 0.5), folder / "best.pt")
    return load_model(folder / "best.pt")


def assert_same(got: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(got), np.asarray(expected), rtol=1e-4, atol=1e-4)


def test_every_export_is_a_model_or_refused() -> None:
    exported = set(load_dgl().nn.pytorch.conv.__all__)
    assert exported <= set(CONVOLUTIONS) | set(REFUSED)
    assert not set(CONVOLUTIONS) & set(REFUSED)
    assert set(CONVOLUTIONS) <= exported


@pytest.mark.parametrize("conv", sorted(CONVOLUTIONS))
def test_every_convolution_trains_saves_and_serves(tmp_path: Path, conv: str) -> None:
    """On the whole graph; then layer by layer, or in one piece where a convolution needs that."""
    parent = rich_graph(tmp_path, "node")
    model, store = build(parent, conv)
    check_learns(model, store, make_loader("full", store, FeatureSource.of(store, model), model), steps=4)
    again = saved_and_loaded(model, tmp_path)
    expected = predict(Predictor(store), model, "test").scores
    assert_same(predict(Predictor(store), again, "test").scores, expected)
    assert_same(predict(Predictor(store, whole_graph_bytes=0, chunk_edges=50), again, "test").scores, expected)


@pytest.mark.parametrize("conv", sorted(CONVOLUTIONS))
def test_every_convolution_reads_blocks_or_says_why_not(tmp_path: Path, conv: str) -> None:
    """Sampled blocks train it; with all neighbours in them they are the whole graph."""
    parent = rich_graph(tmp_path, "node")
    model, store = build(parent, conv, options=ONE_HOP.get(conv, {}))
    config: Any = model.config
    if config.reason_for_whole(symmetric=True):
        assert find_convolution(conv).whole
        with pytest.raises(RecipeError, match=r"take train\.loader=full"):
            config.check_batches("neighbor", keeps_nodes=False, all_neighbors=True, symmetric=True)
        return
    assert model.is_layered
    config.check_batches("neighbor", keeps_nodes=False, all_neighbors=False, symmetric=True)
    features = FeatureSource.of(store, model)
    check_learns(model, store, make_loader("neighbor", store, features, model, fanout=(3, 3)), steps=4)
    loader = make_loader("neighbor", store, features, model, fanout=(-1, -1))
    block, inputs = whole_graph(store, features)
    rows = torch.from_numpy(np.asarray(store["train_idx"], np.int64))
    model.eval()
    with torch.no_grad():
        expected = model(Batch([block], inputs, torch.empty(0), 0, rows=rows))
        assert_same(model(loader.batch(np.arange(loader.num_seeds), 0)), expected)
    whole = predict(Predictor(store), model, "test").scores
    assert_same(predict(Predictor(store, whole_graph_bytes=0, chunk_edges=50), model, "test").scores, whole)


@pytest.mark.parametrize("conv", sorted(CONVOLUTIONS))
def test_every_convolution_learns_pairs_and_graphs(tmp_path: Path, conv: str) -> None:
    for task, loader in (("link", "full_edge"), ("graph", "graph")):
        folder = tmp_path / task
        model, store = build(rich_graph(folder, task), conv)
        check_learns(model, store, make_loader(loader, store, FeatureSource.of(store, model), model), steps=4)
        again = saved_and_loaded(model, folder)
        name = "positive" if task == "link" else "scores"
        expected = getattr(predict(Predictor(store), model, "test"), name)
        got = predict(Predictor(store, whole_graph_bytes=0, chunk_edges=50, batch_size=7), again, "test")
        assert_same(getattr(got, name), expected)


@pytest.mark.parametrize("conv", sorted(name for name, spec in CONVOLUTIONS.items() if spec.takes_weights))
def test_edge_weights_count(tmp_path: Path, conv: str) -> None:
    parent = rich_graph(tmp_path, "node")
    model, store = build(parent, conv, edge_weights=True)
    before = predict(Predictor(store), model, "test").scores
    assert_same(predict(Predictor(store, whole_graph_bytes=0, chunk_edges=50), model, "test").scores, before)
    block, inputs = whole_graph(store, FeatureSource.of(store, model))
    heavier = replace(block, weight=block.weight * torch.linspace(0.5, 2, block.num_edges))  # type: ignore[operator]
    model.eval()
    with torch.no_grad():
        vectors = [model.represent(Batch([each], inputs, torch.empty(0), 0)) for each in (block, heavier)]
    assert not torch.allclose(vectors[0], vectors[1], rtol=1e-3)


@pytest.mark.parametrize("conv", ["GATv2Conv", "SAGEConv", "HGTConv"])
def test_the_last_convolution_may_make_the_scores(tmp_path: Path, conv: str) -> None:
    model, store = build(rich_graph(tmp_path, "node"), conv, head="none", norm="none")
    assert predict(Predictor(store), model, "test").scores.shape[1] == 4


def test_it_is_what_dgl_computes(tmp_path: Path) -> None:
    """A layer without norm, activation and head is DGL's own convolution on DGL's own graph."""
    parent = rich_graph(tmp_path, "node")
    model, store = build(parent, "GraphConv", num_layers=1, head="none", options={"norm": "both"})
    block, inputs = whole_graph(store, FeatureSource.of(store, model))
    dgl = load_dgl()
    rows = torch.repeat_interleave(block.indptr.diff())
    graph = dgl.graph((block.indices.long(), rows), num_nodes=block.num_dst)
    conv = dgl.nn.pytorch.GraphConv(8, 4, norm="both", allow_zero_in_degree=True)
    conv.load_state_dict(model.layers[0].conv.conv.state_dict())  # type: ignore[union-attr]
    with torch.no_grad():
        torch.testing.assert_close(model.represent(Batch([block], inputs, torch.empty(0), 0)), conv(graph, inputs.feat))


@pytest.mark.parametrize("weighted", [False, True])
def test_nodes_without_edges_are_no_mistake(tmp_path: Path, weighted: bool) -> None:
    for conv in sorted(name for name, spec in CONVOLUTIONS.items() if spec.takes_weights or not weighted):
        model, _ = build(rich_graph(tmp_path / conv, "node"), conv, edge_weights=weighted)
        block = Block(torch.zeros(6, dtype=torch.int64), torch.zeros(0, dtype=torch.int32), 5)
        block.weight = torch.zeros(0) if weighted else None
        block.edge_feat, block.edge_type = torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64)
        inputs = Inputs(torch.arange(5), torch.ones(5, 8), node_type=torch.tensor([0, 1, 0, 1, 1]))
        vectors = model.represent(Batch([block], inputs, torch.empty(0), 0))
        assert torch.isfinite(vectors).all(), conv


def test_a_graph_without_edges_is_what_it_is_among_others(tmp_path: Path) -> None:
    """Its vectors do not depend on the batch: a molecule of one atom may be asked about alone."""
    for conv in sorted(CONVOLUTIONS):
        model, _ = build(rich_graph(tmp_path / conv, "graph"), conv)
        feat, kinds, found = torch.randn(4, 8), torch.tensor([0, 1, 0, 1]), []
        for first, indptr, indices in ((0, [0, 1, 2, 2, 2], [1, 0]), (2, [0, 0, 0], [])):
            block = Block(torch.tensor(indptr), torch.tensor(indices, dtype=torch.int32), 4 - first)
            e = len(indices)
            block.edge_feat, block.edge_feat_cat = torch.ones(e, 2), torch.zeros(e, 2, dtype=torch.int64)
            block.edge_type = torch.zeros(e, dtype=torch.int64)
            codes = torch.zeros(4 - first, 3, dtype=torch.int64)
            inputs = Inputs(torch.arange(4 - first), feat[first:], codes, node_type=kinds[first:])
            ends = torch.tensor([0, 2, 4] if first == 0 else [0, 2])
            model.eval()
            with torch.no_grad():
                found.append(model.represent(Batch([block], inputs, torch.empty(0), 0, graph_offsets=ends))[-2:])
        torch.testing.assert_close(found[0], found[1], msg=conv)


@pytest.mark.parametrize(("conv", "options"), [("EdgeConv", {"batch_norm": True}), ("GatedGCNConv", {})])
def test_a_batch_of_a_single_node_trains(tmp_path: Path, conv: str, options: dict[str, Any]) -> None:
    """A batch norm of a convolution's own has no spread to go by."""
    model, _ = build(rich_graph(tmp_path, "node"), conv, norm="none", options=options)
    block = Block(torch.tensor([0, 1]), torch.zeros(1, dtype=torch.int32), 1)
    block.edge_feat = torch.ones(1, 2)
    vectors = model.represent(Batch([block], Inputs(torch.arange(1), torch.ones(1, 8)), torch.empty(0), 0))
    vectors.sum().backward()
    assert torch.isfinite(vectors).all()


def test_positions_that_are_one_leave_gradients_finite(tmp_path: Path) -> None:
    """A loop has no length, and the root of that no gradient: all parameters would become NaN."""
    model, _ = build(rich_graph(tmp_path, "node"), "EGNNConv", num_layers=3)
    block = Block(torch.tensor([0, 3, 5, 6]), torch.tensor([0, 1, 2, 1, 0, 1], dtype=torch.int32), 3)
    block.edge_feat = torch.ones(6, 2)
    feat = torch.randn(3, 8)
    feat[2, -3:] = feat[0, -3:]
    model.represent(Batch([block], Inputs(torch.arange(3), feat), torch.empty(0), 0)).square().sum().backward()
    for name, parameter in model.layers.named_parameters():
        assert not parameter.requires_grad or torch.isfinite(parameter.grad).all(), name  # type: ignore[arg-type]
    assert model.layers[0].conv.conv.coord_mlp[0].weight.grad.abs().sum() > 0  # type: ignore[index,union-attr]


def test_part_of_a_directed_graph_has_out_degrees_of_its_own(tmp_path: Path) -> None:
    """Drawn subgraphs, and the parts of ranks, bring in-degrees of the whole graph: these are no out-degrees."""
    model, _ = build(rich_graph(tmp_path, "node"), "GraphConv", num_layers=1, head="none", options={"norm": "both"})
    ends = torch.tensor([0, 0, 1, 4]), torch.tensor([0, 0, 1, 1], dtype=torch.int32)
    part, alone = Block(*ends, 3, degree=torch.tensor([2.0, 5.0, 3.0])), Block(*ends, 3)
    x = torch.randn(3, 8)
    torch.testing.assert_close(model.layers[0](part, x), model.layers[0](alone, x))


@pytest.mark.parametrize("conv", sorted(REFUSED))
def test_the_few_that_cannot_are_refused_by_name(conv: str) -> None:
    with pytest.raises(ValidationError, match=f"conv={conv}: {conv} .+; take|conv={conv}: {conv} .+ call it"):
        MODELS.config({"name": "dgl", "conv": conv})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"conv": "GATv3Conv"}, r"no such convolution \(did you mean 'GATv2Conv'\?\); known: AGNNConv, "),
        ({"options": {"agregator_type": "mean"}}, r"no option 'agregator_type' \(did you mean 'aggregator_type'\?\)"),
        ({"conv": "GATConv", "options": {"heads": 2}}, r"known: num_heads=4, feat_drop=0.0, attn_drop=0.0"),
        ({"options": {"in_feats": 3}}, r"options\.in_feats: graphmill sets it"),
        ({"options": {"activation": "relu"}}, r"options\.activation: model\.activation does that"),
        ({"coordinates": 2}, "coordinates is for EGNNConv, and conv is SAGEConv; remove it"),
        ({"edge_dim": 2}, "edge_dim does nothing in SAGEConv; remove it"),
        ({"conv": "SGConv", "options": {"k": None}}, r"options\.k=None: a whole number from 0"),
        ({"conv": "ChebConv", "options": {"k": "x"}}, r"options\.k=x: a whole number from 0"),
        ({"conv": "GatedGraphConv", "options": {"n_steps": True}}, r"options\.n_steps=True: a whole number"),
        ({"conv": "TAGConv", "options": {"k": 2**40}}, r"options\.k: 1099511627776 is beyond the largest"),
        ({"conv": "AGNNConv", "options": {"init_beta": float("nan")}}, r"options\.init_beta=nan is not a number"),
        ({"options": {"aggregator_type": "median"}}, "SAGEConv refuses .*Invalid aggregator_type"),
        ({"conv": "GATConv", "options": {"num_heads": 3}}, "num_heads=3 does not divide the layer's width 8"),
        ({"conv": "EGNNConv", "coordinates": 9}, "the last 9 feature columns, and there are 8"),
        ({"conv": "GCN2Conv", "norm_first": True}, "norm_first cannot be used with model.conv=GCN2Conv"),
        ({"edge_weights": True, "conv": "GATv2Conv"}, "edge_weights does nothing"),
        ({"conv": "AtomicConv", "options": {"rbf_kernel_means": ("a",)}}, "AtomicConv refuses .*ValueError"),
        ({"conv": "PNAConv", "options": {"aggregators": ()}}, "=PNAConv with .*'aggregators': .*non-empty list"),
        ({"conv": "TWIRLSConv", "options": {"dropout": 2}}, "=TWIRLSConv with .*'dropout': 2.: .*between 0 and 1"),
        ({"conv": "TWIRLSConv", "options": {"norm": "left"}}, "=TWIRLSConv with .*'norm': 'left'.: .*'norms'"),
        ({"conv": "NNConv"}, "reads edge features and the graph has none"),
        ({"conv": "AtomicConv"}, "reads the edges' lengths"),
    ],
)
def test_what_does_not_fit_is_told(given: dict[str, Any], message: str) -> None:
    facts = replace(FACTS, edge_feature_dim=0) if message.startswith("reads") else FACTS
    with pytest.raises((ValidationError, RecipeError), match=message):
        MODELS.create(MODELS.config({"name": "dgl", "hidden_dim": 8, **given}), facts)


def test_directed_graphs_and_out_degrees() -> None:
    """GraphConv's own norm wants out-degrees: on a directed graph only the whole graph has them."""
    config: Any = MODELS.config({"name": "dgl", "conv": "GraphConv", "hidden_dim": 8})
    model: GraphModel = MODELS.create(config, replace(FACTS, symmetric=False))
    assert not model.is_layered
    with pytest.raises(RecipeError, match="out-degrees"):
        config.check_batches("neighbor", keeps_nodes=False, all_neighbors=True, symmetric=False)
    right: Any = MODELS.config({"name": "dgl", "conv": "GraphConv", "options": {"norm": "right"}})
    right.check_batches("neighbor", keeps_nodes=False, all_neighbors=True, symmetric=False)


def test_options_are_those_of_the_class() -> None:
    """What is read from DGL's source is what Python says of the class."""
    import inspect

    for name in CONVOLUTIONS:
        known = list(inspect.signature(getattr(load_dgl().nn.pytorch, name).__init__).parameters)[1:]
        assert list(convolution_options(name)) == known
        spec = find_convolution(name)
        assert set(spec.sizes) | set(spec.defaults) - {"conv"} <= set(known), name


@pytest.mark.parametrize(
    ("version", "message"),
    [((3, 13), "no wheel for Python .* PYTHON=python3.12 make setup"), ((3, 12), "run `make setup`")],
)
def test_without_dgl_the_message_names_the_way_out(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, int], message: str
) -> None:
    monkeypatch.setattr("models.dgl.adapter.importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("models.dgl.adapter.sys.version_info", (*version, 0))
    convolution_options.cache_clear()
    with pytest.raises(ValidationError, match=message):
        MODELS.config({"name": "dgl", "conv": "GATConv"})


def test_a_trained_model_without_dgl_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither where its weights are read nor where its recipe is, from which serving begins."""
    model, _ = build(rich_graph(tmp_path, "node"), "GATConv")
    save_atomic(best_state(model, "digest", 1, 0.5), tmp_path / "best.pt")
    (tmp_path / "recipe.json").write_text(json.dumps({"model": {"name": "dgl", "conv": "GATConv"}}))
    monkeypatch.setattr("models.dgl.adapter.importlib.util.find_spec", lambda name: None)
    convolution_options.cache_clear()
    for read in (lambda: load_model(tmp_path / "best.pt"), lambda: model_recipe(tmp_path)):
        with pytest.raises(RecipeError, match=r"model: DGL is not installed; .*make.*setup"):
            read()


@pytest.mark.parametrize(
    "call", ["adapter.load_dgl()", "adapter.convolution_options('GATConv')"], ids=["load", "options"]
)
def test_a_damaged_dgl_is_said_to_be_one(tmp_path: Path, call: str) -> None:
    (tmp_path / "dgl").mkdir()
    (tmp_path / "dgl" / "__init__.py").write_text("raise ImportError('libdgl.so: cannot open shared object file')")
    code = f"from models.dgl import adapter\ntry:\n    {call}\nexcept ValueError as error:\n    print(error)"
    paths = os.pathsep.join(map(str, (tmp_path, ROOT)))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert f"DGL in {tmp_path}/dgl is damaged or another version than 2.1.0; `pip install" in done.stdout, done.stderr
