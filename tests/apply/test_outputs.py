"""What applying a model writes, beside what is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from configs.errors import DataError
from tasks.apply.vector_files.formats import refuse_other_ids


def test_ids_of_another_matrix_are_not_replaced(tmp_path: Path) -> None:
    work, output = tmp_path / "work", tmp_path / "v.safetensors"
    work.mkdir()
    refuse_other_ids(work, output)  # Parquet and words have none beside them
    (work / "embeddings.ids.parquet").write_bytes(b"new")
    (tmp_path / "v.ids.parquet").write_bytes(b"old")
    refuse_other_ids(work, output)  # there is no other matrix
    (tmp_path / "v.npy").touch()
    with pytest.raises(DataError, match=r"v\.ids\.parquet holds the ids of v\.npy, which differ"):
        refuse_other_ids(work, output)
    refuse_other_ids(work, tmp_path / "v.npy")  # its own
    (work / "embeddings.ids.parquet").write_bytes(b"old")
    refuse_other_ids(work, output)
