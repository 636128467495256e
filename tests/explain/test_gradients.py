"""Weights of edges: they change nothing at 1, their gradients are slopes, and integrated they add up."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from configs.registry import EXPLAINERS
from tasks.explain.base import Effects, Explanation
from tasks.explain.scored import ScoredNeighborhood
from tasks.explain.soft_edges import SoftScore
from tasks.storage.graph_store import GraphStore
from tests.explain.test_removal import MODELS_OF_LAYERS, model_of, scored_of
from tests.support import as_partition, node_graph


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> GraphStore:
    graph = as_partition(node_graph(tmp_path_factory.mktemp("graph"), num_nodes=143, dim=7))
    return GraphStore(graph.folder, graph.manifest)


def looked_at(store: GraphStore, name: str) -> ScoredNeighborhood:
    scored = scored_of(store, model_of(name, store))
    scored.look_at(np.array([17], np.int32))
    return scored


@pytest.mark.parametrize("name", MODELS_OF_LAYERS)
def test_weights_of_one_change_nothing_and_gradients_are_slopes(store: GraphStore, name: str) -> None:
    scored = looked_at(store, name)
    soft = SoftScore(scored)
    score = scored.asked.value(soft.outputs(soft.ones))[0].item()
    np.testing.assert_allclose(score, scored.scores(scored.variants(1))[0, 0], atol=1e-6)
    torch.manual_seed(3)
    weight, direction = 0.3 + 0.5 * torch.rand(len(soft.ones)), torch.randn(len(soft.ones))
    tables = {table: one.values for table, one in soft.numbers.items()}
    turned = {table: torch.randn(values.shape) for table, values in tables.items()}
    of_edges, of_tables = soft.gradients(weight, tables, odds=True)
    assert set(of_tables) == {"nodes"}
    slope = (of_edges @ direction + sum((of_tables[table] * turned[table]).sum() for table in tables)).item()
    step = 1e-3

    def margin(way: float) -> float:
        changed = {table: values + way * turned[table] for table, values in tables.items()}
        return scored.asked.margin(soft.outputs(weight + way * direction, changed)).item()

    np.testing.assert_allclose(slope, (margin(step) - margin(-step)) / (2 * step), rtol=0.05, atol=0.02)
    if name != "mlp":
        assert of_edges.abs().max() > 0


def of_part(explained: Explanation, part: str) -> Iterator[Effects]:
    return (one for one in explained.effects if one.part == part)


@pytest.mark.parametrize("name", ["graphsage", "gcn", "gat", "gin", "sgc"])
def test_integrated_effects_add_up_to_the_difference_of_scores(store: GraphStore, name: str) -> None:
    scored = looked_at(store, name)
    explained = EXPLAINERS.create(EXPLAINERS.config({"name": "integrated", "steps": 200})).explain(scored)
    soft = SoftScore(scored)
    start = torch.from_numpy(scored.columns.usual).float().expand_as(soft.numbers["nodes"].values)
    first = scored.asked.value(soft.outputs(torch.zeros_like(soft.ones), {"nodes": start}))[0].item()
    total = sum(float(one.effect.sum()) for one in explained.effects)
    np.testing.assert_allclose(total, explained.score - first, atol=2e-3)
    [edges] = of_part(explained, "edge")
    assert np.abs(edges.effect).max() > 1e-4
    assert not any("take more steps" in note for note in explained.notes)


def test_a_mask_keeps_what_the_score_needs(store: GraphStore) -> None:
    scored = looked_at(store, "gcn")
    explained = EXPLAINERS.create(EXPLAINERS.config({"name": "mask", "learning_rate": 0.05, "size": 0.0005})).explain(
        scored
    )
    [edges] = of_part(explained, "edge")
    assert ((edges.effect > 0) & (edges.effect < 1)).all()
    hood = scored.hood
    outermost = np.maximum(hood.hop[hood.units.source], hood.hop[hood.units.target]) == 2
    assert (edges.effect[outermost] <= 0.5).all(), "their reverses are not read"
    assert edges.effect[~outermost].max() > 0.5
    soft = SoftScore(scored)

    def score(kept: np.ndarray) -> float:
        return scored.asked.margin(soft.outputs(torch.from_numpy(kept).float()))[0].item()

    many = int(0.3 * len(edges.effect))
    order = np.argsort(-edges.effect)
    of_best, of_worst = np.zeros(len(order)), np.zeros(len(order))
    of_best[order[:many]], of_worst[order[-many:]] = 1, 1
    assert score(of_best) > score(of_worst)
