"""Splits as a source has them, each row in one at most and labelled, and splits that are drawn by counters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numba import njit

from configs.errors import DataError
from tasks.arrays import Array
from tasks.counter_random import bits, uniform
from tasks.ingest.labels import check_labelled
from tasks.ingest.writer import DatasetWriter
from tasks.storage.manifests import EDGE_LABELS, SPLITS

_DRAWN = 15  # the stream of random numbers


def write_row_splits(
    writer: DatasetWriter,
    ids: Iterable[tuple[Array, object]],
    labelled: Array,
    what: str = "node",
    *,
    has_rows: bool = False,
) -> None:
    """Write `split/train`, `split/valid` and `split/test`, ascending.

    `ids`: for train, valid and test the ids of their rows, int64 (k,), and where they stand, for messages; `labelled`:
    which rows have a label, bool (n,); `what`: `node`, `edge` or `graph`; `has_rows`: whether an id's place is that of
    a row of a file.

    Raises DataError: a split is empty; an id is out of range, stands twice, in two splits, or has no label.
    """
    owner = np.full(len(labelled), -1, np.int8)
    for code, (split, (given, path)) in enumerate(zip(SPLITS, ids, strict=True)):
        wrong = _claim(owner, given, code, what)
        if wrong is not None:
            place, words = wrong
            raise DataError(words, path=path, row=place if has_rows else None)
        check_labelled(labelled, given, split, what, path)
        writer.write(f"split/{split}", {f"{what}_id": np.sort(given)})


def write_edge_labels(
    writer: DatasetWriter, kind: str, label: Array, rows: Array | None = None, *, keep: bool, ordered: bool
) -> dict[str, Any]:
    """Write the labels of the edges of a type, which its table `edges/KIND` has in the same order; return what is so.

    `rows`: where the source has each edge, int64 (n,), if not all are there. Returned are fields of the manifest.
    """
    places = np.arange(len(label)) if rows is None else rows
    writer.write(f"{EDGE_LABELS}/{kind}", {"label": label, "row": places})
    width = label.shape[1] if label.ndim == 2 else 1
    return {"task": "edge", "num_tasks": width, "keep_known_pairs": keep, "ordered_ends": ordered}


def _claim(owner: Array, ids: Array, code: int, what: str) -> tuple[int | None, str] | None:
    """Mark `ids` as belonging to split `code` in `owner`, int8 (n,), -1 where free; or say what is wrong, and where."""
    if len(ids) == 0:
        return None, f"the {SPLITS[code]} split is empty"
    outside = np.flatnonzero((ids < 0) | (ids >= len(owner)))
    if len(outside):
        return int(outside[0]), f"{what} id {ids[outside[0]]} is not in 0..{len(owner) - 1}"
    taken = np.flatnonzero(owner[ids] >= 0)
    if len(taken):
        node = ids[taken[0]]
        return int(taken[0]), f"{what} {node} is in the {SPLITS[int(owner[node])]} split too; splits overlap"
    owner[ids] = code
    if np.count_nonzero(owner == code) == len(ids):
        return None
    ordered = np.sort(ids)
    twice = ordered[:-1][ordered[1:] == ordered[:-1]][0]
    return int(np.flatnonzero(ids == twice)[1]), f"{what} {twice} stands in the split twice"


@njit(cache=True, nogil=True)
def pick_splits(counters, seed, valid_share, test_share):  # type: ignore[no-untyped-def]
    """Return 0 (train), 1 (valid) or 2 (test) for each counter, int8."""
    out = np.empty(len(counters), np.int8)
    for i in range(len(counters)):
        u = uniform(seed, _DRAWN, counters[i])
        out[i] = 1 if u < valid_share else (2 if u < valid_share + test_share else 0)
    return out


@njit(cache=True, nogil=True)
def pair_keys(src, dst):  # type: ignore[no-untyped-def]
    """Return a number for each unordered pair, uint64: both drawings of a pair go to one split."""
    out = np.empty(len(src), np.uint64)
    for i in range(len(src)):
        low, high = min(src[i], dst[i]), max(src[i], dst[i])
        out[i] = bits(low, 0, high) >> np.uint64(1)
    return out
