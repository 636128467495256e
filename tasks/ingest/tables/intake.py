"""Users' tables as checks want them: batches that know their rows and gather mistakes, and what was seen on the way.

What counts as an empty cell is decided here, for all formats alike: the texts in `missing_values` become nulls. Texts
in Parquet come as plain strings, however they are stored.
"""

from __future__ import annotations

import contextlib
import glob
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from configs.errors import DataError
from tasks.arrays import Array
from tasks.ingest.tables.files import Batch, TableFiles
from tasks.ingest.tables.hints import similar_texts
from tasks.ingest.tables.problems import Problems
from tasks.ingest.tables.table_configs import FilesConfig
from tasks.readers.columns import is_text

# What a CSV's number looks like to Arrow, which reads the clean ones.
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$|^[+-]?(nan|inf|infinity)$"
_YES, _NO = r"^(yes|y|true|t)$", r"^(no|n|false|f)$"
# Texts that often stand for an empty cell: worth a hint.
OFTEN_MISSING = frozenset({"na", "n/a", "null", "none", "nil", "-", "?", "missing", "unknown", "#n/a"})


GROUPED = r"[+-]?[0-9]{1,3}([,' ][0-9]{3})+(\.[0-9]+)?|[+-]?[0-9]{1,3}(\.[0-9]{3})*,[0-9]+|[$€£] ?[0-9].*"
"""Numbers as people write them: with signs for thousands, a comma for the point, or a currency."""


def not_a_number(cell: str) -> str:
    """Return what to say of a cell that is no number, and what to do where it nearly is."""
    hint = ""
    if cell.lower() in OFTEN_MISSING:
        hint = f'; if it stands for an empty cell, say so: missing_values: ["", {cell!r}]'
    elif re.fullmatch(GROUPED, cell):
        hint = "; write 1234.5, without a sign for thousands or a currency, and with a point"
    return f"{cell[:40]!r} is not a number{hint}"


def truths(texts: pa.Array) -> tuple[pa.Array, Array]:
    """Return texts with yes, y, true and t as `1`, no, n, false and f as `0`, and which these are, bool (n,).

    Small and capital letters and blanks around make no difference.
    """
    cells = compute.utf8_lower(compute.utf8_trim_whitespace(texts))
    yes, no = (compute.fill_null(compute.match_substring_regex(cells, words), False) for words in (_YES, _NO))
    found = compute.if_else(yes, "1", compute.if_else(no, "0", texts))
    return found, np.asarray(compute.or_(yes, no))


@dataclass(frozen=True)
class TableBatch(Batch):
    """Some rows of a table, and where their mistakes go."""

    problems: Problems = field(default_factory=Problems)
    kept: Array | None = None
    """Which of the rows that were read are left, bool; None: all."""
    read_again: Callable[[str], pa.Array | None] = field(default=lambda _: None, repr=False)
    way_out: str = ""
    """What one may do about a mistake in a column, with `{column}` in the place of its name."""

    def as_written(self, column: str) -> pa.Array | None:
        """Read a CSV's cells once more as the texts that they are, for a message; None for other formats."""
        texts = self.read_again(column)
        return texts if texts is None or self.kept is None else texts.filter(pa.array(self.kept))

    @property
    def num_rows(self) -> int:
        """Rows that are left."""
        return int(self.data.num_rows)

    @property
    def num_read(self) -> int:
        """Rows that were read."""
        return self.num_rows if self.kept is None else len(self.kept)

    def keep(self, chosen: Array) -> TableBatch:
        """Return the batch with those rows (bool) only; rows keep their numbers in messages."""
        if chosen.all():
            return self
        kept = np.ones(self.num_rows, np.bool_) if self.kept is None else self.kept.copy()
        kept[kept] = chosen
        return replace(self, data=self.data.filter(pa.array(chosen)), kept=kept)

    def error(self, message: str, row: int | None, column: object) -> DataError:
        """Return an error at a row of this batch; None: it is the whole column."""
        if row is not None:
            row = self.first_row + (row if self.kept is None else int(np.flatnonzero(self.kept)[row]))
        way_out = self.way_out.replace("{column}", str(column))
        return DataError(message + way_out, path=self.path, row=row, column=column)

    def wrong(self, rows: Any, column: object, kind: str, message: Callable[[int], str] | str = "") -> Array | None:
        """Gather the rows (bool, or an Arrow array of it) that are wrong; return them, None where there is none.

        `kind` says what is wrong for all of them; `message` the first one's words, by its row, where they say more.
        """
        found = np.asarray(rows)
        count = int(np.count_nonzero(found))
        if count == 0:
            return None
        if not self.problems.known(self.path, column, kind, count):
            row = int(np.flatnonzero(found)[0])
            words = message(row) if callable(message) else message
            self.problems.add(self.path, column, kind, self.error(words or kind, row, column), count)
        return found

    def wrong_column(self, column: object, message: str) -> None:
        """Gather a mistake of the column as a whole."""
        self.problems.add(self.path, column, message, self.error(message, None, column), 0)


@dataclass
class ColumnSurvey:
    """What was seen in a column."""

    kinds: set[str] = field(default_factory=set)
    """As it is stored, or as a CSV's cells were understood."""
    rows: int = 0
    missing: int = 0
    """Empty cells."""

    def add(self, values: pa.Array) -> None:
        """Look at more rows."""
        self.kinds.add(str(values.type))
        self.rows += len(values)
        self.missing += values.null_count

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {"kind": " or ".join(sorted(self.kinds)), "rows": self.rows, "missing": self.missing}


class Intake:
    """Reads the tables of one data set: gathers their mistakes, remembers what stands in them."""

    def __init__(self) -> None:
        self.problems = Problems()
        self.survey: dict[str, dict[str, ColumnSurvey]] = {}
        """Table (its files as the recipe names them) to column to what was seen."""
        self.adjusted: dict[str, int] = {}
        """What policies did to which table, to the number of rows."""
        self.hints: list[str] = []
        """What is no mistake, but may not be meant."""
        self.notes: list[str] = []
        """What was found out by itself and may be said otherwise."""
        self.unread: dict[str, list[str]] = {}
        """Table to the columns that the recipe does not name."""

    def batches(
        self,
        table: FilesConfig,
        columns: Sequence[str],
        texts: Sequence[str] = (),
        numbers: Sequence[str] = (),
        times: Sequence[str] = (),
        *,
        whole_lines: bool = False,
    ) -> Iterator[TableBatch]:
        """Yield a table's batches; see `TableFiles.batches`. Cells of `numbers` that are none are gathered.

        `times` are columns that the caller takes in any form, as `TimeReader` does: in a CSV whose cells change their
        form (days, then time stamps) they come as texts from there on.

        Raises:
            DataError: a file that cannot be read to its end.
        """
        files, done = replace(table_files(table), whole_lines=whole_lines), 0
        seen = {name: ColumnSurvey() for name in dict.fromkeys(columns)}
        self.survey.setdefault(table.names, {}).update(seen)
        try:
            for batch in files.batches(columns, texts, numbers):
                yield self._prepared(table, batch, seen)
                done += 1
            return
        except DataError as error:
            if not _is_of_kinds(error) and str(error.column) not in times:
                raise
            first = error
        # Some cell is no number, or is yes or no. Read on, numbers as texts: each such cell is named. Batches have the
        # same rows both times, for they end where blocks of the file do; those that were good have been given out.
        are_truths = dict.fromkeys(numbers, False) if done else {}
        try:
            for place, batch in enumerate(files.batches(columns, (*texts, *numbers, *times))):
                if place >= done:
                    yield self._prepared(table, self._cell_by_cell(batch, numbers, are_truths), seen)
        except DataError as error:
            hint = "; the cells before are of another kind: if these are ids, dataset.text_ids=true reads all as texts"
            raise DataError(f"{error}{hint if _is_of_kinds(error) else ''}") from first
        if (
            not self.problems and not times and not any(are_truths.values())
        ):  # the cell that stopped Arrow must not pass without a word
            raise first

    def find_unread(self, tables: Iterable[FilesConfig]) -> None:
        """Set `unread`, once all that is asked for was read."""
        for table in tables:
            read = self.survey.get(table.names, {})
            with contextlib.suppress(DataError):  # files that have gone or changed meanwhile: the stage says so
                names = table_files(table).column_names() if table.files else []
                if unread := [name for name in names if name not in read]:
                    self.unread[table.names] = unread

    def _cell_by_cell(self, batch: Batch, numbers: Sequence[str], are_truths: dict[str, bool]) -> Batch:
        data = batch.data
        for name in numbers:
            data = data.set_column(data.schema.get_field_index(name), name, self._as_numbers(batch, name, are_truths))
        return replace(batch, data=data)

    def _as_numbers(self, batch: Batch, column: str, are_truths: dict[str, bool]) -> pa.Array:
        """Return texts as numbers. A column of yes and no has no number but 1 and 0 besides: else such a cell is wrong.

        `are_truths`: whether the columns' cells were yes and no so far.
        """
        texts = compute.utf8_trim_whitespace(batch.column(column).cast(pa.string()))
        replaced, found = truths(texts)
        is_truth = compute.is_in(replaced, pa.array(["0", "1", "", None]))
        only = compute.all(is_truth, min_count=0).as_py()
        if found.any() or not only:
            are_truths.setdefault(column, bool(only))
        if are_truths.get(column):
            return self._without_wrong(batch, column, texts, replaced, compute.invert(is_truth))
        bad = compute.fill_null(compute.invert(compute.match_substring_regex(texts, _NUMBER, ignore_case=True)), False)
        return self._without_wrong(batch, column, texts, texts, bad)

    def _without_wrong(self, batch: Batch, column: str, texts: pa.Array, values: pa.Array, bad: pa.Array) -> pa.Array:
        """Return texts of numbers as float64, 0 in the place of those that are gathered as none."""

        def message(row: int) -> str:
            return not_a_number(texts[row].as_py())

        TableBatch(batch.path, batch.first_row, batch.data, self.problems).wrong(
            bad, column, "is not a number", message
        )
        return compute.if_else(bad, "0", values).cast(pa.float64())

    def _prepared(self, table: FilesConfig, batch: Batch, seen: dict[str, ColumnSurvey]) -> TableBatch:
        arrays = []
        for name, values in zip(batch.data.schema.names, batch.data.columns, strict=True):
            arrays.append(with_nulls(values, table.missing_values))
            if name in seen:
                seen[name].add(arrays[-1])
        data = pa.RecordBatch.from_arrays(arrays, names=batch.data.schema.names)
        again = partial(self._texts, table, batch.path, batch.first_row, batch.data.num_rows)
        return TableBatch(batch.path, batch.first_row, data, self.problems, read_again=again)

    @staticmethod
    def _texts(table: FilesConfig, path: Path, first_row: int, count: int, column: str) -> pa.Array | None:
        parts = []
        for batch in table_files(replace_files(table, path)).batches([column], [column]):
            start, stop = max(first_row - batch.first_row, 0), first_row + count - batch.first_row
            if start < batch.data.num_rows and stop > 0:
                parts.append(batch.column(column).slice(start, stop - start))
            if stop <= batch.data.num_rows:
                break
        whole = pa.concat_arrays(parts)
        return whole if is_text(whole.type) else None

    def hint_at_similar_texts(
        self, table: FilesConfig, column: str, what: str, texts: pa.Array, *, letters: bool = True
    ) -> None:
        """Leave a hint where distinct texts of a column may be meant to be one; see `similar_texts`."""
        said = similar_texts(texts, what, letters=letters) if is_text(texts.type) else None
        if said is not None:
            self.hints.append(f"{table.names} (column {column}): {said}")

    def adjust(self, table: FilesConfig, what: str, count: int) -> None:
        """Count rows that a policy changed."""
        if count:
            name = f"{table.names}: {what}"
            self.adjusted[name] = self.adjusted.get(name, 0) + count


def as_number(files: str, cell: str) -> str:
    """Say that an id with zeros in front is read as a number."""
    number = int(cell)
    return (
        f"{files}: the id {cell.strip()} is read as the number {number}, and {number} is the same id; "
        "dataset.text_ids=true tells them apart"
    )


def table_files(config: FilesConfig) -> TableFiles:
    """Return the files that a section names."""
    header = config.header is not False  # auto is settled before (`first_lines`)
    table = getattr(config, "table", None) or ""
    return TableFiles(config.files, config.format, header, config.delimiter, config.missing_values, table=table)


def _is_of_kinds(error: DataError) -> bool:
    """Whether Arrow could not make of a cell what it made of those before."""
    return any(words in str(error.__cause__) for words in ("conversion error", "Failed to parse"))


def replace_files(table: FilesConfig, path: Path) -> FilesConfig:
    """Return the section with one file in place of all."""
    return table.model_copy(update={"files": (glob.escape(str(path)),)})


def with_nulls(values: pa.Array, missing: Sequence[str]) -> pa.Array:
    """Return a column with nulls in place of the texts in `missing`, and of the numbers that these write."""
    numeric = pa.types.is_integer(values.type) or pa.types.is_floating(values.type)
    if not numeric and not is_text(values.type):
        return values
    for text in missing:
        try:
            empty = compute.equal(values, pa.scalar(text).cast(values.type))
        except pa.ArrowInvalid:  # a word among numbers
            continue
        if compute.any(empty).as_py():
            values = compute.if_else(empty, None, values)
    return values


def plain_batch(path: Path, first_row: int, data: pa.RecordBatch) -> TableBatch:
    """Return a batch of its own, whose mistakes nobody else gathers."""
    return TableBatch(path, first_row, data, Problems())
