"""Tables in blocks that several ranks train: blocks and samples travel, and the outcome is that of one rank."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from configs.load import build_recipe
from tasks.stage import Parent
from tasks.train.families import family_of
from tasks.train.job import BEST, LAST, RESULT, Job
from tasks.train.state import checkpoint
from tasks.train.strategies.base import Ranks
from tests.knowledge_graphs import triple_graph
from tests.ranked_shop import store_of
from tests.support import node_graph, written
from tests.train.in_process import make_job, own_settings, train_here
from tests.train.knowledge_trainings import recipe as knowledge_recipe
from tests.train.test_tables import recipe
from tests.train.test_training import records
from tests.train.two_processes import run_ranks, run_two_ranks


def strategy(**options: Any) -> dict[str, Any]:
    return {"name": "block_grid", "pool": 60_000, **options}


def vectors(job: Job) -> torch.Tensor:
    model: dict[str, torch.Tensor] = torch.load(job.work / BEST, weights_only=True)["model"]
    return model["encoder.embedding.weight"]


@pytest.mark.parametrize(
    ("ranks", "order", "options"), [(2, "second", {}), (2, "both", {"memory": 20_000}), (3, "first", {"blocks": 7})]
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


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Parent:
    """300 nodes in four parts: no training node, a few, many, most."""
    parent = node_graph(tmp_path_factory.mktemp("graph"), num_nodes=300, seed=3)
    train = np.asarray(store_of(parent)["train_idx"])
    first = int(train[0])
    assert first > 0
    return written(parent, 0, first, int(train[3]), int(train[50]))


def make(graph: Parent, work: Path, *overrides: str) -> Job:
    """One step of a model that reads no neighbours, so that clusters change nothing but who has which row."""
    sections: dict[str, Any] = {
        "name": "test",
        "dataset": {"name": "synthetic"},
        "model": {"name": "mlp", "hidden_dim": 8, "num_layers": 2, "norm": "none", "dropout": 0.0},
        "train": {"epochs": 1, "optimizer": "sgd", "learning_rate": 1.0, "clip_norm": 5.0, "threads": 1},
    }
    return make_job(build_recipe(sections, overrides), graph, work)


def weights(job: Job) -> torch.Tensor:
    state = checkpoint.load(job.work / LAST)["model"]
    return torch.cat([state[name].reshape(-1) for name in sorted(state)])


def alone(job: Job) -> Job:
    train_here(job)
    return job


def together(*jobs: Job) -> None:
    """Train jobs one after the other with two ranks."""
    run_two_ranks("tests.train.unequal_ranks", *jobs)


def test_a_step_is_that_of_the_mean_over_all_rows(graph: Parent, tmp_path: Path) -> None:
    whole = weights(alone(make(graph, tmp_path / "whole", "train.loader=full")))
    fresh = weights(alone(make(graph, tmp_path / "fresh", "train.loader=full", "train.learning_rate=1e-12")))
    assert not torch.allclose(whole, fresh, atol=1e-2)

    added = alone(make(graph, tmp_path / "added", "train.loader=cluster", "train.accumulate_steps=4"))
    torch.testing.assert_close(weights(added), whole, rtol=1e-4, atol=1e-6)

    pairs = make(graph, tmp_path / "pairs", "train.loader=cluster", "train.loader.clusters_per_batch=2")
    both = make(graph, tmp_path / "both", "train.loader=cluster", "train.accumulate_steps=2")
    together(pairs, both)
    torch.testing.assert_close(weights(pairs), whole, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(weights(both), whole, rtol=1e-4, atol=1e-6)


def test_missing_labels_count_for_no_rank(tmp_path: Path) -> None:
    """Ranks get equally many seeds, of which some have no label."""
    parent = node_graph(tmp_path / "graph", num_nodes=300, seed=3)
    path = parent.folder / "label.npy"
    label = np.load(path)
    label[: len(label) // 3] = -1
    np.save(path, label)
    graph = written(parent)
    whole = weights(alone(make(graph, tmp_path / "whole", "train.loader=full")))
    shared = make(graph, tmp_path / "shared", "train.loader=full")
    together(shared)
    torch.testing.assert_close(weights(shared), whole, rtol=1e-4, atol=1e-6)


def test_whole_parts_with_unequally_many_seeds_take_one_step(graph: Parent, tmp_path: Path) -> None:
    job = make(graph, tmp_path / "parts", "train.loader=full", "train.strategy=partition_parallel", "train.epochs=3")
    together(job)
    assert [line["epoch"] for line in records(job.work) if "train/loss" in line] == [1, 2, 3]


def test_what_ranks_counted_before_a_kill_counts_once(graph: Parent, tmp_path: Path) -> None:
    options = (
        "train.loader=neighbor",
        "train.loader.batch_size=16",
        "train.loader.fanout=2,2",
        "train.checkpoint_minutes=1e-6",
    )
    kept, stopped = (make(graph, tmp_path / name, *options) for name in ("kept", "stopped"))
    together(kept, stopped)
    told, again = records(kept.work), records(stopped.work)
    assert len(told) > 3
    assert again == told
