"""Files that are mapped into memory and read in no order."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from collections.abc import Iterator
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from tasks.processes.memory import available_bytes

_SHARE = 0.5
"""Of the memory that is free: a larger file will not stay there."""


@contextlib.contextmanager
def rows_at_random(table: Tensor | NDArray[Any]) -> Iterator[None]:
    """Let the kernel read only touched pages, not 32 around each, of a mapped table that is larger than memory."""
    if table.nbytes <= _SHARE * available_bytes():
        yield
        return
    _advise(table, mmap.MADV_RANDOM)
    try:
        yield
    finally:
        _advise(table, mmap.MADV_NORMAL)


def _advise(table: Tensor | NDArray[Any], advice: int) -> None:
    """Tell the kernel how a table's pages will be read; it may take no notice."""
    address = table.data_ptr() if isinstance(table, Tensor) else table.ctypes.data
    first = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE
    length = address + table.nbytes - first
    if length > 0:
        ctypes.CDLL(None).madvise(ctypes.c_void_p(first), ctypes.c_size_t(length), advice)
