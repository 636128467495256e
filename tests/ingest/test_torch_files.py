"""Files of torch.save, in all formats that OGB has used."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from configs.errors import DataError
from tasks.ingest.torch_files import load_torch


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("zipped", [True, False])
def test_arrays_and_tensors(tmp_path: Path, protocol: int, zipped: bool) -> None:
    array = np.arange(12, dtype=np.int64).reshape(6, 2)
    values: dict[str, Any] = {
        "edge": array,
        "fortran": np.asfortranarray(array),
        "part": array[1:4],
        "float": np.array([0.5, -2.0], np.float32),
        "empty": np.empty((0, 2)),
        "tensor": torch.arange(10, dtype=torch.int32),
        "transposed": torch.arange(6).reshape(2, 3).t(),
        "slice": torch.arange(10)[3:7],
        "bool": torch.tensor([True, False]),
        "scalar": np.float64(2.5),
        "number": 3,
    }
    path = tmp_path / "x.pt"
    torch.save(values, path, pickle_protocol=protocol, _use_new_zipfile_serialization=zipped)
    loaded = load_torch(path)
    assert list(loaded) == list(values)
    for key, value in values.items():
        np.testing.assert_array_equal(np.asarray(loaded[key]), np.asarray(value), err_msg=key)


def test_same_as_torch(shared_data: Path) -> None:
    path = shared_data / "ogb/ogbl_ddi/split/target/valid.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = torch.load(path, weights_only=False)  # our own copy of the data
    ours = load_torch(path)
    assert set(ours) == set(theirs)
    for key, value in theirs.items():
        np.testing.assert_array_equal(ours[key], value)


@pytest.mark.parametrize("zipped", [True, False])
def test_nothing_is_run(tmp_path: Path, zipped: bool) -> None:
    mark = tmp_path / "executed"

    class Evil:
        def __reduce__(self) -> Any:
            return (Path.touch, (mark,))

    path = tmp_path / "evil.pt"
    torch.save({"edge": np.arange(3), "x": Evil()}, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(DataError, match="is not allowed"):
        load_torch(path)
    assert not mark.exists()


def test_damage_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    for zipped in (True, False):
        torch.save({"edge": torch.arange(1000)}, path, _use_new_zipfile_serialization=zipped)
        whole = path.read_bytes()
        for size in (0, 10, 200, len(whole) // 2, len(whole) - 9):
            path.write_bytes(whole[:size])
            with pytest.raises(DataError, match=r"x\.pt"):
                load_torch(path)
    with pytest.raises(DataError, match="no such file"):
        load_torch(tmp_path / "none.pt")
