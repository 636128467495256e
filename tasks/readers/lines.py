"""Lines of users' text files, whole and in their order: what counts lines itself, where Arrow would skip blank ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from configs.errors import DataError
from tasks.readers.limits import BLOCK_BYTES, MAX_CELL_BYTES, MAX_ROW_BYTES
from tasks.readers.streams import BOM, STREAM_ERRORS, open_stream, stream_error

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
