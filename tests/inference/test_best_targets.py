"""Lists of targets against a plain loop over all pairs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from configs.registry import MODELS
from tasks.inference import best_targets as room
from tasks.inference.best_targets import best_targets
from tasks.inference.predictor import Predictor, evaluating
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import GraphStore
from tests.support import as_partition, link_graph


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("at_once", [1, 70, 1 << 20])
def test_they_are_the_best_that_are_not_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, directed: bool, at_once: int
) -> None:
    monkeypatch.setattr(room, "_PAIRS", at_once)
    graph = as_partition(link_graph(tmp_path, dim=4))
    store = GraphStore(graph.folder, graph.manifest)
    torch.manual_seed(0)
    config = MODELS.config({"name": "graphsage", "hidden_dim": 8, "num_layers": 2, "decoder": "dot"})
    model = MODELS.create(config, graph_facts(graph.manifest))
    predictor = Predictor(store)
    rng = np.random.default_rng(1)
    sources, candidates = rng.permutation(200)[:13], np.sort(rng.permutation(200)[:61])
    known = {tuple(pair) for name in ("train", "valid", "test") for pair in store[f"{name}_edges"].tolist()}
    if not directed:
        known |= {(b, a) for a, b in known}
    with evaluating(model):
        parts = list(best_targets(predictor, model, sources, candidates, 59, directed=directed))
        vectors = predictor.node_vectors(model)
        made = [np.concatenate([getattr(part, name) for part in parts]) for name in parts[0]._fields]
        for number, source in enumerate(sources.tolist()):
            free = [c for c in candidates.tolist() if c != source and (source, c) not in known]
            pairs = np.stack([np.full(len(free), source), free], 1)
            scores = predictor.pair_scores(model, vectors, pairs)
            order = np.argsort(-scores, kind="stable")[:59]
            rows = made[0] == number
            assert made[1][rows].tolist() == list(range(1, len(order) + 1))
            assert made[2][rows].tolist() == [free[place] for place in order]
            np.testing.assert_array_equal(made[3][rows], scores[order])


def test_of_a_source_that_is_joined_to_all_there_is_nothing(tmp_path: Path) -> None:
    graph = as_partition(link_graph(tmp_path, dim=4))
    store = GraphStore(graph.folder, graph.manifest)
    model = MODELS.create(MODELS.config({"name": "graphsage", "hidden_dim": 8}), graph_facts(graph.manifest))
    source, target = store["train_edges"][0].tolist()
    with evaluating(model):
        [part] = best_targets(Predictor(store), model, np.array([source]), np.sort([source, target]), 5, directed=True)
    assert not len(part.target)
