"""Layer-by-layer inference against the whole graph at once, and both against training's own forward pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from configs.errors import DataError
from configs.registry import MODELS
from models.base import GraphModel
from models.block import Batch
from tasks.inference import layerwise
from tasks.inference.predictor import Predictor
from tasks.kinds.of import predict
from tasks.processes.device import use_threads
from tasks.sampling.rows.features import FeatureSource, whole_graph
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import ArrayWriter, GraphStore
from tests.ranked_shop import store_of
from tests.support import finish, link_graph, molecule_graph, node_graph, write_csc


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """On small graphs on a busy machine OpenMP's waiting costs far more than its work."""
    use_threads(1)


OPTIONS: list[dict[str, Any]] = [
    {"name": "graphsage", "aggregator": "mean"},
    {"name": "graphsage", "aggregator": "max"},
    {"name": "graphsage", "aggregator": "sum", "residual": True, "norm": "layer"},
    {"name": "graphsage", "residual": True, "num_layers": 1},
    {"name": "gcn", "norm": "none"},
    {"name": "gcn", "residual": True},
    {"name": "gin"},
    {"name": "gin", "residual": True},
    {"name": "graphsage", "edge_weights": True},
    {"name": "gcn", "edge_weights": True, "head": "none"},
    {"name": "gat", "head": "none", "heads": 2},
    {"name": "rgcn", "norm_first": True, "num_bases": 1},
    {"name": "deepgcn"},
]


def labels(option: dict[str, Any]) -> str:
    return "-".join(str(value) for value in option.values())


def rich_graph(folder: Path, *, features: bool, edges: bool, seed: int = 0) -> GraphStore:
    """A graph with a hub, isolated nodes, self-loops and one-way edges; node features (or none) and edge features."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    n = 97
    src, dst = rng.integers(0, n - 7, (2, 400))  # the last seven nodes are isolated
    src, dst = np.concatenate([src, np.arange(60), [5]]), np.concatenate([dst, np.full(60, 3), [5]])
    writer = ArrayWriter(folder)
    m = write_csc(writer, n, src, dst)
    fields: dict[str, Any] = {}
    if features:
        writer.write("feat", rng.standard_normal((n, 6)).astype(np.float16))
        writer.write("feat_cat", rng.integers(0, 3, (n, 2)).astype(np.int32))
        fields = {"feature_dim": 6, "categories": (3, 3)}
    if edges:
        writer.write("edge_feat", rng.standard_normal((m, 3)).astype(np.float32))
        writer.write("edge_feat_cat", rng.integers(0, 4, (m, 1)).astype(np.int32))
        writer.write("edge_weight", rng.exponential(1, m).astype(np.float32))
        writer.write("edge_type", rng.integers(0, 2, m).astype(np.int16))
        writer.write("node_type", rng.integers(0, 2, n).astype(np.int16))
        fields |= {"edge_feature_dim": 3, "edge_categories": (4,), "edge_types": ("a", "b"), "node_types": ("p", "q")}
    writer.write("label", rng.integers(0, 3, n))
    writer.write("node_ids", np.arange(n, dtype=np.int64))
    writer.write("test_idx", np.array([0, 3, 5, 40, 89, 90, 96], np.int32))
    splits = {"test": 7}
    made = finish(folder, writer, num_nodes=n, num_edges=m, num_classes=3, symmetric=False, splits=splits, **fields)
    return GraphStore(folder, made.manifest)


def make_model(store: GraphStore, option: dict[str, Any], seed: int = 0) -> GraphModel:
    """A model whose running statistics, biases and epsilons are not those of its first breath."""
    torch.manual_seed(seed)
    model: GraphModel = MODELS.create(
        MODELS.config({"hidden_dim": 8, "num_layers": 3, **option}), graph_facts(store.manifest)
    )
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.is_floating_point() and tensor.dim() == 1:
            tensor.data += torch.rand_like(tensor)
        assert torch.isfinite(tensor).all(), name
    return model


@pytest.mark.parametrize("chunk_edges", [1, 37, 10_000])
@pytest.mark.parametrize("option", OPTIONS, ids=labels)
def test_layer_by_layer_equals_the_whole_graph(tmp_path: Path, option: dict[str, Any], chunk_edges: int) -> None:
    for features in (True, False):
        store = rich_graph(tmp_path / str(features), features=features, edges=True)
        model = make_model(store, option)
        whole = Predictor(store, batch_size=3)
        chunked = Predictor(store, batch_size=5, whole_graph_bytes=0, chunk_edges=chunk_edges, scratch=tmp_path)
        expected, got = predict(whole, model, "test"), predict(chunked, model, "test")
        np.testing.assert_allclose(got.scores, expected.scores, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(got.label, store["label"][store["test_idx"]])
        everything = np.arange(97)
        np.testing.assert_allclose(
            chunked.node_scores(model, everything), whole.node_scores(model, everything), rtol=1e-4, atol=1e-5
        )
        # The prediction is the forward pass of training without dropout.
        block, inputs = whole_graph(store, FeatureSource.of(store, model))
        with torch.no_grad():
            rows = torch.from_numpy(np.asarray(store["test_idx"], np.int64))
            forward = model.eval()(Batch([block], inputs, torch.empty(0), 0, rows=rows))
        np.testing.assert_allclose(expected.scores, forward.numpy(), rtol=1e-5, atol=1e-6)


def test_nodes_may_come_in_any_order_and_none_at_all(tmp_path: Path) -> None:
    store = rich_graph(tmp_path, features=True, edges=False)
    model = make_model(store, {"name": "gcn"})
    whole, chunked = Predictor(store), Predictor(store, whole_graph_bytes=0, chunk_edges=20)
    nodes = np.array([96, 3, 50, 0])
    np.testing.assert_allclose(chunked.node_scores(model, nodes), whole.node_scores(model, nodes), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        whole.node_scores(model, nodes), whole.node_scores(model, np.sort(nodes))[[3, 1, 2, 0]], rtol=1e-6
    )
    for predictor in (whole, chunked):
        assert predictor.node_scores(model, np.empty(0, np.int64)).shape == (0, 3)


def test_one_predictor_serves_models_with_and_without_edge_features(tmp_path: Path) -> None:
    store = rich_graph(tmp_path, features=True, edges=True)
    predictor = Predictor(store)
    predict(predictor, make_model(store, {"name": "gcn"}), "test")
    gin = make_model(store, {"name": "gin"})
    assert np.array_equal(predict(predictor, gin, "test").scores, predict(Predictor(store), gin, "test").scores)


@pytest.mark.parametrize("dim", [0, 8])
@pytest.mark.parametrize("decoder", ["mlp", "dot"])
def test_links_layer_by_layer(tmp_path: Path, dim: int, decoder: str) -> None:
    store = store_of(link_graph(tmp_path, dim=dim))
    model = make_model(store, {"name": "graphsage", "decoder": decoder, "num_layers": 2})
    expected = predict(Predictor(store), model, "valid")
    got = predict(Predictor(store, batch_size=7, whole_graph_bytes=0, chunk_edges=64), model, "valid")
    assert expected.positive.shape == (len(store["valid_edges"]),)
    np.testing.assert_allclose(got.positive, expected.positive, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got.negative, expected.negative, rtol=1e-4, atol=1e-5)


def test_links_take_given_negatives_of_either_shape(tmp_path: Path) -> None:
    store = store_of(link_graph(tmp_path))
    model = make_model(store, {"name": "graphsage", "decoder": "dot", "num_layers": 1})
    positive = np.asarray(store["valid_edges"])
    store._open["valid_negative"] = np.repeat(positive[:, None, :], 4, axis=1)  # every candidate is the positive
    store.manifest.arrays["valid_negative"] = store.manifest.arrays["valid_edges"]
    given = predict(Predictor(store), model, "valid")
    np.testing.assert_array_equal(given.negative, np.repeat(given.positive[:, None], 4, axis=1))


def test_drawn_negatives_are_the_same_each_time_and_edges_of_no_split(tmp_path: Path) -> None:
    store = store_of(link_graph(tmp_path))
    for split in ("valid", "test"):
        del store.manifest.arrays[f"{split}_negative"]
    model = make_model(store, {"name": "gcn", "num_layers": 1})
    scores = [predict(Predictor(store), model, "test").negative for _ in range(2)]
    assert np.array_equal(scores[0], scores[1])
    drawn = [Predictor(store)._drawn_negatives(split, 3000) for split in ("valid", "test", "test", "train")]
    assert np.array_equal(drawn[1], drawn[2])
    known = {pair for split in ("train", "valid", "test") for pair in map(tuple, store[f"{split}_edges"].tolist())}
    known |= {(v, u) for u, v in known}
    pairs = [{*map(tuple, negative.tolist())} for negative in drawn]
    for some in pairs:
        assert not some & known
        assert all(u != v for u, v in some)
    assert len(pairs[0] & pairs[1]) < len(pairs[0]) / 4  # what chose the weights does not measure them too


@pytest.mark.parametrize("virtual_node", [False, True])
@pytest.mark.parametrize("name", ["gin", "deepgcn"])
def test_graphs_score_alike_alone_and_in_batches(tmp_path: Path, name: str, virtual_node: bool) -> None:
    store = store_of(molecule_graph(tmp_path))
    model = make_model(store, {"name": name, "virtual_node": virtual_node})
    together, alone = predict(Predictor(store), model, "test"), predict(Predictor(store, batch_size=1), model, "test")
    few = predict(Predictor(store, chunk_edges=50), model, "test")
    assert together.scores.shape == (len(store["test_idx"]), 1)
    np.testing.assert_allclose(alone.scores, together.scores, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(few.scores, together.scores, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(together.label, store["graph_label"][store["test_idx"]])


def test_the_mode_of_training_comes_back_and_dropout_is_off(tmp_path: Path) -> None:
    store = store_of(node_graph(tmp_path))
    model = make_model(store, {"name": "graphsage"}).train()
    statistics = model.layers[0].norm.running_mean.clone()  # type: ignore[union-attr,operator]
    first, second = (predict(Predictor(store), model, "valid").scores for _ in range(2))
    assert model.training
    assert np.array_equal(first, second)
    assert torch.equal(statistics, model.layers[0].norm.running_mean)  # type: ignore[arg-type,union-attr]


def test_a_missing_split_says_what_to_do(tmp_path: Path) -> None:
    store = rich_graph(tmp_path, features=True, edges=False)
    with pytest.raises(DataError, match=r"no valid_idx; leave that split out of evaluate\.splits"):
        predict(Predictor(store), make_model(store, {"name": "gcn"}), "valid")


def test_scratch_files_leave_nothing_behind(tmp_path: Path) -> None:
    store = rich_graph(tmp_path / "graph", features=True, edges=True)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    predictor = Predictor(store, whole_graph_bytes=0, scratch=scratch)
    with torch.no_grad():
        vectors = predictor.node_vectors(make_model(store, {"name": "gin"}).eval(), None)
    assert vectors.shape == (97, 8)
    assert list(scratch.iterdir()) == []


def test_a_model_that_combines_its_layers_itself_runs_as_a_whole(tmp_path: Path) -> None:
    store = rich_graph(tmp_path, features=True, edges=False)
    model = make_model(store, {"name": "gcn"})

    class Own(type(model)):  # type: ignore[misc]
        def represent(self, batch: Batch) -> torch.Tensor:
            return 2 * super().represent(batch)

    expected = Predictor(store).node_vectors(model.eval(), None)
    model.__class__ = Own
    got = Predictor(store, whole_graph_bytes=0).node_vectors(model.eval(), None)
    torch.testing.assert_close(got, 2 * expected)


def test_bounded_cuts() -> None:
    work = np.array([3, 0, 0, 9, 1, 1, 1, 0, 5])
    cuts = list(layerwise.bounded_slices(np.cumsum(work), 4, 3))
    assert [index for cut in cuts for index in range(cut.start, cut.stop)] == list(range(len(work)))
    for cut in cuts:
        rows = cut.stop - cut.start
        assert rows == 1 or (rows <= 3 and work[cut].sum() <= 4)
    assert list(layerwise.bounded_slices(np.empty(0, np.int64), 4, 3)) == []
