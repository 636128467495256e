"""Knowledge graphs are learnt on a device as on the CPU: here on the CPU, by what steps are taken with on a device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from models.kernels.dense import complex_products, dropout, loss_rows
from models.kernels.similarity import rows as similarity
from tasks.train.knowledge import comparing
from tasks.train.tables.device import RankDevice
from tests.knowledge_graphs import triple_graph
from tests.train.knowledge_trainings import LOADER, best, best_mrr, check_same, recipe, trained, trained_up_to
from tests.train.test_knowledge import SCORERS
from tests.train.test_knowledge_features import features

CUDA = torch.cuda.is_available()
DEVICE = RankDevice(torch.device("cuda" if CUDA else "cpu"), 1 << 30)
SHORT: dict[str, Any] = {"epochs": 2, "eval_every": 2, "learning_rate": 0.05, "optimizer": "sgd"}


def on_device(graph: Any, work: Path, asked: Any, place: RankDevice = DEVICE) -> Any:
    """Train where the CPU's kernels are not taken, whatever the device is."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (complex_products, dropout, loss_rows, comparing):
            patch.setattr(module, "has_kernels", lambda *_: False)
        patch.setattr(similarity, "_has_kernel", lambda *_: False)
        return trained(graph, work, asked, place=place)


def check_near(one: Path, two: Path, tolerance: float = 1e-4) -> None:
    """Two trainings have ended with nearly the same rows, and these have moved."""
    first, second = best(one)["model"], best(two)["model"]
    for name in ("encoder.embedding.weight", "relations"):
        torch.testing.assert_close(second[name], first[name], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("scorer", SCORERS)
@pytest.mark.parametrize(
    ("model", "train"),
    [
        ({"penalty": "n3", "entity_penalty": 0.1, "relation_penalty": 0.1}, {"loss": "softmax"}),
        ({}, {"loss": {"name": "logistic", "adversarial": 0.5}, "loader": {"share": 16}}),
    ],
)
def test_rows_move_as_on_the_cpu(tmp_path: Path, scorer: str, model: dict[str, Any], train: dict[str, Any]) -> None:
    graph = triple_graph(tmp_path / "graph")
    loader = {**LOADER, **train.get("loader", {})}
    asked = recipe(model={"name": scorer, "dim": 16, **model}, train={**SHORT, **train, "loader": loader})
    trained(graph, tmp_path / "cpu", asked)
    on_device(graph, tmp_path / "device", asked)
    check_near(tmp_path / "cpu", tmp_path / "device")


@pytest.mark.parametrize(
    ("model", "train"),
    [
        ({"name": "complex", "inverse_relations": True}, {"optimizer": "adagrad"}),
        ({"name": "distmult"}, {"loader": {"name": "one_vs_all", "batch_size": 64}}),
        ({"name": "transe"}, {"loader": {"name": "k_vs_all", "batch_size": 64, "label_smoothing": 0.1}}),
        ({"name": "simple"}, {"strategy": {"name": "block_grid", "blocks": 4}}),
        ({"name": "rotate"}, {"loader": {**LOADER, "known_end": True}}),
    ],
)
def test_with_features(tmp_path: Path, model: dict[str, Any], train: dict[str, Any]) -> None:
    graph = triple_graph(tmp_path / "graph", feat=features(120, 3), relation_feat=features(5, 2))
    asked = recipe(model={"dim": 16, **model}, train={**SHORT, **train})
    trained(graph, tmp_path / "cpu", asked)
    on_device(graph, tmp_path / "device", asked)
    check_near(tmp_path / "cpu", tmp_path / "device", 2e-3 if train.get("optimizer") == "adagrad" else 2e-4)


@pytest.mark.skipif(CUDA, reason="sums on a GPU are made in any order")
def test_a_training_that_was_stopped_goes_on_to_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = triple_graph(tmp_path / "graph", feat=features(120, 3))
    asked = recipe(model={"dim": 16}, train={"epochs": 4, "eval_every": 2, "optimizer": "adam", "learning_rate": 0.01})
    trained_up_to(2, graph, tmp_path / "stopped", asked, DEVICE)
    for work in ("stopped", "whole"):
        trained(graph, tmp_path / work, asked, place=DEVICE)
    check_same(tmp_path / "stopped", tmp_path / "whole")


def test_what_is_dropped_of_rows_is_dropped_of_gradients(tmp_path: Path) -> None:
    graph = triple_graph(tmp_path / "graph")
    dropped = {"entity_dropout": 0.2, "relation_dropout": 0.1}
    asked = recipe(model=dropped)
    trained(graph, tmp_path / "cpu", asked)
    on_device(graph, tmp_path / "device", asked)
    assert best_mrr(tmp_path / "device") == pytest.approx(best_mrr(tmp_path / "cpu"), abs=0.05)
    x = torch.ones(100_000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dropout, "has_kernels", lambda *_: False)
        once, again = (dropout.dropout(x.clone(), 0.3, key=5, inplace=True) for _ in range(2))
        other = dropout.dropout(x, 0.3, key=6)
    assert torch.equal(once, again)
    assert not torch.equal(once, other)
    assert once.unique().tolist() == pytest.approx([0.0, 1 / 0.7])
    assert float((once == 0).float().mean()) == pytest.approx(0.3, abs=0.01)
