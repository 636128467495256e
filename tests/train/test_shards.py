"""Tables whose rows several ranks write: here one rank writes all."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from configs.errors import IntegrityError
from tasks.sampling.parts.exchange import Exchange
from tasks.sampling.parts.ranges import Ranges
from tasks.train.embeddings import shards
from tasks.train.embeddings.shards import read_shards, remove_others, whole_tables, write_shards

ROWS = 11


@pytest.fixture
def ranges() -> Ranges:
    return Ranges(np.array([0, ROWS]), Exchange(0, 1))


def tables(value: float) -> dict[str, torch.Tensor]:
    return {"weight": torch.full((ROWS, 3), value), "sums": torch.full((ROWS,), -value)}


def test_a_checkpoint_holds_until_the_next_is_whole(tmp_path: Path, ranges: Ranges) -> None:
    first = write_shards(tmp_path, "last", tables(1.0), ranges, writes=True)
    second = write_shards(tmp_path, "last", tables(2.0), ranges, writes=True)  # of the same step, say
    assert first["folder"] != second["folder"]
    assert torch.equal(read_shards(tmp_path, first, ranges)["weight"], tables(1.0)["weight"])
    remove_others(tmp_path, "last", second)
    found = read_shards(tmp_path, second, ranges)
    assert all(torch.equal(found[name], rows) for name, rows in tables(2.0).items())
    assert [path.name for path in tmp_path.glob("*.tables")] == [second["folder"]]
    whole = whole_tables(found, ranges, tmp_path, writes=True)
    assert all(torch.equal(whole[name].reshape(rows.shape), rows) for name, rows in tables(2.0).items())


def test_changed_and_missing_rows_are_refused(tmp_path: Path, ranges: Ranges) -> None:
    described = write_shards(tmp_path, "best", tables(1.0), ranges, writes=True)
    path = tmp_path / described["folder"] / "weight.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(IntegrityError, match=r"rows 0 to 10 are not as they were written.*remove the checkpoint"):
        read_shards(tmp_path, described, ranges)
    path.unlink()
    with pytest.raises(IntegrityError, match="cannot be read"):
        read_shards(tmp_path, described, ranges)


def test_files_that_others_write_too_are_not_opened_to_be_read(tmp_path: Path) -> None:
    """A client of NFS would write whole pages back, others' rows in them as they were before."""
    (tmp_path / "rows").write_bytes(b"1234")
    with shards._write_into(tmp_path / "rows") as file:
        assert fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY
        file.seek(2)
        file.write(b"x")
    assert (tmp_path / "rows").read_bytes() == b"12x4"


def test_a_rank_may_have_no_row(tmp_path: Path) -> None:
    """Its file is as long as the whole table nevertheless."""
    ranges = Ranges(np.array([0, 0, ROWS]), Exchange(0, 1))  # it makes the files, and a second one would fill them
    found = write_shards(tmp_path, "last", {"weight": torch.zeros(0, 3)}, ranges, writes=True)
    path = tmp_path / found["folder"] / "weight.npy"
    assert np.load(path, mmap_mode="r").shape == (ROWS, 3)
