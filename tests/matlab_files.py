"""MATLAB files put together piece by piece, also as MATLAB would never write them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import numpy as np

INT8, INT32, UINT32, DOUBLE, MATRIX, COMPRESSED = 1, 5, 6, 9, 14, 15
SPARSE, FULL = 5, 6


def element(kind: int, data: bytes, order: str = "<", size: int | None = None) -> bytes:
    """An element; it announces `size` bytes, or those that it has."""
    tag = struct.pack(f"{order}II", kind, len(data) if size is None else size)
    return tag + data + bytes(-len(data) % 8)


def numbers(kind: int, values: Sequence[float], order: str = "<") -> bytes:
    code = {INT8: "i1", INT32: "i4", UINT32: "u4", DOUBLE: "f8"}[kind]
    return element(kind, np.array(values, np.dtype(code).newbyteorder(order)).tobytes(), order)


def variable(
    name: str, kind: int, shape: Sequence[int], *parts: bytes, flags: int = 0, order: str = "<", size: int | None = None
) -> bytes:
    head = numbers(UINT32, [kind | flags, 1], order) + numbers(INT32, shape, order)
    return element(MATRIX, head + element(INT8, name.encode("latin-1"), order) + b"".join(parts), order, size)


def sparse(
    name: str, shape: Sequence[int], rows: Sequence[int], starts: Sequence[int], values: Sequence[float]
) -> bytes:
    return variable(name, SPARSE, shape, numbers(INT32, rows), numbers(INT32, starts), numbers(DOUBLE, values))


def packed(unpacked: bytes) -> bytes:
    data = zlib.compress(unpacked)
    return struct.pack("<II", COMPRESSED, len(data)) + data


def mat_file(*elements: bytes, order: str = "<") -> bytes:
    return b"MATLAB 5.0".ljust(124) + struct.pack(f"{order}HH", 0x0100, 0x4D49) + b"".join(elements)


def elements_of(content: bytes) -> list[bytes]:
    found, place = [], 128
    while place < len(content):
        kind, length = struct.unpack_from("<II", content, place)
        end = place + 8 + length
        found.append(zlib.decompress(content[place + 8 : end]) if kind == COMPRESSED else content[place:end])
        place = end
    return found
