"""Users' text files as streams of bytes: decompressed, known by their first bytes, the first line within bounds.

Or as lines, whole and in their order, for what counts lines itself, where Arrow would skip blank ones.
"""

from __future__ import annotations

import csv
import io
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
from isal import igzip, isal_zlib

from configs.errors import DataError
from configs.source_files import open_file
from tasks.readers.limits import BLOCK_BYTES, MAX_CELL_BYTES, MAX_COLUMNS, MAX_ROW_BYTES, MAX_WORDS_BYTES

# What a damaged compressed file raises; BadGzipFile is an OSError.
_ISAL_ERROR: type[Exception] = cast(Any, isal_zlib.error)
STREAM_ERRORS = (EOFError, OSError, zlib.error, _ISAL_ERROR)
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
BOM = b"\xef\xbb\xbf"
NO_DELIMITER = "\x1f"
"""Between the cells of whole lines: it stands in no text."""
# First bytes of what is no table in text, whatever the file is called.
_REFUSED_FORMATS: tuple[tuple[bytes, str], ...] = (
    (rb"BZh[1-9](1AY&SY|\x17rE)", "is compressed by bzip2; gzip and Zstandard are read: bunzip2 it"),
    (rb"\xfd7zXZ\0", "is compressed by xz; gzip and Zstandard are read: unxz it"),
    (rb"\x04\x22\x4d\x18", "is compressed by lz4; gzip and Zstandard are read: unlz4 it"),
    (rb"\x1f\x9d", "is compressed by compress; gzip and Zstandard are read: uncompress it"),
    (rb"PK\x03\x04", "is a zip archive (or a workbook of a spreadsheet), not a table; unzip it, or save it as CSV"),
    (rb"7z\xbc\xaf\x27\x1c", "is a 7-Zip archive, not a table; unpack it"),
    (rb"PAR1\x15", "is Parquet, not text; call it .parquet or give format: parquet"),
    (rb"ARROW1\0", "is an Arrow (Feather) file; write it as Parquet or CSV"),
    (rb"\x93NUMPY", "is a NumPy array, not a table"),
    (rb"\x89HDF", "is an HDF5 file; write it as Parquet or CSV"),
    (rb"SQLite format 3\0", "is an SQLite database; write its table as Parquet or CSV"),
    (rb"%PDF-", "is a PDF document, not a table"),
    (rb"(\xff\xfe|\xfe\xff)", "is UTF-16 text; write it as UTF-8: iconv -f utf-16 -t utf-8"),
)
_MAGIC_BYTES = 512  # a tar archive says so at its byte 257
_TAR = slice(257, 262)


def open_stream(path: Path) -> IO[bytes]:
    """Open a file of text for reading, decompressed if it begins like gzip or Zstandard; buffered.

    Raises DataError: no regular file that can be read (see `configs.source_files`), or the content is of another kind
    that its first bytes tell.
    """
    with open_file(path) as file:
        magic = file.read(_MAGIC_BYTES)
    compressed = True
    if magic[:2] == _GZIP:
        stream: Any = igzip.open(path, "rb")  # type: ignore[no-untyped-call]
    elif magic[:4] == _ZSTD:
        # Arrow notices a cut-off stream, which the zstandard package takes for its end.
        stream = io.BufferedReader(pa.input_stream(str(path), compression="zstd"))
    else:
        stream, compressed = io.BufferedReader(cast(io.RawIOBase, open_file(path))), False
    try:
        _check_magic(stream.peek(_MAGIC_BYTES) if compressed else magic, compressed, path)
    except BaseException:
        stream.close()
        raise
    return cast(IO[bytes], stream)


def _check_magic(magic: bytes, compressed: bool, path: Path) -> None:
    inside = "what is compressed here " if compressed else ""
    if compressed and (magic[:2] == _GZIP or magic[:4] == _ZSTD):
        raise DataError("is compressed twice; decompress it once", path=path)
    for start, words in _REFUSED_FORMATS:
        if re.match(start, magic):
            raise DataError(inside + words, path=path)
    if magic[_TAR] == b"ustar":
        raise DataError(f"{inside}is a tar archive, not a table; unpack it", path=path)


def stream_error(error: Exception, path: Path) -> DataError:
    """Say what is wrong with a compressed file."""
    if isinstance(error, EOFError):
        return DataError("is cut off: the compressed data ends too early; fetch or write the file again", path=path)
    if "too much memory for decoding" in str(error):
        return DataError("is compressed with a window of more than 128 MB; compress it without --long", path=path)
    return DataError(f"is damaged ({error}); fetch or write the file again", path=path)


def decode(data: bytes, path: Path, *, row: int | None = None, column: object = None) -> str:
    """Return bytes as text. Raises DataError naming the first byte that is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise no_utf8(data, error.start, path, row, column) from None


def no_utf8(data: bytes, at: int, path: Path, row: int | None, column: object) -> DataError:
    """Return the error of a byte that is not UTF-8: what it would be in Latin-1, and a way out."""
    byte, around = data[at], data[max(0, at - 20) : at + 20].decode("latin-1")
    return DataError(
        f"byte 0x{byte:02X} in {around!r} is not UTF-8; if the file is Latin-1: iconv -f latin1 -t utf-8",
        path=path,
        row=row,
        column=column,
    )


def read_header(stream: IO[bytes], path: Path, delimiter: str, *, quotes: bool = True) -> tuple[list[str], bytes]:
    """Read the first row that is not blank; return its cells and its bytes. Leaves the stream after it.

    `quotes`: whether a cell may stand between some.

    Raises DataError: there is none, it is longer than `MAX_ROW_BYTES` or has more than `MAX_COLUMNS`, its quotes do not
    fit, it is no UTF-8, or it ends as lines did on old Macs.
    """
    line, read = b"", 0
    while not line.strip():
        line = stream.readline(MAX_ROW_BYTES - read + 1)
        read += len(line)
        if read > MAX_ROW_BYTES:
            raise DataError(f"has a first line of more than {MAX_ROW_BYTES:,} bytes; is this a table?", path=path)
        if not line:
            raise DataError("is empty", path=path)
        line = line.removeprefix(BOM)
    text = decode(line, path).rstrip("\r\n")
    if "\r" in text and not (quotes and '"' in text):
        why = "its lines end in a carriage return alone, as on old Macs; write them anew: tr '\\r' '\\n'"
        raise DataError(why, path=path)
    if "\0" in text:
        raise DataError("has NUL bytes in its first line: it is not text, or UTF-16 without a mark", path=path)
    if not quotes:
        return text.split(delimiter), line
    return _cells_with_line_ends(line, stream, path, delimiter) or (split_cells(text, path, delimiter), line)


def _cells_with_line_ends(line: bytes, stream: IO[bytes], path: Path, delimiter: str) -> tuple[list[str], bytes] | None:
    """Return the cells of a row that goes on after its first line, between quotes, and its bytes; None: it does not."""
    row = bytearray(line)

    def lines() -> Iterator[str]:
        yield decode(line, path)
        while len(row) <= MAX_ROW_BYTES and (more := stream.readline(MAX_ROW_BYTES - len(row) + 1)):
            row.extend(more)
            yield decode(more, path)

    try:
        cells = next(csv.reader(lines(), delimiter=delimiter, strict=True)) if b'"' in line else []
    except csv.Error:
        return None
    if len(cells) > MAX_COLUMNS:
        raise DataError(f"has more than {MAX_COLUMNS:,} columns", path=path)
    return (cells, bytes(row)) if len(row) > len(line) else None


def split_cells(text: str, path: Path, delimiter: str) -> list[str]:
    """Return the cells of a line. Raises DataError: too many, or its quotes do not fit."""
    if delimiter == NO_DELIMITER and delimiter not in text and '"' not in text:
        return [text]
    if text.count(delimiter) >= MAX_COLUMNS:
        raise DataError(f"has more than {MAX_COLUMNS:,} columns", path=path)
    try:
        return next(csv.reader([text], delimiter=delimiter, strict=True))
    except csv.Error as error:
        limit = csv.field_size_limit()
        why = 'has a quote (") that is never closed, or text behind a closed one'
        if "field limit" in str(error):
            why = f"has a column name of more than {limit:,} characters"
        words = f"the first line {why}; is this a table with {delimiter!r} between columns?"
        raise DataError(words, path=path) from None


def read_words(path: Path) -> list[list[str]]:
    """Return the rows of a small CSV file of words, blank ones left out. Raises DataError."""
    try:
        with open_stream(path) as stream:
            data = stream.read(MAX_WORDS_BYTES + 1)
    except STREAM_ERRORS as error:
        raise stream_error(error, path) from error
    if len(data) > MAX_WORDS_BYTES:
        raise DataError(f"has more than {MAX_WORDS_BYTES:,} bytes; a short list of words is needed", path=path)
    try:
        rows = [row for row in csv.reader(io.StringIO(decode(data.removeprefix(BOM), path))) if row]
    except csv.Error as error:
        raise DataError(f"is no CSV ({error})", path=path) from None
    if not rows:
        raise DataError("is empty", path=path)
    return rows


_LF = 10


def read_lines(path: Path) -> Iterator[tuple[int, pa.Array]]:
    """Yield the number of a block's first line, from 0, and its lines as texts, line ends and all.

    Raises DataError: see `tasks.readers.streams`; a line that is too long or no UTF-8.
    """
    try:
        with open_stream(path) as stream:
            rest, first, start = b"", 0, True
            while block := stream.read(BLOCK_BYTES):
                if start:
                    block, start = block.removeprefix(BOM), False
                whole, lf, after = block.rpartition(b"\n")
                if not lf:
                    rest += block
                else:
                    lines = _as_texts(rest + whole + lf, path, first)
                    yield first, lines
                    first, rest = first + len(lines), after
                if len(rest) > MAX_ROW_BYTES:
                    raise DataError(f"line {first + 1} has more than {MAX_ROW_BYTES:,} bytes", path=path)
            if rest:
                yield first, _as_texts(rest, path, first)
    except STREAM_ERRORS as error:
        raise stream_error(error, path) from error


def _as_texts(data: bytes, path: Path, first: int) -> pa.Array:
    """Return whole lines as an array over the very bytes. Raises DataError where they are no UTF-8."""
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == _LF) + 1
    bounds = np.concatenate([[0], ends, [] if len(ends) and ends[-1] == len(data) else [len(data)]]).astype(np.int32)
    texts = pa.Array.from_buffers(pa.string(), len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        try:
            data.decode()
        except UnicodeDecodeError as error:
            line = first + 1 + data.count(b"\n", 0, error.start)
            around = data[max(0, error.start - 20) : error.start + 20].decode("latin-1")
            raise DataError(
                f"line {line}: byte 0x{data[error.start]:02X} in {around!r} is not UTF-8; if the file is Latin-1: "
                "iconv -f latin1 -t utf-8",
                path=path,
            ) from None
        raise
    return texts


def read_names(path: Path) -> pa.Array:
    """Return the names in a file with one a line: texts. Raises DataError: none, a blank line, a name twice."""
    parts = []
    for first, lines in read_lines(path):
        names = compute.utf8_rtrim(lines, "\r\n")
        blank = compute.index(compute.equal(compute.utf8_trim_whitespace(names), ""), True).as_py()
        if blank >= 0:
            raise DataError(f"line {first + blank + 1} is blank; a list of names has one on each line", path=path)
        longest = compute.max(compute.binary_length(names)).as_py() or 0
        if longest > MAX_CELL_BYTES:
            raise DataError(f"has a line of {longest:,} bytes; a name has {MAX_CELL_BYTES:,} at most", path=path)
        parts.append(names)
    if not parts:
        raise DataError("is empty; a list of names has one on each line", path=path)
    names = pa.concat_arrays(parts)
    codes = np.asarray(compute.dictionary_encode(names).indices)
    if len(codes) and codes.max() + 1 < len(codes):
        row = int(np.flatnonzero(codes != np.maximum.accumulate(np.append(-1, codes[:-1])) + 1)[0])
        raise DataError(f"line {row + 1}: {names[row].as_py()[:80]!r} stands in the list twice", path=path)
    return names
