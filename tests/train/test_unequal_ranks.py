"""Ranks whose batches have unequally many labels learn, and count, as one rank that has all rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from configs.load import build_recipe
from tasks.stage import Parent
from tasks.storage.graph_store import GraphStore
from tasks.train.job import LAST, Job
from tasks.train.state import checkpoint
from tests.support import as_partition, node_graph
from tests.train.in_process import make_job, train_here
from tests.train.test_training import records
from tests.train.two_processes import run_two_ranks


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Parent:
    """300 nodes in four parts: no training node, a few, many, most."""
    parent = node_graph(tmp_path_factory.mktemp("graph"), num_nodes=300, seed=3)
    train = np.asarray(GraphStore(parent.folder, parent.manifest)["train_idx"])
    first = int(train[0])
    assert first > 0
    offsets = (0, first, int(train[3]), int(train[50]), 300)
    manifest = as_partition(parent).manifest.model_copy(update={"num_parts": 4, "part_offsets": offsets})
    (parent.folder / "manifest.json").write_text(manifest.model_dump_json())
    return Parent(manifest, parent.folder)


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
    graph = as_partition(parent)
    (parent.folder / "manifest.json").write_text(graph.manifest.model_dump_json())
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
