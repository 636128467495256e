"""Files of a training that were changed after they were written: named, with a way out, and never read as they are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from configs.errors import IntegrityError, RecipeError
from configs.load import build_recipe
from models.kernels.row_layout import Rule
from models.vector_configs import Pairing
from tasks.storage.graph_store import GraphStore
from tasks.train.families import family_of
from tasks.train.job import Job
from tasks.train.journal import Journal, Progress
from tasks.train.strategies.base import Ranks
from tasks.train.tables import block_files
from tasks.train.tables.block_files import BlockFiles
from tasks.train.tables.grid import Grid, Tables
from tasks.train.tables.trainer import Trainer
from tasks.train.vectors import finish_vectors
from tests.support import as_partition, node_graph
from tests.train.in_process import make_job, own_settings


class StoppedError(Exception):
    """Stands for a kill."""


def table_job(tmp_path: Path, **train: Any) -> Job[Any]:
    """A short training of two blocks."""
    options = {"samples": 50_000, "loader": {"length": 20, "window": 3}, "threads": 1, "strategy": {"blocks": 2}}
    model = {"name": "skipgram", "dim": 16}
    asked = build_recipe({"name": "demo", "dataset": "synthetic", "model": model, "train": {**options, **train}})
    partition = as_partition(node_graph(tmp_path / "graph"))
    (partition.folder / "manifest.json").write_text(partition.manifest.model_dump_json())
    return make_job(asked, partition, tmp_path / "work")


def train(job: Job[Any]) -> None:
    with own_settings():
        family_of(job.train).train(job, Ranks())


def flip(path: Path, byte: int) -> None:
    content = bytearray(path.read_bytes())
    content[byte] ^= 1 << 6
    path.write_bytes(content)


def test_a_block_that_was_damaged_after_the_last_pool_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is left to do then is to read its rows in pieces."""
    job = table_job(tmp_path)

    def stop(self: Trainer) -> None:
        raise StoppedError

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "finish", stop)
        with pytest.raises(StoppedError):
            train(job)
    (file,) = (job.work / "blocks").glob("second.centres.1.*")
    flip(file, 4003)
    with pytest.raises(IntegrityError, match=rf"{file.name} was changed after it was written; remove .* train anew"):
        train(job)
    flip(file, 4003)
    train(job)


def test_blocks_files_are_checked_a_little_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_files, "_CHECKED_BYTES", 37)
    files = BlockFiles(tmp_path)
    grid = Grid(Tables([Pairing("first", 4, shared=True)], 100, 3, "float32", Rule("adagrad"), 1), Ranks(), files)
    grid.load(("first.centres", block) for block in range(3))
    saved = grid.save()
    assert len(saved) == 3
    for text, (version, checksum) in saved.items():
        name, _, block = text.rpartition(".")
        key = name, int(block)
        files.check(key, version, grid.tables.block_bytes(key), checksum)
        with pytest.raises(IntegrityError, match="was changed after it was written"):
            files.check(key, version, grid.tables.block_bytes(key), checksum ^ 1)


@pytest.mark.parametrize("number", [np.nan, np.inf, 1e30])
def test_vectors_that_are_not_finite_are_not_published(tmp_path: Path, number: float) -> None:
    job = table_job(tmp_path)
    vectors = np.ones((300, 16), np.float32)
    vectors[7, 3] = number
    journal = Journal(job.work, Progress(), 1, 1, 1, writes=True)
    message = re.escape("gave 1 of 300 nodes vectors that are not finite")
    with pytest.raises(RecipeError, match=message + ".*Lower train.learning_rate"):
        finish_vectors(job, GraphStore.open(job.graph), torch.from_numpy(vectors), journal, 1)
