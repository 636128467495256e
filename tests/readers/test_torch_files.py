"""Files of torch.save, in all formats that OGB has used."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from configs.errors import DataError
from tasks.readers.arrays.torch_files import load_torch


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


def zipped(path: Path, pickled: bytes, compression: int = 0, **members: bytes) -> None:
    import zipfile

    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("x/data.pkl", pickled)
        for name, content in members.items():
            archive.writestr(f"x/data/{name}", content)


def storage(key: str, count: int) -> bytes:
    """A pickled tensor int64 whose storage has `count` values; then size and stride follow."""
    text = f"X{chr(len(key))}\0\0\0{key}".encode()
    pid = b"(X\x07\0\0\0storagectorch\nLongStorage\n" + text + b"X\x03\0\0\0cpu" + f"I{count}\n".encode() + b"tQ"
    return b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + pid + b"K\x00"


DTYPE = b"cnumpy\ndtype\nX%c\0\0\0%s\x85R"
BOMBS: list[tuple[str, bytes, str]] = [
    ("remembered objects", b"\x80\x02Nr\xff\xff\xff\x3f.", "an impossible count of objects"),
    ("bytes", b"\x80\x04\x8e" + (1 << 40).to_bytes(8, "little") + b"x.", "expected 1099511627776 bytes"),
    ("a wide type", b"\x80\x02" + DTYPE % (11, b"V2147483647") + b".", "the type 'V2147483647' is not allowed"),
    ("objects", b"\x80\x02" + DTYPE % (2, b"O8") + b".", "the type 'O8' is not allowed"),
    ("a codec", b"\x80\x02c_codecs\nencode\nX\x01\0\0\0aX\x0a\0\0\0zlib_codec\x86R.", "'zlib_codec' is not allowed"),
    ("an array of 8 TB", b"\x80\x02cnumpy\nndarray\nJ\xff\xff\xff\x7f\x85\x85R.", "is damaged"),
    ("a tensor larger than its storage", storage("0", 4) + b"(J\0\0\0\x40t(K\x00ttR.", "more values than its storage"),
    ("a storage larger than its file", storage("0", 10**12) + b"(K\x01t(K\x01ttR.", "is damaged"),
]  # fmt: skip


@pytest.mark.parametrize(("pickled", "words"), [x[1:] for x in BOMBS], ids=[x[0] for x in BOMBS])
def test_what_a_few_bytes_may_ask_for(tmp_path: Path, pickled: bytes, words: str) -> None:
    path = tmp_path / "x.pt"
    zipped(path, pickled, **{"0": np.arange(4).tobytes()})
    with pytest.raises(DataError, match=rf"x\.pt: .*{words}"):
        load_torch(path)
    path.write_bytes(pickled)
    with pytest.raises(DataError, match=r"x\.pt: "):
        load_torch(path)


def test_compressed_members_are_refused(tmp_path: Path) -> None:
    import zipfile

    zipped(tmp_path / "x.pt", b"\x80\x02N.", zipfile.ZIP_DEFLATED, **{"0": bytes(1 << 24)})
    with pytest.raises(DataError, match=r"its members are compressed, as torch\.save never writes them"):
        load_torch(tmp_path / "x.pt")


def test_big_endian_arrays(tmp_path: Path) -> None:
    torch.save({"edge": np.arange(5, dtype=">i4")}, tmp_path / "x.pt", pickle_protocol=4)
    assert load_torch(tmp_path / "x.pt")["edge"].tolist() == [0, 1, 2, 3, 4]
