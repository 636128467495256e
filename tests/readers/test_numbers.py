"""Numbers from text: exact, in bounded memory, with the place of every mistake."""

from __future__ import annotations

import gzip
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs.errors import DataError
from tasks.readers import csv_tables
from tasks.readers.numbers import number_chunks, read_numbers


def parse(path: Path, cells: list[str]) -> np.ndarray:
    path.write_text("\n".join(cells))
    return read_numbers(path, np.float64)[:, 0]


def random_floats(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    cells = []
    for i in range(count):
        bits: float = struct.unpack("<d", rng.randbytes(8))[0]
        cells.append(
            (
                repr(rng.gauss(0, 1)),
                f"{rng.gauss(0, 10):.3f}",
                repr(bits),
                f"{rng.randrange(10 ** rng.randrange(1, 26))}.{rng.randrange(10**20)}e{rng.randrange(-330, 290)}",
                f"{rng.random():.25g}",
                f"{rng.randrange(2**53, 2**64)}",  # ties of the rounding to even
                f"+{rng.randrange(1000)}.",
                f"-.{rng.randrange(1000)}E+{rng.randrange(5)}",
            )[i % 8]
        )
    return [cell for cell in cells if np.isfinite(float(cell))]


EDGES = ["0", "-0.0", "5e-324", "2.2250738585072011e-308", "1.7976931348623157e308", "9007199254740993", "1e23",
         "8.5e22", "0." + "0" * 400 + "1e400", "1" + "0" * 300, "123456789012345678901234567890e-20", "1e-400",
         "0e999999999"]  # fmt: skip


def test_floats_are_rounded_as_python_rounds(tmp_path: Path) -> None:
    cells = [*EDGES, *random_floats(40_000, 0)]
    values, expected = parse(tmp_path / "x.csv", cells), np.array([float(cell) for cell in cells])
    np.testing.assert_array_equal(values, expected)
    np.testing.assert_array_equal(np.signbit(values), np.signbit(expected))


@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
def test_blocks_of_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str) -> None:
    """Lines that straddle blocks, a last line without newline, Windows line ends, blank lines."""
    rng = np.random.default_rng(0)
    rows = rng.integers(-(10**12), 10**12, (500, 3))
    ends = (("\r\n" if i % 3 else "\n") + ("\n" if i % 50 == 0 else "") for i in range(500))
    text = "".join(f"{a},{b},{c}{end}" for (a, b, c), end in zip(rows, ends, strict=True))
    data = text.rstrip("\r\n").encode()
    path = tmp_path / f"x.{ending}"
    path.write_bytes(gzip.compress(data) if ending.endswith("gz") else data)
    for block in (64, 100, 1000, 1 << 20):
        monkeypatch.setattr(csv_tables, "BLOCK_BYTES", block)
        for num_columns in (None, 3):
            np.testing.assert_array_equal(read_numbers(path, np.int64, num_columns=num_columns), rows)
            np.testing.assert_array_equal(read_numbers(path, np.float64, num_columns=num_columns), rows)


def test_missing_values_where_they_are_allowed(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("1,,nan\n,2,NaN\n")
    [rows] = number_chunks(path, np.float32, missing=True)
    np.testing.assert_array_equal(rows, [[1, np.nan, np.nan], [np.nan, 2, np.nan]])
    path.write_text("\n1\n\n3\n")
    [rows] = number_chunks(path, np.float64, num_columns=1, missing=True)
    np.testing.assert_array_equal(rows[:, 0], [np.nan, 1, np.nan, 3])


MISTAKES: list[tuple[str, Any, dict[str, Any], str]] = [
    ("1,2\n3,x\n", np.int32, {}, r"row 1, column 1\): 'x' is not an integer"),
    ("1,2\n3,4.0\n", np.int32, {}, r"row 1, column 1\): '4\.0' is not an integer"),
    ("1,2\n3\n", np.int32, {}, r"row 1\): the row has 1 columns, the others have 2"),
    ("1,2\n3,4,5\n", np.int32, {}, r"row 1\): the row has 3 columns, the others have 2"),
    ("1,2\n,4\n", np.int32, {}, r"row 1, column 0\): the cell is empty"),
    ("1,2\n3,\0004\n", np.int64, {}, r"row 1, column 1\): '\\x004' is not an integer"),
    ("1,2\n2147483648,4\n", np.int32, {}, r"row 1, column 0\): '2147483648' does not fit int32"),
    ("1\n99999999999999999999999\n", np.int64, {}, r"row 1, column 0\): .* does not fit int64"),
    ("1,2\n--3,4\n", np.int32, {}, r"'--3' is not an integer"),
    ("1,2\n0x1F,4\n", np.int64, {}, r"row 1, column 0\): '0x1F' is hexadecimal"),
    ("1,2\n0x1F,4\n", np.float64, {}, r"row 1, column 0\): '0x1F' is not a number"),
    ("0.5,2\n3,1e400\n", np.float64, {}, r"row 1, column 1\): inf is not a finite number"),
    ("0.5,2\n3,1e39\n", np.float32, {}, r"row 1, column 1\): 1e\+39 does not fit float32"),
    ("0.5,2\n3,-Infinity\n", np.float64, {}, r"row 1, column 1\): -inf is not a finite number"),
    ("0.5,2\n3,inf\n", np.float64, {"missing": True}, r"row 1, column 1\): inf is not a finite number"),
    ("0.5,2\n3,nan\n", np.float64, {}, r"row 1, column 1\): nan is not a finite number"),
    ("0.5,2\n3,1e\n", np.float64, {}, r"'1e' is not a number"),
    ("0.5,2\n3,1.2.3\n", np.float64, {}, r"'1\.2\.3' is not a number"),
    ("0.5,2\n3,1_0\n", np.float64, {}, r"'1_0' is not a number"),
    ("1,2\n,4\n", np.int64, {"missing": True}, r"row 1, column 0\): the cell is empty"),
    ("1,2\n3,4\n", np.int32, {"num_columns": 3}, r"row 0\): the row has 2 columns, the others have 3"),
]


@pytest.mark.parametrize(("text", "dtype", "options", "message"), MISTAKES, ids=[x[3][:40] for x in MISTAKES])
def test_mistakes_are_named(tmp_path: Path, text: str, dtype: Any, options: dict[str, Any], message: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=r"x\.csv \(.*" + message):
        list(number_chunks(path, dtype, **options))


def test_rows_are_counted_over_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_tables, "BLOCK_BYTES", 256)
    path = tmp_path / "x.csv.gz"
    for cell, dtype, words in (("oops", np.int32, "'oops'"), ("inf", np.float32, "inf")):
        path.write_bytes(gzip.compress(b"12,34\n" * 999 + f"12,{cell}\n".encode() + b"1,2\n" * 500))
        with pytest.raises(DataError, match=rf"row 999, column 1\): {words}"):
            read_numbers(path, dtype)
    path.write_bytes(gzip.compress(b"1\n" * 999))
    with pytest.raises(DataError, match="has more than 500 rows"):
        read_numbers(path, np.int32, most=500)


@pytest.mark.parametrize("size", [1, 5, 10, 100, 1000])
def test_cut_off_gzip_is_refused(tmp_path: Path, size: int) -> None:
    rng = np.random.default_rng(0)
    whole = gzip.compress("".join(f"{a},{b}\n" for a, b in rng.integers(0, 10**6, (5000, 2))).encode())
    path = tmp_path / "x.csv.gz"
    path.write_bytes(whole[:-size])
    with pytest.raises(DataError, match=r"x\.csv\.gz: is cut off"):
        read_numbers(path, np.int32)
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 0xFF
    path.write_bytes(bytes(damaged))
    with pytest.raises(DataError, match=r"x\.csv\.gz.*(is damaged|is cut off|row)"):
        read_numbers(path, np.int32)


def test_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("")
    assert read_numbers(path, np.int32, num_columns=2).shape == (0, 2)
    with pytest.raises(DataError, match=r"none\.csv: there is no such file"):
        read_numbers(tmp_path / "none.csv", np.int32)
