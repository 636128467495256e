"""Kernels against NumPy and SciPy, at sizes that reach every path."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.arrays import row_ranges
from tasks.preprocess.edges.edge_kernels import over_rows, sort_and_compress, sort_rows

NOTHING = np.empty(0, np.int32)


@pytest.mark.parametrize("number", [0, 1, 2, 47, 48, 49, 1000, 16_384, 16_385, 100_000])
@pytest.mark.parametrize("bits", [1, 2, 6, 11, 12, 17, 18, 21, 31, 32])
def test_edges_are_sorted_stably(number: int, bits: int) -> None:
    rng = np.random.default_rng(number + bits)
    keys = rng.integers(0, 2 ** (2 * bits), number, dtype=np.uint64)
    keys[: number // 3] = keys[:1]  # a hub
    order = np.argsort(keys, kind="stable")
    rows, counts, cols, payload = sort_and_compress(keys.copy(), np.arange(number, dtype=np.int32), bits, False)
    np.testing.assert_array_equal(payload, order)
    np.testing.assert_array_equal(_pack(rows, counts, cols, bits), keys[order])
    assert (np.diff(rows) > 0).all()
    assert (counts > 0).all()
    again = sort_and_compress(keys.copy(), NOTHING, bits, False)
    np.testing.assert_array_equal(_pack(*again[:3], bits), keys[order])
    merged = sort_and_compress(keys.copy(), NOTHING, bits, True)
    np.testing.assert_array_equal(_pack(*merged[:3], bits), np.unique(keys))
    np.testing.assert_array_equal(merged[0], rows)
    assert merged[2].dtype == rows.dtype == (np.int32 if bits <= 31 else np.int64)


def _pack(rows: np.ndarray, counts: np.ndarray, cols: np.ndarray, bits: int) -> np.ndarray:
    return np.repeat(rows.astype(np.uint64), counts) << np.uint64(bits) | cols.astype(np.uint64)


@pytest.mark.parametrize("threads", [1, 3])
def test_rows_are_sorted_with_what_follows(threads: int) -> None:
    rng = np.random.default_rng(1)
    degree = np.concatenate([rng.integers(0, 60, 300), [5000, 0, 0]])
    indptr = np.concatenate([[0], np.cumsum(degree)])
    indices = rng.integers(0, 20, indptr[-1]).astype(np.int32)
    eids = np.arange(indptr[-1])
    row = np.repeat(np.arange(len(degree)), degree)
    order = np.lexsort((eids, indices, row))
    alone, together, follow = indices.copy(), indices.copy(), eids.copy()
    over_rows(sort_rows, threads, indptr, alone, np.empty(0, np.int64))
    over_rows(sort_rows, threads, indptr, together, follow)
    np.testing.assert_array_equal(alone, indices[order])
    np.testing.assert_array_equal(together, indices[order])
    np.testing.assert_array_equal(follow, order)


@pytest.mark.parametrize("degree", [[], [0, 0, 0], [1000, 0, 1], [1] * 100, [0] * 50 + [9] * 50])
def test_row_ranges_cover_each_row_once(degree: list[int]) -> None:
    indptr = np.concatenate([[0], np.cumsum(degree)]).astype(np.int64)
    for number in (1, 2, 7, 200):
        ranges = row_ranges(indptr, number)
        assert [v for first, last in ranges for v in range(first, last)] == list(range(len(degree)))
        assert len(ranges) <= number
    if len(degree) == 100:
        loads = [indptr[b] - indptr[a] + b - a for a, b in row_ranges(indptr, 4)]
        assert max(loads) <= 1.2 * sum(loads) / 4
