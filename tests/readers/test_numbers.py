"""Numbers from text: exact, in bounded memory, with the place of every mistake."""

from __future__ import annotations

import gzip
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from configs.errors import DataError
from tasks.readers.numbers import reader as csv_reader
from tasks.readers.numbers.number_parsing import parse_floats
from tasks.readers.numbers.reader import NumberReader, read_numbers


def parse(cells: list[str]) -> np.ndarray:
    """Parse a column by the kernel alone, slow cells by Python."""
    data = np.frombuffer(("\n".join(cells) + "\n\0").encode(), np.uint8)
    out = np.empty((len(cells), 1), np.float64)
    slow = np.empty((len(cells), 3), np.int64)
    rows, _, _, code, num_slow = parse_floats(data, 0, len(data) - 1, out, 44, 0, False, slow)
    assert (rows, code) == (len(cells), 0)
    for row, column, at in slow[:num_slow]:
        out[row, column] = float(data[at:].tobytes().split(b"\n", 1)[0])
    return out[:, 0]


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


def test_floats_are_rounded_as_python_rounds() -> None:
    cells = random_floats(40_000, 0)
    np.testing.assert_array_equal(parse(cells), np.array([float(cell) for cell in cells]))


@pytest.mark.parametrize(
    "cell",
    ["0", "-0.0", "5e-324", "2.2250738585072011e-308", "1.7976931348623157e308", "9007199254740993", "1e23",
     "8.5e22", "0." + "0" * 400 + "1e400", "1" + "0" * 300, "123456789012345678901234567890e-20", "1e-400",
     "0e999999999"],
)  # fmt: skip
def test_floats_at_the_edges(cell: str) -> None:
    value = parse([cell])[0]
    assert value == float(cell)
    assert np.signbit(value) == np.signbit(float(cell))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_any_float_comes_back(values: list[float]) -> None:
    np.testing.assert_array_equal(parse([repr(v) for v in values]), np.array(values))


@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
def test_blocks_of_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str) -> None:
    """Lines that straddle blocks, a last line without newline, Windows line ends, blank lines."""
    rng = np.random.default_rng(0)
    rows = rng.integers(-(10**12), 10**12, (500, 3))
    text = "".join(
        f"{a},{b},{c}" + ("\r\n" if i % 3 else "\n") + ("\n" if i % 50 == 0 else "") for i, (a, b, c) in enumerate(rows)
    )
    data = text.rstrip("\r\n").encode()
    path = tmp_path / f"x.{ending}"
    path.write_bytes(gzip.compress(data) if ending.endswith("gz") else data)
    for block in (64, 100, 1000, 1 << 20):
        monkeypatch.setattr(csv_reader, "_BLOCK_BYTES", block)
        np.testing.assert_array_equal(read_numbers(path, np.int64), rows)
        np.testing.assert_array_equal(read_numbers(path, np.float64), rows)


def test_edge_lists_with_blanks_and_comments(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("# a comment\n  1 \t 2\n\n3   4  \n# 9 9\n5 6\n")
    assert read_numbers(path, np.int32, delimiter="", comment="#").tolist() == [[1, 2], [3, 4], [5, 6]]


def test_missing_values_where_they_are_allowed(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("1,,nan\n,2,NaN\n")
    out = read_numbers(path, np.float32, missing=True)
    np.testing.assert_array_equal(out, [[1, np.nan, np.nan], [np.nan, 2, np.nan]])
    path.write_text("1\n\n3\n")
    np.testing.assert_array_equal(read_numbers(path, np.float64, num_columns=1, missing=True)[:, 0], [1, np.nan, 3])


MISTAKES: list[tuple[str, Any, dict[str, Any], str]] = [
    ("1,2\n3,x\n", np.int32, {}, r"row 1, column 1\): 'x' is not an integer"),
    ("1,2\n3,4.0\n", np.int32, {}, r"row 1, column 1\): '4\.0' is not an integer"),
    ("1,2\n3\n", np.int32, {}, r"row 1, column 0\): the row has 1 columns, the others have 2"),
    ("1,2\n3,4,5\n", np.int32, {}, r"row 1, column 1\): the row has more than 2 columns"),
    ("1,2\n,4\n", np.int32, {}, r"row 1, column 0\): the cell is empty"),
    ("1,2\n3,\0004\n", np.int64, {}, r"row 1, column 1\): the row has a NUL byte, which no text has; .* tr -d"),
    ("1,2\n2147483648,4\n", np.int32, {}, r"row 1, column 0\): '2147483648' does not fit int32"),
    ("1\n99999999999999999999999\n", np.int64, {}, r"row 1, column 0\): .* does not fit int64"),
    ("1,2\n--3,4\n", np.int32, {}, r"'--3' is not an integer"),
    ("1,2\n3 ,4\n", np.int32, {}, r"row 1, column 0\)"),
    ("0.5,2\n3,1e400\n", np.float64, {}, r"row 1, column 1\): '1e400' does not fit float64"),
    ("0.5,2\n3,1e39\n", np.float32, {}, r"row 1, column 1\): '1e39' does not fit float32"),
    ("0.5,2\n3,-Infinity\n", np.float64, {}, r"row 1, column 1\): '-Infinity' is not a finite number"),
    ("0.5,2\n3,inf\n", np.float64, {"missing": True}, r"'inf' is not a finite number"),
    ("0.5,2\n3,nan\n", np.float64, {}, r"'nan' is not a finite number"),
    ("0.5,2\n3,1e\n", np.float64, {}, r"'1e' is not a number"),
    ("0.5,2\n3,.\n", np.float64, {}, r"'\.' is not a number"),
    ("0.5,2\n3,1.2.3\n", np.float64, {}, r"'1\.2\.3' is not a number"),
    ("\v\n1 2\n", np.int64, {"delimiter": ""}, r"row 0, column 0\): '\\x0b' is not an integer"),
    ("1 2\n3 4 5\n", np.int32, {"delimiter": ""}, r"more than 2 columns"),
    ("1 2\n3\n", np.int32, {"delimiter": ""}, r"has 1 columns"),
    ("1,2\n3,4\n", np.int32, {"num_columns": 3}, r"row 0, column 1\): the row has 2 columns, the others have 3"),
]


@pytest.mark.parametrize(("text", "dtype", "options", "message"), MISTAKES, ids=[x[3][:40] for x in MISTAKES])
def test_mistakes_are_named(tmp_path: Path, text: str, dtype: Any, options: dict[str, Any], message: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=r"x\.csv \(.*" + message.lstrip("r") if "row" in message else message):
        read_numbers(path, dtype, **options)


def test_rows_are_counted_over_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_reader, "_BLOCK_BYTES", 256)
    path = tmp_path / "x.csv.gz"
    path.write_bytes(gzip.compress(b"12,34\n" * 999 + b"12,oops\n" + b"1,2\n" * 500))
    with pytest.raises(DataError, match=r"row 999, column 1\): 'oops'"):
        read_numbers(path, np.int32)


def test_many_cells_that_need_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_reader, "_MAX_SLOW", 4)
    path = tmp_path / "x.csv"
    values = [5e-324 * (i + 1) for i in range(60)]
    path.write_text("".join(f"{a!r},1.5,{b!r}\n" for a, b in zip(values[::2], values[1::2], strict=True)))
    out = read_numbers(path, np.float64)
    np.testing.assert_array_equal(out[:, [0, 2]].ravel(), values)


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


def test_a_reader_that_is_left_early_ends_its_thread(tmp_path: Path) -> None:
    import threading

    path = tmp_path / "x.csv"
    path.write_text("1,2\n" * 3_000_000)
    before = threading.active_count()
    chunks = iter(NumberReader(path, np.int32))
    assert len(next(chunks)) > 0
    chunks.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


def test_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("")
    assert read_numbers(path, np.int32, num_columns=2).shape == (0, 2)
    with pytest.raises(DataError, match=r"none\.csv: there is no such file"):
        read_numbers(tmp_path / "none.csv", np.int32)
