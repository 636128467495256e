"""Arrays in the idx format, as MNIST and Fashion-MNIST are published; compressed or not.

Two zero bytes, a byte for the type, one for the number of dimensions, their sizes (big-endian, four bytes each), the
numbers (big-endian).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np

from configs.errors import DataError
from tasks.arrays import Array, blocks
from tasks.readers.arrays.npy import read_values
from tasks.readers.limits import MAX_ROW_BYTES, check_memory
from tasks.readers.streams import STREAM_ERRORS, open_stream, stream_error

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
