"""Ids and pairs of ids that a user gives in a file."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from configs.errors import DataError
from configs.matching import listed
from tasks.ingest.tables.batches import TableBatch
from tasks.ingest.tables.columns import EXACT, ids
from tasks.ingest.tables.files import TableFiles
from tasks.readers.columns import first_not_whole, is_text, to_int64
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import Array
from tasks.storage.ids import find_rows
from tasks.storage.manifests import EDGE_IDS, EDGE_LABELS

if TYPE_CHECKING:
    from tasks.inference.opened import Opened

logger = logging.getLogger(__name__)
_PAIR = ["source", "target"]


def read_ids(path: Path, columns: Mapping[str, bool]) -> list[pa.Array]:
    """Return columns of ids of a file, each (n,): those of these names, else as many of the first ones.

    Parquet, CSV, TSV and lists (`.txt`, an id or a pair a line; ids alone may have blanks), also compressed. `columns`
    maps names to whether the data's ids there are texts; then `7` in a CSV is the text too. Raises DataError: it cannot
    be read, has too few columns, no rows, cells that are no ids, or ids for its first line.
    """
    files = TableFiles((str(path),), whole_lines=len(columns) == 1)
    there = files.column_names()
    chosen = list(columns) if set(columns) <= set(there) else there[: len(columns)]
    texts = [name for name, is_text in zip(chosen, columns.values(), strict=False) if is_text]
    if files.has_name_line and any(name.isdecimal() for name in chosen if name not in texts):
        line = ",".join(columns)
        raise DataError(f"begins with ids, not with the columns' names; give it a first line {line!r}", path=path)
    if len(chosen) < len(columns):
        raise DataError(f"has {len(there)} column(s), {len(columns)} are needed: {', '.join(columns)}", path=path)
    parts: list[list[pa.Array]] = [[] for _ in chosen]
    unnamed = bool(texts) and files.has_name_line and chosen != list(columns)
    for batch in files.batches(chosen, texts):
        if unnamed:
            _check_name_line(path, chosen, tuple(columns), batch)
            unnamed = False
        for place, name in enumerate(chosen):
            parts[place].append(_of_kind(batch, name, name in texts))
    if not sum(map(len, parts[0])):
        raise DataError("has no rows", path=path)
    return [pa.concat_arrays(part) for part in parts]


def _check_name_line(path: Path, names: list[str], columns: tuple[str, ...], batch: TableBatch) -> None:
    """Warn of a first line read as names; raises DataError where it has the form of the next line, digits included."""
    line, header = ",".join(names), ",".join(columns)
    for name in names if batch.data.num_rows else ():
        if "0" in _pattern(name) == _pattern(str(batch.column(name)[0])):
            looks = f"begins with {line!r}, which looks like ids, not like the columns' names"
            raise DataError(f"{looks}; give it a first line {header!r}", path=path)
    logger.warning(
        "%s: the first line, %r, is taken as the columns' names; if it holds ids, put a line %r before it",
        *(path, line, header),
    )


def _pattern(text: str) -> str:
    """Return a text with each run of digits as 0 and each run of letters as a."""
    return re.sub(r"\d+", "0", re.sub(r"[^\W\d_]+", "a", text))


def read_rows(path: Path, column: str = "row") -> Array | None:
    """Return the rows' numbers in a file of ids, int64 (n,), -1 for cells that are none; None without such a column.

    They tell nodes or graphs of one id apart, as files of predictions do. Whole decimal numbers are taken too: many
    tools write 3.0 for 3 where a column has empty cells.
    """
    files = TableFiles((str(path),))
    if column not in files.column_names():
        return None
    parts = [np.empty(0, np.int64)]
    for batch in files.batches([column], [column]):
        cells = batch.column(column)
        try:
            if pa.types.is_floating(cells.type):  # as numbers, since Arrow writes large ones as 1e+10
                values = cells.to_numpy(zero_copy_only=False).astype(np.float64)
                whole = (values >= 0) & (values < EXACT) & (values == np.floor(values))
                parts.append(np.where(whole, values, -1).astype(np.int64))
                continue
            texts = compute.replace_substring_regex(cells.cast(pa.string()), r"\.0*$", "")
            whole = compute.fill_null(compute.match_substring_regex(texts, r"^[0-9]{1,18}$"), False)
            parts.append(np.asarray(compute.if_else(whole, texts, "-1").cast(pa.int64())))
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # lists, or bytes
            return None
    return np.concatenate(parts)


@contextmanager
def naming(path: Path, column: str) -> Iterator[None]:
    """Add the file and its column to what `find_rows`, which sees ids only, refuses. Raises DataError."""
    try:
        yield
    except DataError as error:
        raise DataError(str(error), path=path, column=_called(path, column)) from None


def _called(path: Path, column: str) -> str:
    """Return what a file calls the column that `read_ids` takes for `column`, one of a pair or alone."""
    asked = [column] if column not in _PAIR else _PAIR
    there = TableFiles((str(path),)).column_names()
    name = column if set(asked) <= set(there) else there[asked.index(column)]
    return column if name.isdecimal() else name  # lists of lines have no names


def _of_kind(batch: TableBatch, column: str, texts: bool) -> pa.Array:
    cells = ids(batch, column)
    if texts or not is_text(cells.type):
        return cells.cast(pa.string()) if texts else cells
    try:
        return to_int64(cells)
    except pa.ArrowInvalid:
        row = first_not_whole(cells)
        text = cells[row].as_py()
        raise batch.error(f"{text!r} is no id here: the data's ids are whole numbers", row, column) from None


def ids_are_texts(dataset: DatasetStore, table: str) -> bool:
    """Whether the original ids in an id table (`ids/TYPE`) are texts."""
    return table in dataset and is_text(pa.type_for_alias(dataset.table(table).columns["original_id"]))


def why_unknown(code: int) -> str:
    """Return why an id has no node, by what `IdMap.find` says."""
    return "is not in the data" if code == -1 else "is left out of the graph (components.keep, snapshot.as_of)"


def check_known(path: Path, column: str, given: pa.Array, rows: Array, dataset: DatasetStore, table: str) -> None:
    """Refuse ids that the data or the graph has not (see `IdMap.find`); `table` has the data's. Raises DataError."""
    missing = np.flatnonzero(rows < 0)
    if not len(missing):
        return
    row = int(missing[0])
    more = f", and {len(missing) - 1:,} more" if len(missing) > 1 else ""
    way_out = "leave it out"
    if (rows == -1).all() and table in dataset:
        known = next(ids for _, ids in dataset.row_groups(table, ["original_id"])).column(0)[0]
        kind = "texts" if is_text(known.type) else "whole numbers"
        way_out = f"the data's ids are {kind} such as {known.as_py()!r}"
    said = f"{given[row].as_py()!r} {why_unknown(rows[row])}{more}; {way_out}"
    raise DataError(said, path=path, row=row, column=_called(path, column))


def edges_of(opened: Opened, path: Path | None) -> Array:
    """Return the labelled edges of a file, int64 (n,), by their ids, or by their rows where it has no column of them.

    Without a file, all. Raises DataError.
    """
    store, dataset, kind = opened.store, opened.dataset, opened.dataset.manifest.labelled_edges
    kept, count = store.get("edge_rows"), len(store["edge_ends"])
    if path is None:
        return np.arange(count)
    columns, table = TableFiles((str(path),)).column_names(), f"{EDGE_IDS}/{kind.name}"
    named = "edge_id" in columns
    if named and table not in dataset:
        raise DataError("the data's edges have no ids (edges.id); name them by row", path=path, column="edge_id")
    if not named and "row" not in columns and not columns[0].isdecimal():  # lists of lines have no names
        ways = "edge_id, or by row" if table in dataset else "row"
        said = f"names no edges: its columns are {listed(columns)}; give edges by {ways}, their place in the table"
        raise DataError(said, path=path)
    column = "edge_id" if named else "row"
    [ids] = read_ids(path, {column: named})
    if named:
        with naming(path, column):
            places = find_rows(dataset, table, kind.num_edges, ids, read_rows(path))
    else:
        rows = dataset.column(f"{EDGE_LABELS}/{kind.name}", "row")
        wanted = np.asarray(ids.cast(pa.int64()))
        places = np.searchsorted(rows, wanted)  # they ascend
        places[rows[np.minimum(places, len(rows) - 1)] != wanted] = -1
    if kept is not None:
        number = np.full(kind.num_edges, -2)
        number[kept] = np.arange(count)
        places = np.where(places < 0, -1, number[places])
    check_known(path, column, ids, places, dataset, table if named else "")
    return places
