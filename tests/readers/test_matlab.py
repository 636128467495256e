"""MATLAB files: forms that programs write, and files that say other than they hold."""

# ruff: noqa: E501 -- one line a mistake reads as a table

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from configs.errors import DataError
from tasks.readers import limits
from tasks.readers.arrays.matlab import read_matrices
from tests.matlab_files import (
    DOUBLE,
    FULL,
    INT8,
    INT32,
    MATRIX,
    SPARSE,
    element,
    mat_file,
    numbers,
    packed,
    sparse,
    variable,
)

LOGICAL = 0x200
ROWS, STARTS, VALUES = [0, 2, 1], [0, 1, 1, 3], [1.0, 2.0, 3.0]
EXPECTED = [[1, 0, 0], [0, 0, 3], [0, 0, 2]]
BILLIONS = 2**31 - 1


def read(folder: Path, content: bytes, name: str = "a") -> list[list[float]]:
    path = folder / "g.mat"
    path.write_bytes(content)
    found: list[list[float]] = read_matrices(path, [name])[name].toarray().tolist()
    return found


def whole() -> bytes:
    return sparse("a", (3, 3), ROWS, STARTS, VALUES)


def short(text: bytes) -> bytes:
    """An element of up to four bytes, in its own tag."""
    return struct.pack("<HH4s", INT8, len(text), text)


FORMS = {
    "as MATLAB writes it": mat_file(whole()),
    "compressed": mat_file(packed(whole())),
    "after another variable": mat_file(variable("b", 3, (1, 1), b"whatever"), whole()),
    "after one of a newer kind, without a shape": mat_file(element(MATRIX, numbers(6, [17, 0]) + short(b"x")), whole()),
    "with a short name in its tag": mat_file(element(MATRIX, whole()[8:40] + short(b"a") + whole()[56:])),
    "with room for more numbers": mat_file(sparse("a", (3, 3), [*ROWS, 77], STARTS, [*VALUES, 0])),
    "dense": mat_file(variable("a", FULL, (3, 3), numbers(DOUBLE, np.array(EXPECTED).T.ravel().tolist()))),
    "dense, as bytes": mat_file(variable("a", FULL, (3, 3), numbers(INT8, np.array(EXPECTED).T.ravel().tolist()))),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_one_matrix(tmp_path: Path, form: str) -> None:
    assert read(tmp_path, FORMS[form]) == EXPECTED


def test_truth_values_have_a_byte_each_whatever_their_kind_says(tmp_path: Path) -> None:
    parts = [numbers(INT32, ROWS), numbers(INT32, STARTS), element(DOUBLE, bytes([1, 1, 1]))]
    found = read(tmp_path, mat_file(variable("a", SPARSE, (3, 3), *parts, flags=LOGICAL)))
    assert found == (np.array(EXPECTED) > 0).tolist()


def spoilt(at: int, value: int) -> bytes:
    """The matrix with another number at a place of its element."""
    out = bytearray(whole())
    struct.pack_into("<I", out, at, value)
    return mat_file(bytes(out))


MISTAKES: list[tuple[str, bytes, str]] = [
    ("a row beyond the last", mat_file(sparse("a", (3, 3), [0, 3, 1], STARTS, VALUES)), r"\[a\].* is damaged: indices must be < 3; fetch"),
    ("a row before the first", mat_file(sparse("a", (3, 3), [0, -1, 1], STARTS, VALUES)), r"\[a\].* is damaged: indices must be >= 0"),
    ("starts that descend", mat_file(sparse("a", (3, 3), ROWS, [0, 3, 1, 3], VALUES)), r"\[a\].* do not ascend from 0"),
    ("starts that come back to 0", mat_file(sparse("a", (3, 3), ROWS, [0, 9, 9, 0], VALUES)), r"\[a\].* do not ascend from 0"),
    ("starts whose differences overflow", mat_file(sparse("a", (3, 3), ROWS, [0, BILLIONS, -BILLIONS, 3], VALUES)), "do not ascend"),
    ("starts that begin later", mat_file(sparse("a", (3, 3), ROWS, [1, 1, 1, 3], VALUES)), "do not ascend from 0"),
    ("too few starts", mat_file(sparse("a", (3, 4), ROWS, STARTS, VALUES)), "starts of its 4 columns"),
    ("2^31 columns", mat_file(sparse("a", (3, BILLIONS), ROWS, STARTS, VALUES)), "starts of its 2,147,483,647 columns"),
    ("-1 columns", mat_file(sparse("a", (3, -1), ROWS, STARTS, VALUES)), r"has the shape \(3, -1\)"),
    ("fewer rows than announced", mat_file(sparse("a", (3, 3), ROWS[:2], STARTS, VALUES)), "3 numbers are announced, there are 2"),
    ("fewer numbers than announced", mat_file(sparse("a", (3, 3), ROWS, STARTS, VALUES[:1])), "3 numbers are announced, there are 1"),
    ("rows of a byte", mat_file(variable("a", SPARSE, (3, 3), numbers(INT8, ROWS), numbers(INT32, STARTS))), "indices of int8 instead of int32"),
    ("no numbers", mat_file(variable("a", SPARSE, (3, 3), numbers(INT32, ROWS))), r"\[a\].* a variable ends too early"),
    ("dense, 2^31 columns of nothing", mat_file(variable("a", FULL, (0, BILLIONS), numbers(DOUBLE, []))), r"has the shape \(0, 2147483647\)"),
    ("dense, more than there is", mat_file(variable("a", FULL, (BILLIONS, BILLIONS), numbers(DOUBLE, VALUES))), "other than 3 numbers"),
    ("three dimensions", mat_file(variable("a", FULL, (1, 3, 1), numbers(DOUBLE, VALUES))), r"has the shape \(1, 3, 1\)"),
    ("a thousand dimensions", mat_file(variable("a", FULL, [1] * 900, numbers(DOUBLE, [1]))), r"has the shape \(1, 1, .*network and groups"),
    ("a part of numbers", mat_file(variable("a", FULL, (3, 1), element(DOUBLE, bytes(23)))), "23 bytes of numbers that have 8 each"),
    ("numbers of an unknown kind", mat_file(variable("a", FULL, (3, 1), element(200, bytes(24)))), r"\[a\].* numbers of kind 200"),
    ("numbers of an unknown kind, within a tag", mat_file(variable("a", FULL, (3, 1), struct.pack("<HH4x", 19, 3))), "numbers of kind 19"),
    ("five bytes within a tag", mat_file(variable("a", FULL, (5, 1), struct.pack("<HH4x", INT8, 5))), "5 bytes within a tag"),
    ("4 GB of numbers", mat_file(variable("a", FULL, (3, 1), element(DOUBLE, bytes(24), size=2**32 - 8))), "announces 4,294,967,288 bytes, 24 are there"),
    ("flags of another kind", spoilt(8, 1), r"g.mat: is damaged: a shape or indices of int8"),
    ("an element of the file of another kind", spoilt(0, 1), "element of kind 1 at byte 128"),
    ("4 GB of a variable", spoilt(4, 2**32 - 8), "it is cut off: 4,294,967,424 bytes are announced"),
    ("a compressed element of another kind", mat_file(packed(element(INT8, b"12345678"))), "a compressed element of kind 1"),
    ("compressed twice", mat_file(packed(packed(whole()))), "a compressed element of kind 15"),
    ("compressed, shorter than announced", mat_file(packed(whole()[:-8])), r"\[a\].* bytes are announced, there are \d+; fetch"),
    ("compressed, longer than announced", mat_file(packed(whole() + bytes(8))), r"\[a\].* bytes are announced, there are more; fetch"),
    ("compressed, a wrong checksum", mat_file(packed(whole())[:-1] + b"\0"), "is damaged: Error -3 .* incorrect data check"),
    ("no variable", mat_file(), "has no variable 'a'; it has none; the options network and groups"),
    ("variables with and without a name", mat_file(variable("", FULL, (1, 1)), variable("A", FULL, (1, 1))), "it has A; the options"),
    ("another name", mat_file(variable("A", FULL, (1, 1))), r"has no variable 'a'; it has A; the options"),
    ("a cell array", mat_file(variable("a", 1, (1, 1), whole() * 3)), r"\[a\].* is a cell array and no matrix of numbers; name another variable by"),
    ("an object of a newer kind", mat_file(element(MATRIX, numbers(6, [17, 0]) + short(b"a"))), r"\[a\].* is an object and no matrix"),
    ("of MATLAB 7.3", b"MATLAB 7.0".ljust(124) + b"\0\2IM" + bytes(400), r"is of MATLAB 7.3 \(HDF5\); save it with -v7"),
    ("of a machine with the other order of bytes", b"MATLAB 5.0".ljust(124) + b"\1\0MI", "is no MATLAB file"),
    ("of MATLAB 4", struct.pack("<5i", 0, 3, 1, 0, 2) + b"a\0" + bytes(24), "is no MATLAB file of version 5 to 7 of a usual machine; save it with -v7"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "message"), [case[1:] for case in MISTAKES], ids=[case[0] for case in MISTAKES])
def test_mistakes(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message) as refused:
        read(tmp_path, content)
    assert str(refused.value).startswith(f"{tmp_path / 'g.mat'}")


def test_every_number_of_a_file_may_be_wrong(tmp_path: Path) -> None:
    """Each is read or refused; none takes the process along, as a kind that is none did to scipy's reader."""
    path, fine = tmp_path / "g.mat", 0
    for at in range(0, len(whole()), 4):
        for value in (0, 14, 15, 19, 200, 2**31 - 1, 2**31, 2**32 - 1):
            path.write_bytes(spoilt(at, value))
            try:
                read_matrices(path, ["a"])
            except DataError as error:
                fine += str(error).startswith(str(path))
            else:
                fine += 1
    assert fine == len(whole()) * 2


def test_rows_that_only_a_shape_knows_take_no_memory(tmp_path: Path) -> None:
    (tmp_path / "g.mat").write_bytes(mat_file(sparse("a", (BILLIONS, 3), ROWS, STARTS, VALUES)))
    tracemalloc.start()
    try:
        found = read_matrices(tmp_path / "g.mat", ["a"])["a"]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.shape == (BILLIONS, 3)
    assert peak < 2 << 20


@pytest.mark.parametrize("size", [100, None])
def test_what_unpacks_to_more_than_it_says_is_not_unpacked(tmp_path: Path, size: int | None) -> None:
    """Zeros after the variable, or within it: 64 MB of a file of 64 kB."""
    (tmp_path / "g.mat").write_bytes(
        mat_file(packed(variable("a", FULL, (8, 1 << 20), element(DOUBLE, bytes(64 << 20)), size=size)))
    )
    limit = pytest.MonkeyPatch()
    limit.setattr(limits, "available_bytes", lambda: 16 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"are announced, there are more" if size else r"takes 0.1 GB of memory"):
            read_matrices(tmp_path / "g.mat", ["a"])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        limit.undo()
    assert peak < 4 << 20


def test_entries_of_a_dense_matrix_are_counted_before_they_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte each in the file."""
    (tmp_path / "g.mat").write_bytes(mat_file(variable("a", FULL, (2000, 2000), element(INT8, b"\1" * 4_000_000))))
    monkeypatch.setattr(limits, "available_bytes", lambda: 32 << 20)
    with pytest.raises(DataError, match=r"\[a\].* takes 0.1 GB of memory"):
        read_matrices(tmp_path / "g.mat", ["a"])
