"""Users' Parquet files: whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.storage.file_names import beside
from tasks.storage.outputs.parquet_output import ParquetOutput


def test_a_file_takes_its_place_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    with ParquetOutput(path) as output:
        output.write(pa.table({"a": pa.array([1, 2], pa.int64())}))
        output.write(pa.table({"a": pa.array([3], pa.int8())}))  # the first table decides
        assert not path.exists()
    assert output.num_rows == 3
    assert pq.read_table(path) == pa.table({"a": pa.array([1, 2, 3], pa.int64())})
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_leaves_the_former_file_and_no_draft(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(b"former")

    def write() -> None:
        with ParquetOutput(path) as output:
            output.write(pa.table({"a": [1]}))
            output.write(pa.table({"b": [2]}))

    with pytest.raises(ValueError, match="field names"):
        write()
    assert path.read_bytes() == b"former"
    assert list(tmp_path.iterdir()) == [path]


def test_without_a_row_there_is_no_file(tmp_path: Path) -> None:
    with ParquetOutput(tmp_path / "x.parquet"):
        pass
    assert not list(tmp_path.iterdir())


def test_a_link_in_the_place_of_the_draft_is_not_followed(tmp_path: Path) -> None:
    path, victim = tmp_path / "x.parquet", tmp_path / "victim"
    victim.write_bytes(b"theirs")
    beside(path, ".partial").symlink_to(victim)
    with ParquetOutput(path) as output:
        output.write(pa.table({"a": [1]}))
    assert victim.read_bytes() == b"theirs"
    assert not path.is_symlink()
    assert sorted(tmp_path.iterdir()) == [victim, path]
