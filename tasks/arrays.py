"""Arrays as all stages take them: their type, blocks and samples of rows, and offsets of what lies end to end."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]
_SAMPLE_KEY = 20_261_122


def blocks(count: int, size: int) -> Iterator[slice]:
    """Yield slices that cover the rows 0 to count - 1, `size` of them at a time."""
    for first in range(0, count, size):
        yield slice(first, min(first + size, count))


def offsets(sizes: ArrayLike) -> NDArray[np.int64]:
    """Return where each thing begins when things of these sizes lie end to end, and where the last ends: (n + 1,)."""
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)


def sample_rows(rows: Array, most: int) -> Array:
    """Return at most so many of the rows, drawn without replacement, in their order.

    They are always the same ones: a recipe's seed must not change what a model is measured by or compared with.
    """
    if len(rows) <= most:
        return rows
    draw = np.random.Generator(np.random.Philox(key=_SAMPLE_KEY))
    return rows[np.sort(draw.choice(len(rows), most, replace=False))]


def row_blocks(indptr: Array, max_entries: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows, first and end, with at most `max_entries` entries; a longer row is a range of its own.

    Row v has the entries indptr[v] to indptr[v + 1]: int64 (N + 1,).
    """
    first, num_rows = 0, len(indptr) - 1
    while first < num_rows:
        end = int(np.searchsorted(indptr, indptr[first] + max_entries, side="right")) - 1
        end = min(max(end, first + 1), num_rows)
        yield first, end
        first = end


def row_ranges(indptr: Array, num_ranges: int) -> list[tuple[int, int]]:
    """Cut the rows into at most `num_ranges` ranges with about equally many edges (and rows, where there are few)."""
    num_rows = len(indptr) - 1
    load = indptr[-1] + num_rows
    cuts = [0]
    for k in range(1, num_ranges):
        target = load * k // num_ranges
        low, high = cuts[-1], num_rows
        while low < high:  # first row whose edges + rows before it reach the target
            middle = (low + high) // 2
            if indptr[middle] + middle < target:
                low = middle + 1
            else:
                high = middle
        cuts.append(low)
    cuts.append(num_rows)
    return [(a, b) for a, b in itertools.pairwise(cuts) if a < b]
