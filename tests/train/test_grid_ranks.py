"""Tables in blocks that several ranks train: blocks and samples travel, and the outcome is that of one rank."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tasks.train.families import family_of
from tasks.train.job import BEST, RESULT, Job
from tasks.train.strategies.base import Ranks
from tests.knowledge_graphs import triple_graph
from tests.support import node_graph
from tests.train.in_process import make_job, own_settings
from tests.train.knowledge_trainings import recipe as knowledge_recipe
from tests.train.test_tables import recipe, written
from tests.train.two_processes import run_ranks


def strategy(**options: Any) -> dict[str, Any]:
    return {"name": "block_grid", "pool": 60_000, **options}


def vectors(job: Job) -> torch.Tensor:
    model: dict[str, torch.Tensor] = torch.load(job.work / BEST, weights_only=True)["model"]
    return model["encoder.embedding.weight"]


@pytest.mark.parametrize(
    ("ranks", "order", "options"),
    [(2, "second", {}), (2, "both", {"memory": 20_000}), (3, "first", {"blocks": 7})],
)
def test_ranks_learn_as_well_as_one(tmp_path: Path, ranks: int, order: str, options: dict[str, Any]) -> None:
    """In memory or with files; the blocks of all ranks reach rank 0, and a loss that falls is that of all."""
    asked = recipe(model={"order": order}, train={"num_ranks": ranks, "strategy": strategy(**options), "samples": 1e6})
    graph = written(node_graph(tmp_path / "graph"))
    job = make_job(asked, graph, tmp_path / "ranks")
    run_ranks("tests.train.grid_ranks", ranks, job)
    alone = make_job(
        recipe(model={"order": order}, train={"strategy": strategy(blocks=7), "samples": 1e6}),
        graph,
        tmp_path / "alone",
    )
    with own_settings():
        family_of(alone.train).train(alone, Ranks())
    results = [json.loads((made.work / RESULT).read_text()) for made in (job, alone)]
    assert results[0]["best_metric"] == pytest.approx(results[1]["best_metric"], abs=0.1)
    assert results[0]["rows"] == pytest.approx(results[1]["rows"], rel=0.02)
    assert vectors(job).norm(dim=1).numpy() == pytest.approx(np.ones(300), abs=1e-5)


def test_ranks_write_blocks_as_they_are(tmp_path: Path) -> None:
    """A training that saves after every pool ends with the same vectors, and keeps one file a block."""
    graph = written(node_graph(tmp_path / "graph"))
    train = {"strategy": strategy(blocks=4), "threads": 1, "num_ranks": 2}
    ranks = make_job(recipe(train=train), graph, tmp_path / "ranks")
    again = make_job(recipe(train={**train, "checkpoint_minutes": 1e-9}), graph, tmp_path / "again")
    for job in (ranks, again):
        run_ranks("tests.train.grid_ranks", 2, job)
    assert torch.equal(vectors(ranks), vectors(again))
    assert len(list((again.work / "blocks").iterdir())) == 2 * 4


def test_ranks_move_relations_by_what_all_have_learnt() -> None:
    run_ranks("tests.train.share_relations", 2)


def test_ranks_learn_a_knowledge_graph_as_well_as_one(tmp_path: Path) -> None:
    """Blocks of entities travel, relations are shared, and rank 0 ranks what all have learnt."""
    graph = triple_graph(tmp_path / "graph")
    asked = knowledge_recipe(train={"epochs": 60, "eval_every": 30, "num_ranks": 2})
    job = make_job(asked, graph, tmp_path / "ranks")
    run_ranks("tests.train.grid_ranks", 2, job)
    alone = make_job(knowledge_recipe(train={"epochs": 60, "eval_every": 30}), graph, tmp_path / "alone")
    with own_settings():
        family_of(alone.train).train(alone, Ranks())
    results = [json.loads((made.work / RESULT).read_text()) for made in (job, alone)]
    assert results[0]["best_metric"] == pytest.approx(results[1]["best_metric"], abs=0.1)
    assert results[0]["best_metric"] > 0.4  # a random order: .04
    assert results[0]["rows"] == results[1]["rows"]
