"""Means and standard deviations of columns, over rows that may lie on several ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from tasks.storage.graph_store import Array, slices

_CHUNK_ROWS = 1 << 18
_CONSTANT = 1e-7
"""A deviation below this share of the mean is rounding: the label is constant."""


def label_scale(labels: Array, rows: Array, add_up: Callable[[Array], Array] | None = None) -> tuple[Array, Array]:
    """Return mean and standard deviation of the labels of some rows, float64 (T,) each, by column.

    `labels`, float (N, T), may be a memory map; NaN is no label. A constant label has the scale 1, one that no row has
    the mean 0 besides. `add_up`: see `column_moments`.
    """
    mean, deviation = column_moments(
        lambda: (labels[rows[part]] for part in slices(max(1, len(rows)), _CHUNK_ROWS)), add_up
    )
    return mean, np.where(deviation > _CONSTANT * np.abs(mean), deviation, 1.0)


def column_moments(
    parts: Callable[[], Iterable[Array]], add_up: Callable[[Array], Array] | None = None
) -> tuple[Array, Array]:
    """Return mean and standard deviation of each column, float64 (D,), 0 where it has no number.

    `parts` returns the rows (n, D) in pieces, anew for each of two passes; NaN does not count. `add_up` adds sums to
    those of other ranks that hold further rows.
    """
    over_ranks = add_up or np.asarray
    count, total = np.zeros((), np.float64), np.zeros((), np.float64)
    for part in parts():
        known = ~np.isnan(part)
        count = count + known.sum(0)
        total = total + np.where(known, part, 0).sum(0, dtype=np.float64)
    count = np.maximum(over_ranks(count), 1)
    mean = over_ranks(total) / count
    squares = sum(np.nansum(np.square(part - mean), axis=0) for part in parts())
    return mean, np.sqrt(over_ranks(np.asarray(squares)) / count)
