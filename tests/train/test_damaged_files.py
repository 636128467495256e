"""Files of a training that were changed after they were written: named, with a way out, and never read as they are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from configs.errors import CheckpointError, RecipeError
from configs.load import build_recipe
from tasks.storage.graph_store import GraphStore
from tasks.train.job import LAST, Job
from tasks.train.node_vectors.vectors import finish_vectors
from tasks.train.run import Bookkeeper, run
from tasks.train.state import checkpoint
from tasks.train.state.journal import Journal, Progress
from tasks.train.strategies.base import Ranks
from tasks.train.tables.pair_engine import PairEngine
from tests.support import node_graph
from tests.train.in_process import make_engine, make_job, own_settings, run_engine
from tests.train.test_tables import train, written


def table_job(tmp_path: Path, **train: Any) -> Job[Any]:
    """A short training of two blocks."""
    options = {"samples": 50_000, "loader": {"length": 20, "window": 3}, "threads": 1, "strategy": {"blocks": 2}}
    model = {"name": "skipgram", "dim": 16}
    asked = build_recipe({"name": "demo", "dataset": "synthetic", "model": model, "train": {**options, **train}})
    return make_job(asked, written(node_graph(tmp_path / "graph")), tmp_path / "work")


def flip(path: Path, byte: int) -> None:
    content = bytearray(path.read_bytes())
    content[byte] ^= 1 << 6
    path.write_bytes(content)


def test_a_block_that_was_damaged_after_the_last_pool_is_named(tmp_path: Path) -> None:
    """All that is left to do then is to make vectors of its rows."""
    job = table_job(tmp_path)

    with own_settings():
        run(PairEngine(job, Ranks()))
    (file,) = (job.work / "blocks").glob("second.centres.1.*")
    flip(file, 4003)
    with pytest.raises(CheckpointError, match=rf"{file.name} was changed after it was written"):
        train(job)
    flip(file, 4003)
    train(job)


@pytest.mark.parametrize("number", [np.nan, np.inf, 1e30])
def test_vectors_that_are_not_finite_are_not_published(tmp_path: Path, number: float) -> None:
    job = table_job(tmp_path)
    vectors = np.ones((300, 16), np.float32)
    vectors[7, 3] = number
    journal = Journal(job.work, Progress(), 1, 1, 1, writes=True)
    message = re.escape("gave 1 of 300 nodes vectors that are not finite")
    with pytest.raises(RecipeError, match=message + ".*Lower train.learning_rate"):
        finish_vectors(job, GraphStore.open(job.graph), torch.from_numpy(vectors), journal)


def gnn_job(tmp_path: Path) -> Job[Any]:
    """An epoch of a small GNN."""
    model = {"name": "graphsage", "hidden_dim": 8, "num_layers": 2}
    asked = build_recipe({"name": "demo", "dataset": "synthetic", "model": model, "train": {"epochs": 1}})
    return make_job(asked, written(node_graph(tmp_path / "graph")), tmp_path / "work")


@pytest.mark.parametrize("family", ["table", "gnn"])
def test_a_checkpoint_with_a_flipped_bit_is_never_gone_on_from(tmp_path: Path, family: str) -> None:
    """Wherever the bit is: in numbers, in what says where they lie, or in names."""
    job = table_job(tmp_path) if family == "table" else gnn_job(tmp_path)
    with own_settings():
        run_engine(PairEngine(job, Ranks()) if family == "table" else make_engine(job))
    path = job.work / LAST
    whole = path.read_bytes()
    wanted = checkpoint.load(path, job.digest)
    found = []
    for byte in np.random.default_rng(0).choice(len(whole), 400, replace=False).tolist():
        flip(path, byte)
        try:  # what fills up to a record's place in the file, and dates, say nothing
            assert repr(checkpoint.load(path, job.digest)) == repr(wanted)
        except CheckpointError as error:
            found.append(str(error))
        path.write_bytes(whole)
    assert len(found) > 100
    assert all(str(path) in message for message in found)


@pytest.mark.parametrize("family", ["table", "gnn"])
@pytest.mark.parametrize("key", ["progress", "model", "settings", "blocks", "optimizer"])
def test_a_checkpoint_without_its_parts_is_named(tmp_path: Path, family: str, key: str) -> None:
    """As one of another version may be, or one that somebody else made."""
    job = table_job(tmp_path) if family == "table" else gnn_job(tmp_path)

    def begin() -> Any:
        with own_settings():
            return PairEngine(job, Ranks()) if family == "table" else make_engine(job)

    Bookkeeper(begin()).save()
    path = job.work / LAST
    state = checkpoint.load(path)
    if key not in state:
        return
    for damaged in ({name: part for name, part in state.items() if name != key}, {**state, key: {"no": 1}}):
        checkpoint.save_atomic(damaged, path)
        with pytest.raises(CheckpointError, match=rf"{re.escape(str(path))} is damaged: "):
            begin()
