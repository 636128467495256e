"""Of newer typed tables only batches that read something new are computed, and all are equal to the bit."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from configs.registry import MODELS
from models.relational.base import RelationalModel
from tasks.inference.kept_layers import AuditError
from tasks.inference.kept_rows import KeptRows
from tasks.inference.predictor import evaluating
from tasks.inference.sampled import SampledScores
from tasks.stage import Parent
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import GraphStore
from tasks.storage.ids import IdMap
from tests.registered import models_of
from tests.shop_graph import DAY, MOMENTS, shop_graph
from tests.support import WITHOUT_DGL

VISITS = 80  # at each moment


def make_model(graph: Parent, name: str, *, newest: bool) -> RelationalModel:
    torch.manual_seed(0)
    config = MODELS.config({"name": name, "hidden_dim": 16, "num_layers": 2})
    fanouts = tuple((5, 3) for _ in graph.manifest.edge_types)
    facts = dataclasses.replace(graph_facts(graph.manifest), fanouts=fanouts, newest=newest)
    model: RelationalModel = MODELS.create(config, facts)
    return model


def run(folder: Path, model: RelationalModel, graph: Parent, former: Path | None) -> tuple[KeptRows, np.ndarray]:
    folder.mkdir()
    store = GraphStore(graph.folder, graph.manifest)
    rows = IdMap(store, None).nodes_of_type(store.manifest.target_type)
    kept = KeptRows(store, rows, folder, former)
    with evaluating(model):
        return kept, kept.vectors(model, rows)


@pytest.mark.parametrize("newest", [True, False])
@pytest.mark.parametrize("name", [name for name in models_of("relational") if not (WITHOUT_DGL and "dgl" in name)])
def test_moments_before_the_change_are_taken_over(tmp_path: Path, name: str, newest: bool) -> None:
    former, newer = shop_graph(tmp_path / "a"), shop_graph(tmp_path / "b", changed_after=600 * DAY)
    model = make_model(former, name, newest=newest)
    first, _ = run(tmp_path / "first", model, former, None)
    full, wanted = run(tmp_path / "full", model, newer, None)
    delta, found = run(tmp_path / "delta", model, newer, tmp_path / "first")
    assert first.told.computed == full.told.computed == [VISITS * len(MOMENTS)]
    late = sum(moment > 600 * DAY for moment in MOMENTS)
    assert 0 < late < len(MOMENTS)
    assert delta.told.computed == [VISITS * late]
    assert delta.told.audited == 4 * VISITS  # whole batches, of 256 rows or more
    assert np.array_equal(found, wanted)
    store = GraphStore(newer.folder, newer.manifest)
    rows = IdMap(store, None).nodes_of_type(store.manifest.target_type)
    with evaluating(model):
        sampled = SampledScores(store, model).vectors(model, rows, torch.device("cpu"), None)
    if newest and name != "pinsage":  # other batches than an evaluation's, of the same rows; walks are other draws
        np.testing.assert_allclose(found, sampled, rtol=1e-4, atol=1e-5)


def test_a_batch_that_differs_is_noticed(tmp_path: Path) -> None:
    graph: Any = shop_graph(tmp_path / "a")
    model = make_model(graph, "heterosage", newest=True)
    run(tmp_path / "first", model, graph, None)
    kept = np.load(tmp_path / "first" / "vectors.npy", mmap_mode="r+")
    kept += np.float32(1e-5)
    kept.flush()
    with pytest.raises(AuditError, match="computed too differs"):
        run(tmp_path / "again", model, graph, tmp_path / "first")


@pytest.mark.parametrize("name", ["feat", "feat_cat", "node_time"])
def test_whatever_a_model_reads_counts(tmp_path: Path, name: str) -> None:
    former, newer = shop_graph(tmp_path / "a"), shop_graph(tmp_path / "b")
    table = np.load(newer.folder / f"{name}.npy", mmap_mode="r+")
    kinds = np.load(newer.folder / "node_type.npy")
    orders, products = np.flatnonzero(kinds == 1), np.flatnonzero(kinds == 2)
    if name == "node_time":
        table[orders] -= 1
    elif name == "feat":
        table[orders, 1] += 1
    else:
        table[products] = (table[products] + 1) % 4
    table.flush()
    model = make_model(former, "heterosage", newest=True)
    run(tmp_path / "first", model, former, None)
    assert run(tmp_path / "delta", model, newer, tmp_path / "first")[0].told.computed == [VISITS * len(MOMENTS)]


def test_rows_of_as_many_moments_share_batches(tmp_path: Path) -> None:
    graph: Any = shop_graph(tmp_path / "a")
    store = GraphStore(graph.folder, graph.manifest)
    orders = np.flatnonzero(np.asarray(store["node_type"]) == 1)
    kept = KeptRows(store, orders, tmp_path)
    sizes = [part.stop - part.start for part in kept._parts()]
    assert sizes == [1024] * (len(orders) // 1024) + [len(orders) % 1024]
    visits = np.flatnonzero(np.asarray(store["node_type"]) == 3)
    assert [part.stop - part.start for part in KeptRows(store, visits, tmp_path)._parts()] == [VISITS] * len(MOMENTS)
