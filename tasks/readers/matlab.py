"""MATLAB files of version 5 to 7, opened only after what they say of themselves was checked.

Their elements have a tag of eight bytes, kind and size; a compressed one begins, unpacked, with the tag of what it
holds.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

from configs.errors import DataError
from tasks.readers.limits import check_memory

_HEADER_BYTES = 128
_COMPRESSED, _MATRIX = 15, 14
_COPIES = 3
"""Of a matrix, in memory at a time."""


def read_matrices(path: Path, names: list[str]) -> dict[str, Any]:
    """Return variables, each a sparse or dense two-dimensional matrix of finite numbers, as scipy.sparse.csr_array.

    Raises:
        DataError: the file is none, is cut off, does not fit into memory, or has no such matrix.
    """
    import numpy as np
    import scipy.io
    import scipy.sparse as sp

    check_memory(_COPIES * _unpacked_bytes(path), "the file, unpacked,", path)
    try:
        found: dict[str, Any] = scipy.io.loadmat(path, variable_names=names)
        known = [name for name, *_ in scipy.io.whosmat(path)]
    except Exception as error:  # scipy raises whatever a damaged file leads it into
        raise DataError(f"is damaged: {str(error) or type(error).__name__}", path=path) from error
    matrices = {}
    for name in names:
        if name not in found:
            raise DataError(f"has no variable {name!r}; it has {', '.join(known) or 'none'}", path=path)
        value = found[name]
        numeric = sp.issparse(value) or (isinstance(value, np.ndarray) and value.ndim == 2)
        if not numeric or value.dtype.kind not in "iufb":
            raise DataError("is no matrix of numbers", path=f"{path}[{name}]")
        matrix = sp.csr_array(value)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        if not np.isfinite(matrix.data).all():
            raise DataError("has numbers that are NaN or infinite", path=f"{path}[{name}]")
        matrices[name] = matrix
    return matrices


def _unpacked_bytes(path: Path) -> int:
    """Return the bytes that the file's elements take unpacked, as they say themselves."""
    size = path.stat().st_size
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
        if header.startswith(b"MATLAB 7.3"):
            raise DataError("is of MATLAB 7.3 (HDF5); save it with -v7, or by scipy.io.savemat", path=path)
        order = {b"IM": "<", b"MI": ">"}.get(header[126:128])
        if order is None or len(header) < _HEADER_BYTES:
            raise DataError("is no MATLAB file of version 5 to 7", path=path)
        total, place = 0, _HEADER_BYTES
        while place < size:
            tag = file.read(8)
            if len(tag) < 8:
                raise DataError("is cut off", path=path)
            kind, length = struct.unpack(f"{order}II", tag)
            if place + 8 + length > size:
                raise DataError(f"is cut off: {place + 8 + length:,} bytes are announced, it has {size:,}", path=path)
            if kind == _COMPRESSED:
                total += _announced(file.read(min(length, 1024)), order, path)
            elif kind == _MATRIX:
                total += length
            else:
                raise DataError(f"is damaged: it has an element of kind {kind} at byte {place}", path=path)
            place += 8 + length
            file.seek(place)
    return total


def _announced(packed: bytes, order: str, path: Path) -> int:
    """Return the size of what was compressed."""
    try:
        tag = zlib.decompressobj().decompress(packed, 8)
        return int(struct.unpack(f"{order}II", tag)[1])
    except (zlib.error, struct.error) as error:
        raise DataError(f"is damaged: {error}", path=path) from error
