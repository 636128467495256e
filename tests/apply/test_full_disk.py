"""Where a disk has no room for what is asked for: one error that names it, and nothing half-written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from configs.errors import RecipeError, StageError
from flows.commands.outputs.neighbors import write_neighbors
from tasks.apply.model.files import write_tensors
from tasks.apply.vector_files.formats import ENDINGS
from tasks.apply.vector_files.neighbors import Neighbors
from tasks.apply.vector_files.writers import open_vectors
from tasks.storage.artifacts import output_errors


@pytest.mark.parametrize("format", ENDINGS)
def test_vectors_that_a_disk_has_no_room_for_leave_nothing(small_disk: Path, format: str) -> None:
    """Each writer says that the disk is full as the system does, and `--output` is named."""
    output = small_disk / f"vectors{ENDINGS[format]}"
    numbers = np.random.default_rng(0).normal(size=(20_000, 64)).astype(np.float32)

    def write() -> None:
        work = small_disk / "work"
        work.mkdir()
        with open_vectors(work / output.name, format, len(numbers), 64) as writer:
            writer.add({"id": pa.array(range(len(numbers)))}, numbers)

    words = r"--output .*vectors\.\w+ is not written: the disk .*full"
    with pytest.raises(StageError, match=words), output_errors(output):
        write()


def test_model_files_and_neighbours_that_a_disk_has_no_room_for(small_disk: Path, tmp_path: Path) -> None:
    output = small_disk / "model.safetensors"
    with pytest.raises(StageError, match=r"model\.safetensors is not written: the disk"), output_errors(output):
        write_tensors(output, {"weight": torch.rand(1 << 20)}, ("model", "{}"))
    assert not list(small_disk.iterdir())
    (small_disk / "fill").write_bytes(bytes(2 * 2**20 - 2**14))
    found = [Neighbors(node, list(range(5000)), np.random.default_rng(node).random(5000)) for node in range(20)]
    with pytest.raises(StageError, match=r"near\.parquet is not written: the disk"):
        write_neighbors(found, small_disk / "near.parquet")
    assert [path.name for path in small_disk.iterdir()] == ["fill"]
    (tmp_path / "near.parquet").mkdir()
    with pytest.raises(RecipeError, match=r"--output .*near\.parquet is a folder; name a file"):
        write_neighbors(found, tmp_path / "near.parquet")
