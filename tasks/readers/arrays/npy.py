"""NumPy arrays in users' files, `.npy` and the members of `.npz` archives, and arrays in idx, as MNIST is published.

Nothing is believed of a header unchecked: one of 60 bytes can ask for terabytes. Here a shape must agree with the bytes
that stand in the file (or, by the archive's own directory, in the member) before any memory is asked for.

idx: two zero bytes, a byte for the type, one for the number of dimensions, their sizes (big-endian, four bytes each),
the numbers (big-endian); compressed or not.
"""

from __future__ import annotations

import io
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, cast

import numpy as np

from configs.errors import DataError
from configs.matching import did_you_mean, listed
from configs.source_files import check_file, open_file
from tasks.arrays import Array, blocks
from tasks.readers.limits import MAX_ROW_BYTES, check_memory
from tasks.readers.streams import STREAM_ERRORS, open_stream, stream_error

_MAX_HEADER_BYTES = 10_000  # NumPy's own bound; one of plain numbers has 118
_MAX_DIMENSIONS = 32
_MAX_MEMBERS = 10_000
ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError)
"""What reading a damaged archive raises: RuntimeError for an encrypted one, NotImplementedError for a rare codec."""


@dataclass(frozen=True)
class NpyHeader:
    """What the header of an array says, in agreement with the size of the file."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool

    @property
    def num_bytes(self) -> int:
        """Bytes of the array's values."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_npy_header(stream: IO[bytes], size: int, path: object) -> NpyHeader:
    """Read an array's header from its first byte on, and leave the stream at its first value.

    `size`: bytes that the file or member has from the array's first byte on.

    Raises DataError: it is no array of numbers, or its shape does not agree with `size`.
    """
    start = stream.read(8)
    try:
        version = np.lib.format.read_magic(io.BytesIO(start))
        width, form = (2, "<H") if version == (1, 0) else (4, "<I")
        length = stream.read(width)
        (count,) = struct.unpack(form, length)
        if count > _MAX_HEADER_BYTES:
            raise ValueError(f"its header claims {count:,} bytes")
        header = io.BytesIO(length + stream.read(count))
        read = np.lib.format.read_array_header_1_0 if width == 2 else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(header)
    except (ValueError, TypeError, KeyError, SyntaxError, struct.error, tokenize.TokenError) as error:
        raise DataError(f"is not a .npy array ({str(error)[:200]})", path=path) from None
    except (RecursionError, MemoryError):
        raise DataError("is not a .npy array (brackets in its header are nested too deep)", path=path) from None
    if dtype.kind not in "iufb":
        raise DataError(f"holds {str(dtype)[:100]}; numbers are needed", path=path)
    if len(shape) > _MAX_DIMENSIONS or min(shape, default=0) < 0:
        raise DataError(f"its header says an impossible shape, {shape}", path=path)
    said = NpyHeader(shape, dtype, fortran)
    there = size - len(start) - len(length) - count
    if said.num_bytes != there:
        what = "is cut off or damaged" if said.num_bytes > there else "goes on behind its array"
        raise DataError(
            f"{what}: its header says the shape {shape} of {dtype}, which takes {said.num_bytes:,} bytes, and "
            f"{max(0, there):,} are there; write it again, one array to a file",
            path=path,
        )
    return said


class NpyFile:
    """An array in a `.npy` file or in a member of an `.npz` archive."""

    def __init__(self, path: Path, member: str | None = None) -> None:
        self.path = path
        self.member = member
        self.name: object = f"{path}[{member}]" if member else path

    def header(self) -> NpyHeader:
        """Return shape and dtype. Raises DataError."""
        with self.open() as (_, header):
            return header

    @contextmanager
    def open(self) -> Iterator[tuple[IO[bytes], NpyHeader]]:
        """Open a stream at the array's first value; give it with the header. Raises DataError, also for damage."""
        if self.member is None:
            size = check_file(self.path).st_size
            with io.BufferedReader(cast(io.RawIOBase, open_file(self.path))) as stream:
                yield stream, read_npy_header(stream, size, self.name)
            return
        try:
            with open_archive(self.path) as archive:
                names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
                if self.member not in names:
                    hint = f"{did_you_mean(self.member, names)}; it has {listed(names)}"
                    raise DataError(f"has no array {self.member!r}{hint}", path=self.path)
                info = archive.getinfo(f"{self.member}.npy")
                with archive.open(info) as inside:
                    yield inside, read_npy_header(inside, info.file_size, self.name)
        except ZIP_ERRORS as error:
            raise DataError(f"is damaged ({error}); fetch or write the file again", path=self.name) from error

    def read(self) -> Array:
        """Return the whole array. Raises DataError, also where it does not fit into memory."""
        with self.open() as (stream, header):
            check_memory(header.num_bytes, "the array", self.name)
            values = read_values(stream, math.prod(header.shape), header.dtype, self.name)
        return values.reshape(header.shape, order="F" if header.fortran else "C")

    def mapped(self) -> Array:
        """Return a `.npy` file's array, mapped from disk. Raises DataError."""
        assert self.member is None
        header = self.header()
        # A mapping of no bytes is an error to the system.
        mode: Literal["r"] | None = "r" if header.num_bytes else None
        array: Array = np.load(self.path, mmap_mode=mode, allow_pickle=False)
        return array


@contextmanager
def open_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a zip archive, given as a file. Raises DataError where it is none or holds absurdly many members."""
    with io.BufferedReader(cast(io.RawIOBase, open_file(path))) as file:
        try:
            archive = zipfile.ZipFile(file)
        except (*ZIP_ERRORS, ValueError) as error:
            why = f"is damaged, or no NumPy archive ({error}); fetch it again, or write it with numpy.savez"
            raise DataError(why, path=path) from error
        if len(archive.namelist()) > _MAX_MEMBERS:
            raise DataError(f"has more than {_MAX_MEMBERS:,} arrays", path=path)
        yield archive


def member_names(path: Path) -> list[str]:
    """Return the names of the arrays in an `.npz` archive. Raises DataError."""
    with open_archive(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]


def check_row(header: NpyHeader, path: object) -> None:
    """Raise DataError where a row of a matrix is longer than any row of a table may be, or has no columns."""
    width = math.prod(header.shape[1:])
    if width == 0:
        raise DataError(f"has no columns (its shape is {header.shape}); leave it out where there is nothing", path=path)
    if width * header.dtype.itemsize > MAX_ROW_BYTES:
        raise DataError(f"has {width:,} columns; a row may have {MAX_ROW_BYTES:,} bytes", path=path)


def read_values(stream: IO[bytes], count: int, dtype: np.dtype[Any], path: object) -> Array:
    """Return the next `count` values of a stream. Raises DataError where it ends before."""
    data = bytearray(count * dtype.itemsize)
    view, at = memoryview(data), 0
    while at < len(data):
        size = stream.readinto(view[at : at + (1 << 26)])  # type: ignore[attr-defined]
        if not size:
            raise DataError("is cut off: the data ends too early; fetch or write the file again", path=path)
        at += size
    return np.frombuffer(data, dtype)


_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_CHUNK_BYTES = 4 << 20


class IdxFile:
    """An array in an idx file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def shape(self) -> tuple[int, ...]:
        """Return the shape. Raises DataError where it is no idx file."""
        with self._open() as (_, shape, _):
            return shape

    def chunks(self) -> Iterator[Array]:
        """Yield rows, what a row has side by side: (rows, columns), of the file's type. Raises DataError."""
        with self._open() as (stream, shape, dtype):
            width = math.prod(shape[1:])
            for rows in blocks(shape[0], max(_CHUNK_BYTES // max(width * dtype.itemsize, 1), 1)):
                count = rows.stop - rows.start
                values = read_values(stream, count * width, dtype, self.path)
                yield values.reshape(count, width).astype(dtype.newbyteorder("="))
            if stream.read(1):
                raise DataError(f"has more bytes than its array of shape {shape}; fetch it again", path=self.path)

    def read(self) -> Array:
        """Return the whole array as rows (rows, columns). Raises DataError."""
        shape = self.shape()
        check_memory(math.prod(shape) * 8, "the array", self.path)
        parts = list(self.chunks())
        return np.concatenate(parts) if parts else np.empty((0, math.prod(shape[1:])))

    @contextmanager
    def _open(self) -> Iterator[tuple[IO[bytes], tuple[int, ...], np.dtype[np.generic]]]:
        try:
            with open_stream(self.path) as stream:
                start = stream.read(4)
                if len(start) < 4 or start[:2] != b"\0\0" or start[2] not in _TYPES or start[3] == 0:
                    raise DataError(
                        f"is no idx file: it begins with {start.hex(' ') or 'nothing'}, not with 00 00, a type (08 to "
                        "0e) and the number of dimensions; name the file by what it is",
                        path=self.path,
                    )
                sizes = stream.read(4 * start[3])
                if len(sizes) < 4 * start[3]:
                    raise DataError("is cut off within its header; fetch it again", path=self.path)
                shape, dtype = struct.unpack(f">{start[3]}I", sizes), np.dtype(_TYPES[start[2]])
                if math.prod(shape[1:]) * dtype.itemsize > MAX_ROW_BYTES:
                    raise DataError(f"has the shape {shape}; a row may have {MAX_ROW_BYTES:,} bytes", path=self.path)
                yield stream, shape, dtype
        except STREAM_ERRORS as error:
            raise stream_error(error, self.path) from error
