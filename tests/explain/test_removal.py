"""Scores of a neighbourhood, and scores without parts of it, against the whole graph written anew without them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from configs.label_types import label_type
from configs.registry import EXPLAINERS, MODELS
from models.base import GraphModel
from tasks.explain.asked_score import AskedScore, asked_score
from tasks.explain.features import Features
from tasks.explain.scored import ScoredNeighborhood, edges_left_out, nodes_left_out
from tasks.inference.predictor import Predictor, evaluating
from tasks.kinds.judged import Deciding, Threshold
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import GraphStore
from tests.support import as_partition, multiplex_graph, node_graph

MODELS_OF_LAYERS: dict[str, dict[str, Any]] = {
    "graphsage": {},
    "graphsage sum": {"aggregator": "sum"},
    "graphsage max": {"aggregator": "max"},
    "gcn": {},
    "gat": {"heads": 2},
    "gatv2": {"heads": 2, "norm_first": True, "norm": "layer"},
    "gin": {},
    "rgcn": {},
    "sgc": {},
    "sign": {},
    "deepgcn": {},
    "mlp": {},
}


def model_of(name: str, store: GraphStore, num_layers: int = 2) -> GraphModel:
    torch.manual_seed(1)
    options = {"name": name.split()[0], "num_layers": num_layers, **MODELS_OF_LAYERS[name]}
    if options["name"] not in ("sgc",):
        options["hidden_dim"] = 12
    model: GraphModel = MODELS.create(MODELS.config(options), graph_facts(store.manifest))
    for parameter in model.parameters():  # biases and norms too
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model.eval()


def names_of(store: GraphStore) -> Features:
    feat = store.get("feat")
    width = 0 if feat is None else feat.shape[1]
    return Features([f"x{i}" for i in range(width)], np.arange(width), np.linspace(-1, 1, width))


def scored_of(
    store: GraphStore, model: GraphModel, of_class: str | None = None, most_edges: int = 10**6
) -> ScoredNeighborhood:
    return ScoredNeighborhood(store, model, names_of(store), asked_score(store, model, None, of_class), most_edges)


def without(store: GraphStore, pairs: set[tuple[int, int]]) -> GraphStore:
    """The same graph without edges (source, target)."""
    indptr, indices = np.asarray(store["csc_indptr"]), np.asarray(store["csc_indices"])
    target = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    keep = np.array([(int(u), int(v)) not in pairs for u, v in zip(indices, target, strict=True)])
    made = GraphStore(store.folder, store.manifest)
    made.replace("csc_indptr", np.concatenate([[0], np.cumsum(np.bincount(target[keep], minlength=len(indptr) - 1))]))
    made.replace("csc_indices", indices[keep])
    return made


def probabilities(store: GraphStore, model: GraphModel, node: int) -> Any:
    scores = Predictor(store).node_scores(model, np.array([node]))
    return torch.from_numpy(scores).double().softmax(1)[0].numpy()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> GraphStore:
    graph = as_partition(node_graph(tmp_path_factory.mktemp("graph"), num_nodes=143, dim=7))
    return GraphStore(graph.folder, graph.manifest)


@pytest.mark.parametrize("name", MODELS_OF_LAYERS)
def test_left_out_is_what_a_graph_without_it_scores(store: GraphStore, name: str) -> None:
    model = model_of(name, store)
    scored = scored_of(store, model)
    scored.look_at(np.array([17], np.int32))
    hood, code = scored.hood, scored.asked.code
    assert hood.is_whole
    whole = probabilities(store, model, 17)
    assert code == whole.argmax()
    np.testing.assert_allclose(scored.scores(scored.variants(3))[:, 0], whole[code], atol=1e-6)
    rng = np.random.default_rng(0)
    units = rng.permutation(len(hood.units))[:12]
    result = scored.scores(edges_left_out(scored, units[:, None] == np.arange(len(hood.units))))[:, 0]
    for unit, value in zip(units, result, strict=True):
        u, v = (int(hood.nodes[end[unit]]) for end in (hood.units.source, hood.units.target))
        expected = probabilities(without(store, {(u, v), (v, u)}), model, 17)[code]
        np.testing.assert_allclose(value, expected, atol=1e-6)
    several = np.zeros((1, len(hood.units)), bool)
    several[0, units] = True
    pairs = {(int(hood.nodes[hood.units.source[u]]), int(hood.nodes[hood.units.target[u]])) for u in units}
    expected = probabilities(without(store, pairs | {(v, u) for u, v in pairs}), model, 17)[code]
    np.testing.assert_allclose(scored.scores(edges_left_out(scored, several))[0, 0], expected, atol=1e-6)
    nodes = rng.permutation(np.flatnonzero(hood.hop > 0))[:9]
    result = scored.scores(nodes_left_out(scored, nodes))[:, 0]
    indptr, indices = store["csc_indptr"], store["csc_indices"]
    for node, value in zip(hood.nodes[nodes].tolist(), result, strict=True):
        beside = {int(u) for u in indices[indptr[node] : indptr[node + 1]]}
        pairs = {(u, node) for u in beside} | {(node, u) for u in beside}
        np.testing.assert_allclose(value, probabilities(without(store, pairs), model, 17)[code], atol=1e-6)


@pytest.mark.parametrize("name", ["graphsage", "gcn", "gat"])
def test_a_feature_left_out_is_what_the_usual_value_scores(store: GraphStore, name: str) -> None:
    model = model_of(name, store)
    scored = scored_of(store, model, of_class="2")
    scored.look_at(np.array([5], np.int32))
    explained = EXPLAINERS.create(EXPLAINERS.config("removal")).explain(scored)
    features = next(one for one in explained.effects if one.part == "feature")
    assert features.feature is not None
    assert features.without is not None
    for column in range(7):
        feat = np.array(store["feat"])
        feat[5, column] = scored.columns.usual[column]
        other = GraphStore(store.folder, store.manifest)
        other.replace("feat", feat)
        np.testing.assert_allclose(features.without[column], probabilities(other, model, 5)[2], atol=1e-6)
    np.testing.assert_allclose(features.effect, explained.score - features.without)


def test_edges_of_a_neighbour_are_counted_in_reach_and_in_all(store: GraphStore) -> None:
    scored = scored_of(store, model_of("graphsage", store))
    scored.look_at(np.array([17], np.int32))
    nodes = next(
        one for one in EXPLAINERS.create(EXPLAINERS.config("removal")).explain(scored).effects if one.part == "node"
    )
    assert nodes.count is not None
    assert nodes.degree is not None
    indptr, hop = np.asarray(store["csc_indptr"]), scored.hood.hop[nodes.place]
    np.testing.assert_array_equal(nodes.degree, np.diff(indptr)[scored.hood.nodes[nodes.place]])
    np.testing.assert_array_equal(nodes.count[hop == 1], nodes.degree[hop == 1])
    assert (nodes.count <= nodes.degree).all()
    assert (nodes.count < nodes.degree).any()


def test_a_label_of_one_column_is_its_own_class() -> None:
    asked = AskedScore(label_type("binary"), 1, None, Deciding(threshold=Threshold(1, 0.3)))
    assert asked.predicted(torch.tensor([[-2.0]])).code == 0


def test_relations_are_units_of_their_own(tmp_path: Path) -> None:
    graph = as_partition(multiplex_graph(tmp_path / "graph", num_nodes=60))
    store = GraphStore(graph.folder, graph.manifest)
    model = model_of("rgcn", store)
    scored = scored_of(store, model)
    scored.look_at(np.array([3, 11], np.int32))
    with evaluating(model):
        vectors = Predictor(store).node_vectors(model)
        expected = model.score(vectors[[3]], vectors[[11]]).item()
    np.testing.assert_allclose(scored.scores(scored.variants(2))[:, 0], expected, rtol=1e-5)
    units = scored.hood.units
    types, indptr = np.asarray(store["edge_type"]), store["csc_indptr"]
    seen = set(zip(units.source.tolist(), units.target.tolist(), units.relation.tolist(), strict=True))
    assert len(seen) == len(units)
    into = np.asarray(store["csc_indices"][indptr[3] : indptr[4]])
    kinds = types[indptr[3] : indptr[4]]
    local = {int(node): place for place, node in enumerate(scored.hood.nodes)}
    for source, kind in zip(into.tolist(), kinds.tolist(), strict=True):
        pair = sorted((local[source], local[3]))
        assert any(sorted(one[:2]) == pair and one[2] == kind for one in seen)


def test_a_large_neighbourhood_is_a_sample(store: GraphStore) -> None:
    model = model_of("graphsage", store)
    scored = scored_of(store, model, most_edges=20)
    scored.look_at(np.array([17], np.int32))
    assert not scored.hood.is_whole
    assert all(len(layer.indices) <= 20 + len(scored.hood.nodes) for layer in scored.hood.layers)
    explained = EXPLAINERS.create(EXPLAINERS.config("removal")).explain(scored)
    assert 0 <= explained.score <= 1
