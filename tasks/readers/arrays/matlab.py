"""MATLAB files of version 5 to 7: matrices of numbers, every size and index of which is checked before it is believed.

A file has a header of 128 bytes and elements, each with a tag of eight bytes: kind and size. A variable is an element
that holds others: flags, shape, name and numbers; of a sparse matrix the rows, the columns' starts and the numbers.
A compressed element begins, unpacked, with the tag of the variable in it. scipy's own reader takes kinds and sizes as
they come: of 1,500 files with one to four numbers changed 38 ended the process by SIGSEGV and nine with a broken heap
(scipy.io.loadmat, 2026-11). A child process would be no wall against a file that is made to break it.
"""

from __future__ import annotations

import math
import os
import struct
import zlib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from configs.errors import DataError
from configs.matching import did_you_mean, listed
from configs.source_files import check_file, open_file
from tasks.arrays import Array
from tasks.readers.limits import check_memory

_HEADER_BYTES = 128
_MAX_HEAD_BYTES = 4096
"""Of a variable, before its numbers; MATLAB's names have 63 characters at most."""
_PIECE_BYTES = 1 << 20
_COPIES = 2
"""Of a variable's bytes, in memory at a time."""
_ENTRY_BYTES = 32
"""What a number other than 0 takes while a sparse matrix is made and put in order."""
_MATRIX, _COMPRESSED = 14, 15
_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_SPARSE, _DENSE, _OPAQUE = 5, range(6, 16), 17
_KINDS = {1: "a cell array", 2: "a struct", 3: "an object", 4: "text", 16: "a function", 17: "an object"}
_LOGICAL, _COMPLEX = 0x200, 0x800
_OTHER = "name another variable by the options network and groups"
_SAVE = "save it with -v7, or by scipy.io.savemat"


class _Variable(NamedTuple):
    """What a variable says of itself before its numbers, and where it stands in the file."""

    name: str
    kind: int
    flags: int
    shape: tuple[int, ...]
    place: int
    length: int
    packed: bool
    num_bytes: int
    """Of its content, unpacked."""
    values_at: int
    """Where in the content the numbers begin."""


def read_matrices(
    path: Path, names: Collection[str], check: Callable[[dict[str, tuple[int, ...]]], None] | None = None
) -> dict[str, Any]:
    """Return variables, each a sparse or dense two-dimensional matrix of finite numbers, as scipy.sparse.csc_array.

    Columns are no more than the file has bytes; rows, of a sparse matrix, are as many as it says: check them before
    anything is made that has as many. `check` gets the shapes, and may raise before any number is read.

    Raises DataError: the file is none, is damaged, does not fit into memory, or has no such matrix.
    """
    size = check_file(path).st_size
    with open_file(path) as raw, os.fdopen(os.dup(raw.fileno()), "rb", buffering=_PIECE_BYTES) as file:
        reader = _MatReader(file, size, path)
        variables = {variable.name: variable for variable in reader.variables()}
        there = [name for name in variables if name]  # what MATLAB keeps of objects has none
        for name in names:
            if name not in variables:
                words = f"has no variable {name!r}{did_you_mean(name, there)}; it has {listed(there) or 'none'}"
                raise DataError(f"{words}; the options network and groups name the matrices", path=path)
            _check_kind(variables[name], f"{path}[{name}]")
        if check is not None:
            check({name: variables[name].shape for name in names})
        return {name: reader.matrix(variables[name]) for name in names}


def _check_kind(variable: _Variable, name: str) -> None:
    if variable.kind != _SPARSE and variable.kind not in _DENSE:
        what = _KINDS.get(variable.kind, f"of an unknown kind ({variable.kind})")
        raise DataError(f"is {what} and no matrix of numbers; {_OTHER}", path=name)
    if variable.flags & _COMPLEX:
        raise DataError("is no matrix of numbers but of complex ones; save its real part", path=name)
    if len(variable.shape) != 2 or min(variable.shape) < 1:
        words = f"has the shape {str(variable.shape)[:100]}, and a matrix of rows and columns is needed"
        raise DataError(f"{words}; {_OTHER}", path=name)


class _Parts:
    """The elements within a variable, one after the other."""

    def __init__(self, data: bytes | bytearray, at: int, path: object) -> None:
        self.data, self.at, self.path = memoryview(data), at, path

    def take(self) -> tuple[int, memoryview]:
        kind, length = self.tag()
        start = self.at
        if kind >> 16:  # up to four bytes stand in the tag itself
            kind, length, start = kind & 0xFFFF, kind >> 16, self.at - 4
            if length > 4:
                raise _damaged(f"an element of {length} bytes within a tag", self.path)
        if start + length > len(self.data):
            raise _damaged(f"an element announces {length:,} bytes, {len(self.data) - start:,} are there", self.path)
        self.at = max(self.at, start + length + -(start + length) % 8)
        return kind, self.data[start : start + length]

    def numbers(self, *, most: int | None = None) -> Array:
        """Return the next element as numbers; as bytes where it has `most` of them (MATLAB's sparse truth values)."""
        kind, data = self.take()
        if kind not in _TYPES:
            raise _damaged(f"numbers of kind {kind}", self.path)
        dtype = np.dtype("u1") if len(data) == most else np.dtype(f"<{_TYPES[kind]}")
        if len(data) % dtype.itemsize:
            raise _damaged(f"{len(data):,} bytes of numbers that have {dtype.itemsize} each", self.path)
        return np.frombuffer(data, dtype)

    def whole_numbers(self) -> Array:
        """Return the next element as whole numbers of four bytes, as shapes and indices are."""
        values = self.numbers()
        if values.dtype not in (np.int32, np.uint32):
            raise _damaged(f"a shape or indices of {values.dtype} instead of int32", self.path)
        return values

    def tag(self) -> tuple[int, int]:
        """Return kind and size of the next element as its tag has them, and go on behind the tag."""
        if self.at + 8 > len(self.data):
            raise _damaged("a variable ends too early", self.path)
        kind, length = struct.unpack_from("<II", self.data, self.at)
        self.at += 8
        return kind, length


class _MatReader:
    def __init__(self, file: IO[bytes], size: int, path: Path) -> None:
        self.file, self.size, self.path = file, size, path
        header = file.read(_HEADER_BYTES)
        if header.startswith(b"MATLAB 7.3") or header[124:] == b"\0\2IM":
            raise DataError(f"is of MATLAB 7.3 (HDF5); {_SAVE}", path=path)
        if header[126:] != b"IM":
            raise DataError(f"is no MATLAB file of version 5 to 7 of a usual machine; {_SAVE}", path=path)

    def variables(self) -> Iterator[_Variable]:
        place = _HEADER_BYTES
        while place < self.size:
            self.file.seek(place)
            tag = self.file.read(8)
            if len(tag) < 8:
                raise _damaged("it is cut off", self.path)
            kind, length = struct.unpack("<II", tag)
            end = place + 8 + length
            if kind not in (_MATRIX, _COMPRESSED):
                raise _damaged(f"it has an element of kind {kind} at byte {place:,}", self.path)
            if end > self.size:
                raise _damaged(f"it is cut off: {end:,} bytes are announced, it has {self.size:,}", self.path)
            yield self._variable(place + 8, length, kind == _COMPRESSED)
            place = end

    def _variable(self, place: int, length: int, packed: bool) -> _Variable:
        parts = _Parts(self._content(place, length, packed, _MAX_HEAD_BYTES, self.path), 0, self.path)
        num_bytes = length
        if packed:
            kind, unpacked = parts.tag()
            if kind != _MATRIX:
                raise _damaged(f"it has a compressed element of kind {kind}", self.path)
            num_bytes = 8 + unpacked
        flags = parts.whole_numbers()
        if not len(flags):
            raise _damaged("a variable without flags", self.path)
        kind = int(flags[0]) & 0xFF
        # An object of a newer kind has no shape.
        shape = () if kind == _OPAQUE else tuple(parts.whole_numbers().tolist())
        name = bytes(parts.take()[1]).decode("latin-1")
        return _Variable(name, kind, int(flags[0]), shape, place, length, packed, num_bytes, parts.at)

    def matrix(self, variable: _Variable) -> Any:
        name = f"{self.path}[{variable.name}]"
        check_memory(_COPIES * variable.num_bytes, "the matrix", name)
        # One byte more shows what is too long, and leads to the checksum at the end of what is compressed.
        data = self._content(variable.place, variable.length, variable.packed, variable.num_bytes + 1, name)
        if len(data) != variable.num_bytes:
            there = f"{len(data):,}" if len(data) < variable.num_bytes else "more"
            raise _damaged(f"{variable.num_bytes:,} bytes are announced, there are {there}", name)
        parts = _Parts(data, variable.values_at, name)
        matrix = (_sparse if variable.kind == _SPARSE else _dense)(parts, variable, name)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        if not np.isfinite(matrix.data).all():
            raise DataError("has numbers that are NaN or infinite; leave them out or set them to 0", path=name)
        return matrix

    def _content(self, place: int, length: int, packed: bool, most: int, name: object) -> bytes | bytearray:
        """Return what an element holds, unpacked: its first `most` bytes."""
        self.file.seek(place)
        if not packed:
            return self.file.read(min(length, most))
        inflate, out, left = zlib.decompressobj(), bytearray(), length
        try:
            # What is unpacked is short of `most` only where the piece is used up, so none is left over.
            while len(out) < most and not inflate.eof and left > 0:
                piece = self.file.read(min(left, _PIECE_BYTES))
                out += inflate.decompress(piece, most - len(out))
                left -= len(piece) or left
        except zlib.error as error:
            raise _damaged(str(error), name) from error
        if len(out) < most and not inflate.eof:
            raise _damaged("a compressed element is cut off", name)
        return out


def _damaged(what: str, path: object) -> DataError:
    return DataError(f"is damaged: {what}; fetch or write the file again", path=path)


def _dense(parts: _Parts, variable: _Variable, name: str) -> Any:
    import scipy.sparse as sp

    values = parts.numbers()
    if math.prod(variable.shape) != len(values):
        raise _damaged(f"the shape {variable.shape} has other than {len(values):,} numbers", name)
    check_memory(_ENTRY_BYTES * int(np.count_nonzero(values)), "the matrix", name)
    return sp.csc_array(values.reshape(variable.shape, order="F"))


def _sparse(parts: _Parts, variable: _Variable, name: str) -> Any:
    import scipy.sparse as sp

    rows, starts = parts.whole_numbers(), parts.whole_numbers()
    values = parts.numbers(most=len(rows) if variable.flags & _LOGICAL else None)
    columns = variable.shape[1]
    if len(starts) != columns + 1 or starts[0] or (starts[1:] < starts[:-1]).any():
        raise _damaged(f"the starts of its {columns:,} columns do not ascend from 0, or are other than that many", name)
    count = int(starts[-1])
    if count > min(len(rows), len(values)):
        raise _damaged(f"{count:,} numbers are announced, there are {min(len(rows), len(values)):,}", name)
    check_memory(_ENTRY_BYTES * count, "the matrix", name)
    try:
        matrix = sp.csc_array((values[:count], rows[:count], starts), shape=variable.shape, copy=True)
        matrix.check_format(full_check=True)
    except ValueError as error:
        raise _damaged(str(error), name) from error
    return matrix
