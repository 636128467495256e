"""Rows of knowledge graphs in blocks: what their queries are compared with, and how well they learn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.knowledge.base import Side
from tasks.train.knowledge.learning import _TripleBatch
from tests.knowledge_graphs import triple_graph
from tests.train.knowledge_trainings import best_mrr, recipe, trained


def test_queries_meet_all_blocks_equally_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else entities of some blocks would seem to be false, and others would never be compared."""
    met, plain = np.zeros((4, 4)), _TripleBatch._drawn

    def counted(batch: _TripleBatch, side: Side, block: int, count: int) -> Any:
        met[batch.blocks["tail" if side == "head" else "head"], block] += count
        return plain(batch, side, block, count)

    monkeypatch.setattr(_TripleBatch, "_drawn", counted)
    loader = {"batch_size": 16, "negatives": 8}
    asked = recipe(train={"epochs": 30, "eval_every": 30, "loader": loader, "strategy": {"blocks": 4}})
    rng = np.random.default_rng(4)
    triples = np.stack([rng.integers(120, size=1200), rng.integers(3, size=1200), rng.integers(120, size=1200)], 1)
    splits = {"train": triples[:1000], "valid": triples[1000:1100], "test": triples[1100:]}
    trained(triple_graph(tmp_path, splits), tmp_path / "work", asked)
    assert met / met.sum(1, keepdims=True) == pytest.approx(np.full((4, 4), 0.25), abs=0.03)


@pytest.mark.parametrize("strategy", [{"blocks": 4}, {"memory": 14_000}], ids=str)
def test_blocks_learn_as_well(tmp_path: Path, strategy: dict[str, Any]) -> None:
    graph = triple_graph(tmp_path / "graph")
    trained(graph, tmp_path / "work", recipe(train={"epochs": 60, "strategy": strategy}))
    assert best_mrr(tmp_path / "work") > 0.3
