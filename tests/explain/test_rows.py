"""Rows that are left out of what a row is scored from, against a database's graph written anew without their edges."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from configs.registry import MODELS
from models.relational.base import RelationalModel
from tasks.explain.asked_score import asked_score
from tasks.explain.base import Effects
from tasks.explain.rows import SampledRows
from tasks.inference.predictor import Predictor
from tasks.inference.sampled import SampledScores
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import GraphStore
from tests.ranked_shop import store_of
from tests.shop_graph import ENDS, shop_graph

EDGES = ("edge_type", "edge_time")


def without(store: GraphStore, gone: set[int]) -> GraphStore:
    """The same graph without edges of some nodes, but those that join tasks to their entities."""
    indptr, indices = np.asarray(store["csc_indptr"]), np.asarray(store["csc_indices"])
    target = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    keep = ~(np.isin(indices, [*gone]) | np.isin(target, [*gone]))
    made = GraphStore(store.folder, store.manifest)
    made.replace("csc_indptr", np.concatenate([[0], np.cumsum(np.bincount(target[keep], minlength=len(indptr) - 1))]))
    made.replace("csc_indices", indices[keep])
    for name in EDGES:
        made.replace(name, np.asarray(store[name])[keep])
    return made


def of_part(effects: list[Effects], part: str) -> Effects:
    return next(one for one in effects if one.part == part)


@pytest.mark.parametrize("name", ["heterosage", "rgat", "hgt"])
def test_rows_left_out_are_what_a_database_without_them_scores(tmp_path: Path, name: str) -> None:
    store = store_of(shop_graph(tmp_path))
    facts = replace(graph_facts(store.manifest), fanouts=((500, 500),) * len(ENDS), newest=True)
    torch.manual_seed(0)
    model: RelationalModel = MODELS.create(MODELS.config({"name": name, "hidden_dim": 8}), facts)
    model.eval()
    seed = int(store["test_idx"][3])
    asked = asked_score(store, model, None, None)
    rows = SampledRows(model, SampledScores(store, model).batch(np.array([seed])), asked)
    explained = rows.explain(10_000)

    def probability(graph: GraphStore) -> float:
        scores = Predictor(graph).node_scores(model, np.array([seed]))
        return float(rows.asked.value(torch.from_numpy(scores))[0])

    np.testing.assert_allclose(explained.score, probability(store), atol=1e-6)
    left_out = of_part(explained.effects, "node")
    assert left_out.without is not None
    nodes = np.concatenate(rows.nodes)
    assert len(left_out.place) == len(nodes) - 1 > 5
    chosen = np.random.default_rng(0).permutation(len(left_out.place))[:8]
    for place in chosen.tolist():
        node = int(nodes[left_out.place[place]])
        np.testing.assert_allclose(left_out.without[place], probability(without(store, {node})), atol=1e-6)
    tables = of_part(explained.effects, "table")
    assert tables.without is not None
    for place, without_table in zip(tables.place.tolist(), tables.without.tolist(), strict=True):
        kind = place - len(nodes)
        gone = {int(node) for node in rows.nodes[kind]} - {int(nodes[rows.seed])}
        np.testing.assert_allclose(without_table, probability(without(store, gone)), atol=1e-6)
