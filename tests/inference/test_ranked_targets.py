"""Lists of all targets of a relation, against a loop over sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from configs.load import build_recipe
from configs.registry import MODELS
from tasks.controls.ranked.targets import TargetControls
from tasks.evaluators.prediction import Prediction
from tasks.inference.predictor import Predictor, evaluating
from tasks.inference.ranked_targets import ranked_targets
from tasks.kinds.of import kind_of
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home
from tests.apply.test_needs import Prepared
from tests.ingest.movies import movie_tables
from tests.support import as_partition, link_graph

Wanted = dict[int, tuple[list[int], list[float]]]


def graph_of(tmp_path: Path, home: Home, **options: Any) -> GraphStore:
    sections = {"name": "movies", "dataset": {**movie_tables(tmp_path), **options}, "model": "rgcn"}
    return Prepared(home, build_recipe({**sections, "preprocess": {"workers": 1}})).graph


def reference(graph: GraphStore, split: str, scores: Any) -> Wanted:
    """Of each source of a split the list of its targets, and the places of the right ones."""
    edges = {name: [tuple(pair) for pair in graph[f"{name}_edges"].tolist()] for name in ("train", "valid", "test")}
    movies = np.flatnonzero(np.asarray(graph["node_type"]) == graph.manifest.node_types.index("movie")).tolist()
    wanted = {}
    for source in sorted({a for a, _ in edges[split]}):
        right = {b for a, b in edges[split] if a == source}
        known = {b for name, pairs in edges.items() if name != split for a, b in pairs if a == source} - right
        order = sorted((one for one in movies if one not in known), key=lambda one: (-scores(source, one), one))
        wrong = [scores(source, one) for one in order if one not in right]
        of_right = sorted((scores(source, one) for one in right), reverse=True)
        middle = [sum(w > s for w in wrong) + sum(w == s for w in wrong) / 2 for s in of_right]
        wanted[source] = order, [1 + place + k for k, place in enumerate(middle)]
    return wanted


@pytest.mark.parametrize("decoder", ["dot", "mlp"])
@pytest.mark.parametrize("split", ["valid", "test"])
def test_places_and_lists_are_those_of_a_loop(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch, decoder: str, split: str
) -> None:
    graph = graph_of(tmp_path, home)
    config = MODELS.config({"name": "rgcn", "hidden_dim": 8, "num_layers": 2, "decoder": decoder})
    model, predictor = MODELS.create(config, graph_facts(graph.manifest)), Predictor(graph)
    for weight in model.head.parameters():  # whole numbers are the same in any order of sums, and often equal
        weight.data = weight.data.mul(8).round()
    rng = np.random.default_rng(2)
    vectors = torch.from_numpy(rng.integers(-3, 4, (graph.manifest.num_nodes, 8)).astype(np.float32))
    monkeypatch.setattr(predictor, "node_vectors", lambda _: vectors)
    with evaluating(model):
        every = np.stack(np.divmod(np.arange(graph.manifest.num_nodes**2), graph.manifest.num_nodes), 1)
        table = predictor.pair_scores(model, vectors, every).reshape(graph.manifest.num_nodes, -1)
    wanted = reference(graph, split, lambda a, b: float(table[a, b]))
    kind = kind_of(graph.manifest)
    rows = kind.rows(predictor, split)
    assert rows.items.tolist() == list(wanted)
    ranked = ranked_targets(predictor, model, rows.items, split, 7)
    assert ranked.lists is not None
    for row, (source, (order, places)) in enumerate(wanted.items()):
        np.testing.assert_allclose(ranked.places[row, : len(places)], places)
        assert ranked.counts[row] == len(places)
        assert ranked.lists.candidates[row].tolist() == order[:7]
        assert table[source, order[:7]].tolist() == ranked.lists.scores[row].tolist()


def test_lists_of_one_type_leave_out_what_is_joined_either_way(tmp_path: Path) -> None:
    graph = as_partition(link_graph(tmp_path, dim=4))
    store = GraphStore(graph.folder, graph.manifest)
    config = MODELS.config({"name": "graphsage", "hidden_dim": 8, "num_layers": 2, "decoder": "dot"})
    model, predictor = MODELS.create(config, graph_facts(graph.manifest)), Predictor(store)
    edges = [tuple(pair) for name in ("train", "valid", "test") for pair in store[f"{name}_edges"].tolist()]
    known = {*edges, *((b, a) for a, b in edges)} if graph.manifest.symmetric else set(edges)
    sources = np.random.default_rng(1).permutation(200)[:13]
    lists = ranked_targets(predictor, model, sources, None, 59).lists
    assert lists is not None
    with evaluating(model):
        vectors = predictor.node_vectors(model)
        for row, source in enumerate(sources.tolist()):
            free = [c for c in range(200) if c != source and (source, c) not in known]
            scores = predictor.pair_scores(model, vectors, np.stack([np.full(len(free), source), free], 1))
            order = np.argsort(-scores, kind="stable")[:59]
            np.testing.assert_allclose(lists.scores[row], scores[order], rtol=1e-5, atol=1e-6)
            assert len(set(lists.candidates[row].tolist()) & {free[place] for place in order}) >= 58


def test_popularity_is_that_of_training(tmp_path: Path, home: Home) -> None:
    graph = graph_of(tmp_path, home)
    degree = np.bincount(graph["train_edges"][:, 1], minlength=graph.manifest.num_nodes)
    controls = dict(TargetControls(graph).predictions("test", Prediction()))
    assert set(controls) == {"popular_targets", "joined_alike"}
    for row, (_, places) in enumerate(reference(graph, "test", lambda _, b: float(degree[b])).values()):
        np.testing.assert_allclose(controls["popular_targets"].ranked.places[row, : len(places)], places)


def test_a_source_of_the_targets_type_is_no_target(tmp_path: Path, home: Home) -> None:
    from tasks.inference.ranked_targets import TargetLinks

    dataset = movie_tables(tmp_path)
    for one in dataset["edges"]:
        if one["relation"] == "likes":
            one |= {"target_type": "user"}
    dataset["nodes"] = [one for one in dataset["nodes"] if one["type"] != "user"]
    graph = graph_of(tmp_path, home, **dataset)
    links = TargetLinks(graph, "test")
    users = np.flatnonzero(np.asarray(graph["node_type"]) == graph.manifest.node_types.index("user"))
    assert links.candidates.tolist() == users.tolist()
    own = links.own_columns(users[3:9])
    assert own is not None
    assert links.candidates[own].tolist() == users[3:9].tolist()
    pairs = np.concatenate([graph[f"{name}_edges"] for name in ("train", "valid", "test")]).tolist()
    indptr, known, _, _ = links.past(users, links.moments(users))
    right = links.right(users)
    for row, user in enumerate(users.tolist()):
        ends = {b for a, b in pairs if a == user} | {a for a, b in pairs if b == user}
        told = [*known[indptr[row] : indptr[row + 1]], *right[1][right[0][row] : right[0][row + 1]]]
        assert set(links.candidates[told].tolist()) == ends
