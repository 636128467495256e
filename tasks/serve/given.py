"""Ids and pairs of ids that a user gives in a file."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from configs.errors import DataError
from tasks.dataset_store import DatasetStore
from tasks.graph_store import Array
from tasks.ingest.id_index import is_text
from tasks.ingest.table_columns import ids
from tasks.ingest.table_files import Batch, TableFiles
from tasks.readers.columns import first_not_whole

logger = logging.getLogger(__name__)


def read_ids(path: Path, columns: tuple[str, ...], *, texts: bool) -> list[pa.Array]:
    """Return columns of ids of a file, each (n,): those of these names, else as many of the first ones.

    Parquet, CSV, TSV and lists of numbers (`.txt`, an id or a pair a line), also compressed.

    Args:
        path: the file.
        columns: names of the columns.
        texts: whether the data's ids are texts; then `7` in a CSV is the text too.

    Raises:
        DataError: it cannot be read, has too few columns, no rows, cells that are no ids, or ids for its first line.
    """
    files = TableFiles((str(path),))
    there = files.column_names()
    chosen = list(columns) if set(columns) <= set(there) else there[: len(columns)]
    if files.has_name_line and not texts and any(name.isdecimal() for name in chosen):
        line = ",".join(columns)
        raise DataError(f"begins with ids, not with the columns' names; give it a first line {line!r}", path=path)
    if len(chosen) < len(columns):
        raise DataError(f"has {len(there)} column(s), {len(columns)} are needed: {', '.join(columns)}", path=path)
    parts: list[list[pa.Array]] = [[] for _ in chosen]
    unnamed = texts and files.has_name_line and chosen != list(columns)
    for batch in files.batches(chosen, chosen if texts else ()):
        if unnamed:
            _doubt_names(path, chosen, columns, batch)
            unnamed = False
        for place, name in enumerate(chosen):
            parts[place].append(_of_kind(batch, name, texts))
    if not sum(map(len, parts[0])):
        raise DataError("has no rows", path=path)
    return [pa.concat_arrays(part) for part in parts]


def _doubt_names(path: Path, names: list[str], columns: tuple[str, ...], batch: Batch) -> None:
    """Tell a first line of ids from one of names that are not ours: the first id would be lost without a word.

    Raises:
        DataError: the line looks as the next one does, digits and all.
    """
    line, wanted = ",".join(names), ",".join(columns)
    first = [str(batch.column(name)[0]) for name in names] if batch.data.num_rows else []
    if any(_form(name) == _form(cell) and "0" in _form(name) for name, cell in zip(names, first, strict=False)):
        raise DataError(
            f"begins with {line!r}, which looks like ids, not like the columns' names; give it a first line {wanted!r}",
            path=path,
        )
    logger.warning(
        "%s: the first line, %r, is taken as the columns' names; if it holds ids, put a line %r before it",
        path,
        line,
        wanted,
    )


def _form(text: str) -> str:
    """Return a text with 0 for each run of digits and a for each of letters."""
    return re.sub(r"\d+", "0", re.sub(r"[^\W\d_]+", "a", text))


def read_rows(path: Path) -> Array | None:
    """Return the column `row` of a file of ids, int64 (n,), -1 for cells that are no row's number; None without one.

    It tells nodes or graphs of one id apart, as files of predictions do.
    """
    files = TableFiles((str(path),))
    if "row" not in files.column_names():
        return None
    parts = []
    for batch in files.batches(["row"], ["row"]):
        cells = batch.column("row")
        if pa.types.is_nested(cells.type):
            return None
        texts = cells.cast(pa.string())
        whole = compute.fill_null(compute.match_substring_regex(texts, r"^[0-9]{1,18}$"), False)
        parts.append(np.asarray(compute.if_else(whole, texts, "-1").cast(pa.int64())))
    return np.concatenate(parts)


def _of_kind(batch: Batch, column: str, texts: bool) -> pa.Array:
    found = ids(batch, column)
    if texts or not is_text(found.type):
        return found.cast(pa.string()) if texts else found
    try:
        return found.cast(pa.int64())
    except pa.ArrowInvalid:
        row = first_not_whole(found)
        text = found[row].as_py()
        raise batch.error(f"{text!r} is no id here: the data's ids are whole numbers", row, column) from None


def ids_are_texts(dataset: DatasetStore, table: str) -> bool:
    """Whether the original ids in an id table (`ids/TYPE`) are texts."""
    return table in dataset and is_text(pa.type_for_alias(dataset.table(table).columns["original_id"]))


def check_known(path: Path, column: str, given: pa.Array, found: Array) -> None:
    """Refuse ids that the data or the graph has not (see `IdMap.find`). Raises DataError naming the first."""
    missing = np.flatnonzero(found < 0)
    if len(missing):
        row = int(missing[0])
        why = "is not in the data" if found[row] == -1 else "is left out of the graph (components.keep, snapshot.as_of)"
        more = f", and {len(missing) - 1:,} more" if len(missing) > 1 else ""
        raise DataError(f"{given[row].as_py()!r} {why}{more}; leave it out", path=path, row=row, column=column)
