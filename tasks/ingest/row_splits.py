"""Splits of nodes or graphs as a source has them: each row in one split at most, and labelled."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from configs.errors import DataError
from tasks.arrays import Array
from tasks.ingest.labels import check_labelled
from tasks.ingest.writer import DatasetWriter
from tasks.storage.manifests import SPLITS


def write_row_splits(
    writer: DatasetWriter,
    ids: Iterable[tuple[Array, object]],
    labelled: Array,
    what: str = "node",
    *,
    has_rows: bool = False,
) -> None:
    """Write `split/train`, `split/valid` and `split/test`, ascending.

    Args:
        writer: of the tables.
        ids: for train, valid and test the ids of their rows, int64 (k,), and where they stand, for messages.
        labelled: which rows have a label, bool (n,).
        what: `node` or `graph`.
        has_rows: whether an id's place is a row of a file, which messages name.

    Raises:
        DataError: a split is empty; an id is out of range, stands twice, in two splits, or has no label.
    """
    owner = np.full(len(labelled), -1, np.int8)
    for code, (split, (given, path)) in enumerate(zip(SPLITS, ids, strict=True)):
        wrong = _claim(owner, given, code, what)
        if wrong is not None:
            place, words = wrong
            raise DataError(words, path=path, row=place if has_rows else None)
        check_labelled(labelled, given, split, what, path)
        writer.write(f"split/{split}", {f"{what}_id": np.sort(given)})


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
