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
    writer: DatasetWriter, ids: Iterable[tuple[Array, object]], labelled: Array, what: str = "node"
) -> None:
    """Write `split/train`, `split/valid` and `split/test`, ascending.

    Args:
        writer: of the tables.
        ids: for train, valid and test the ids of their rows, int64 (k,), and where they stand, for messages.
        labelled: which rows have a label, bool (n,).
        what: `node` or `graph`.

    Raises:
        DataError: a split is empty; an id is out of range, stands twice, in two splits, or has no label.
    """
    owner = np.full(len(labelled), -1, np.int8)
    for code, (split, (given, path)) in enumerate(zip(SPLITS, ids, strict=True)):
        _claim(owner, given, code, what, path)
        check_labelled(labelled, given, split, what, path)
        writer.write(f"split/{split}", {f"{what}_id": np.sort(given)})


def _claim(owner: Array, ids: Array, code: int, what: str, path: object) -> None:
    """Mark `ids` as belonging to split `code` in `owner`, int8 (n,), -1 where free. Raises DataError."""
    if len(ids) == 0:
        raise DataError(f"the {SPLITS[code]} split is empty", path=path)
    outside = ids[(ids < 0) | (ids >= len(owner))]
    if len(outside):
        raise DataError(f"{what} id {outside[0]} is not in 0..{len(owner) - 1}", path=path)
    taken = ids[owner[ids] >= 0]
    if len(taken):
        other = SPLITS[int(owner[taken[0]])]
        raise DataError(f"{what} {taken[0]} is in the {other} split too; splits overlap", path=path)
    owner[ids] = code
    if np.count_nonzero(owner == code) != len(ids):
        ordered = np.sort(ids)
        twice = ordered[:-1][ordered[1:] == ordered[:-1]][0]
        raise DataError(f"{what} {twice} stands in the split twice", path=path)
