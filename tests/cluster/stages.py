"""Stages of small graphs on a cluster and on one machine, and whether they are equal."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch

from configs.load import build_recipe
from configs.schema import Recipe
from flows.pipeline.shards import ClusterMap
from tasks.ingest.stage import STAGE as INGEST
from tasks.preprocess.stage import STAGE as PREPROCESS
from tasks.stage import Parent, StageOutcome, run_stage
from tasks.storage.home import Home
from tasks.train.job import BEST, LAST
from tasks.train.stage import STAGE
from tasks.train.state import checkpoint
from tests.flows.conftest import TINY
from tests.preprocess.ears import Ears
from tests.preprocess.snapshot_tables import small_shards
from tests.support import node_graph, written
from tests.train.test_training import recipe, records

ON_CLUSTER = ("cluster.address=auto", "cluster.wait_minutes=1")


def graph_of(home: Home, num_nodes: int = 300, dim: int = 16) -> Parent:
    """A graph in two parts among a home's artifacts."""
    folder = home.artifacts / "partition" / "graph"
    return written(node_graph(folder, num_nodes=num_nodes, dim=dim), 0, num_nodes // 2)


def trained(home: Home, asked: Recipe, graph: Parent | None = None) -> tuple[StageOutcome[Any], list[str]]:
    """Train; return what came of it, and what was said meanwhile."""
    ears = Ears()
    return run_stage(STAGE, asked, {"partition": graph or graph_of(home)}, home, listener=ears), ears.messages


def assert_equal_to_one_machine(outcome: StageOutcome[Any], folder: Path, graph: Parent, asked: Recipe) -> None:
    """The same ranks on this machine alone come to the same bits."""
    alone, _ = trained(Home.open(folder), asked, graph)
    assert records(outcome.folder) == records(alone.folder)
    assert outcome.manifest.best_metric == alone.manifest.best_metric
    for name in (BEST, LAST):  # the last of tables of rows is no model
        ours, theirs = (checkpoint.load(one.folder / name).get("model", {}) for one in (outcome, alone))
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[key], theirs[key]) for key in theirs), name


def two_ranks(*options: str) -> Recipe:
    """A recipe for nodes."""
    return recipe("node", "train.num_ranks=2", *options)


def vectors(*options: str) -> Recipe:
    """A recipe for vectors of nodes, whose ranks exchange blocks of them as files."""
    train = "train={loader: edges, samples: 1e5, threads: 1, num_ranks: 2}"
    return two_ranks("model={name: skipgram, dim: 16}", train, *options)


def gone_within(seconds: float, left: Any) -> Any:
    """Wait until nothing is left; return what is."""
    deadline = time.monotonic() + seconds
    while (still := left()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return still


def assert_shards_equal_to_one_machine(
    home: Home, other: Home, monkeypatch: pytest.MonkeyPatch, *transforms: str
) -> list[str]:
    """Preprocess on the cluster and in another home on this machine; return what was said on the cluster."""
    small_shards(monkeypatch, scale=8)
    asked = build_recipe({**TINY, "preprocess": {"transforms": transforms}}, ON_CLUSTER)
    mapped, ears = ClusterMap(asked, home), Ears()
    mapped._start_seconds = 0
    dataset = run_stage(INGEST, asked, {}, home).parent
    there = run_stage(PREPROCESS, asked, {"ingest": dataset}, home, listener=ears, map_shards=mapped)
    here = run_stage(PREPROCESS, asked, {"ingest": dataset}, other)
    assert there.manifest.digest == here.manifest.digest
    return ears.messages
