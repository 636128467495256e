"""Users' tables as checks want them: batches that know their rows and gather mistakes, and what was seen on the way.

What counts as an empty cell is decided here, for all formats alike: the texts in `missing_values` become nulls. Texts
in Parquet come as plain strings, however they are stored.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from configs.errors import DataError
from tasks.arrays import Array
from tasks.ingest.tables.batches import Problems, TableBatch
from tasks.ingest.tables.files import TableFiles
from tasks.ingest.tables.table_configs import FilesConfig
from tasks.readers.columns import is_text
from tasks.stage import StageContext

# What a CSV's number looks like to Arrow, which reads the clean ones.
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$|^[+-]?(nan|inf|infinity)$"
_YES, _NO = r"^(yes|y|true|t)$", r"^(no|n|false|f)$"
_MOST_ODD = 3  # cells without a number that a message shows
# Texts that often stand for an empty cell: worth a hint.
OFTEN_MISSING = frozenset({"na", "n/a", "null", "none", "nil", "-", "?", "missing", "unknown", "#n/a"})


GROUPED = r"[+-]?[0-9]{1,3}([,' ][0-9]{3})+(\.[0-9]+)?|[+-]?[0-9]{1,3}(\.[0-9]{3})*,[0-9]+|[$€£] ?[0-9].*"
"""Numbers as people write them: with signs for thousands, a comma for the point, or a currency."""


def not_a_number(cell: str, others: Sequence[str] = ()) -> str:
    """Return what to say of a cell that is no number (nor are `others`), and what to do where one nearly is."""
    said = f"{cell[:40]!r} is not a number"
    if others:
        said += f", nor {'is' if len(others) == 1 else 'are'} {', '.join(repr(other[:40]) for other in others)}"
    for one in (cell, *others):
        if one.lower() in OFTEN_MISSING:
            what = repr(one) if others else "it"
            return f'{said}; if {what} stands for an empty cell, say so: missing_values: ["", {one!r}]'
    if re.fullmatch(GROUPED, cell):
        said += "; write 1234.5, without a sign for thousands or a currency, and with a point"
    return said


def truths(texts: pa.Array) -> tuple[pa.Array, Array]:
    """Return texts with yes, y, true and t as `1`, no, n, false and f as `0`, and which these are, bool (n,).

    Small and capital letters and blanks around make no difference.
    """
    cells = compute.utf8_lower(compute.utf8_trim_whitespace(texts))
    yes, no = (compute.fill_null(compute.match_substring_regex(cells, words), False) for words in (_YES, _NO))
    return compute.if_else(yes, "1", compute.if_else(no, "0", texts)), np.asarray(compute.or_(yes, no))


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

        Raises DataError: a file that cannot be read to its end.
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
                if place < done:
                    continue
                data = batch.data
                for name in numbers:
                    at = data.schema.get_field_index(name)
                    data = data.set_column(at, name, self._as_numbers(batch, name, are_truths))
                yield self._prepared(table, replace(batch, data=data), seen)
        except DataError as error:
            hint = "; the cells before are of another kind: if these are ids, dataset.text_ids=true reads all as texts"
            raise DataError(f"{error}{hint if _is_of_kinds(error) else ''}") from first
        # The cell that stopped Arrow must not pass without a word.
        if not self.problems and not times and not any(are_truths.values()):
            raise first

    def report(self, context: StageContext) -> None:
        """All tables were read: tell hints. Raises TableError for mistakes."""
        for hint in self.hints:
            context.warn(hint)
        self.problems.raise_any()

    def find_unread(self, tables: Iterable[FilesConfig]) -> None:
        """Set `unread`, once all that is asked for was read."""
        for table in tables:
            read = self.survey.get(table.names, {})
            with contextlib.suppress(DataError):  # files that have gone or changed meanwhile: the stage says so
                names = table_files(table).column_names() if table.files else []
                if unread := [name for name in names if name not in read]:
                    self.unread[table.names] = unread

    def _as_numbers(self, batch: TableBatch, column: str, are_truths: dict[str, bool]) -> pa.Array:
        """Return texts as float64, 0 in the place of those that are gathered as no numbers.

        A column of yes and no has no number but 1 and 0 besides. `are_truths`: whether the columns' cells were yes and
        no so far.
        """
        texts = compute.utf8_trim_whitespace(batch.column(column).cast(pa.string()))
        values, is_word = truths(texts)
        is_truth = compute.is_in(values, pa.array(["0", "1", "", None]))
        only_truths = compute.all(is_truth, min_count=0).as_py()
        if is_word.any() or not only_truths:
            most = 2 * np.count_nonzero(is_word) > len(values) - values.null_count
            are_truths.setdefault(column, bool(only_truths or most))
        if are_truths.get(column):
            bad = compute.invert(is_truth)
        else:
            values, is_number = texts, compute.match_substring_regex(texts, _NUMBER, ignore_case=True)
            bad = compute.fill_null(compute.invert(is_number), False)
        gathering = replace(batch, problems=self.problems)
        odd = compute.unique(texts.filter(bad))[:_MOST_ODD].to_pylist()  # the first is that of the first row
        gathering.wrong(bad, column, "is not a number", lambda _: not_a_number(odd[0], odd[1:]))
        return compute.if_else(bad, "0", values).cast(pa.float64())

    def _prepared(self, table: FilesConfig, batch: TableBatch, seen: dict[str, ColumnSurvey]) -> TableBatch:
        arrays = []
        for name, values in zip(batch.data.schema.names, batch.data.columns, strict=True):
            arrays.append(with_nulls(values, table.missing_values))
            if name in seen:
                seen[name].add(arrays[-1])
        data = pa.RecordBatch.from_arrays(arrays, names=batch.data.schema.names)
        return replace(batch, data=data, problems=self.problems)

    def hint_at_similar_texts(
        self, table: FilesConfig, column: str, what: str, texts: pa.Array, *, letters: bool = True
    ) -> None:
        """Leave a hint where distinct texts of a column may be meant to be one; see `similar_texts`."""
        said = similar_texts(texts, what, letters=letters) if is_text(texts.type) else None
        if said is not None:
            self.hints.append(f"{table.names} (column {column}): {said}")

    def hint_at_leading_zero(self, table: FilesConfig, ids: Iterable[str]) -> bool:
        """Leave a hint, and return whether there is one, where columns of numbers `ids` have an id such as `007`."""
        lines = _first_lines(table) if table.files else None
        if lines is None:
            return False
        has_names = table_files(table).has_name_line
        names = _cells(lines) if has_names else lines.schema.names
        for column in (lines.column(names.index(name)).slice(int(has_names)) for name in ids if name in names):
            zeros = column.filter(compute.fill_null(compute.match_substring_regex(column, _LEADING_ZERO), False))
            if len(zeros) and compute.all(compute.match_substring_regex(column, _WHOLE)).as_py():
                cell = str(zeros[0])
                self.hints.append(
                    f"{table.names}: the id {cell.strip()} is read as the number {int(cell)}, and {int(cell)} is the "
                    "same id; dataset.text_ids=true tells them apart"
                )
                return True
        return False

    def adjust(self, table: FilesConfig, what: str, count: int) -> None:
        """Count rows that a policy changed."""
        if count:
            name = f"{table.names}: {what}"
            self.adjusted[name] = self.adjusted.get(name, 0) + count


_MOST_TEXTS = 10_000_000  # beyond, a hint is not worth the memory


def similar_texts(texts: pa.Array, what: str, *, letters: bool) -> str | None:
    """Say which of some distinct texts differ only by blanks around them, Unicode's form, or as `1`, `1.0` and `01` do.

    `what` says what they are; `letters`: also by upper and lower case. None where there are no such texts.
    """
    if len(texts) > _MOST_TEXTS:
        return None
    plain = compute.utf8_trim_whitespace(texts)
    whole_ascii = compute.all(compute.string_is_ascii(plain)).as_py()
    if not whole_ascii and compute.any(compute.match_substring_regex(plain, r"\p{M}")).as_py():  # accents on their own
        plain = compute.utf8_normalize(plain, form="NFC")
    plain = compute.utf8_lower(plain) if letters else plain
    plain = compute.replace_substring_regex(plain, r"^\+?(-?)0*([0-9]+?)(\.0*)?$", r"\1\2")
    if not compute.any(compute.not_equal(plain, texts)).as_py():
        return None
    codes = np.asarray(compute.dictionary_encode(plain).indices)
    order = np.argsort(codes, kind="stable")
    same = np.flatnonzero(codes[order][1:] == codes[order][:-1])
    if len(same) == 0:
        return None
    first, second = (texts[order[place]].as_py() for place in (same[0], same[0] + 1))
    count = int((np.bincount(codes)[codes] > 1).sum())
    how = "blanks, Unicode form, upper and lower case" if letters else "blanks, Unicode form"
    return (
        f"{first!r} and {second!r} are two {what} that differ only in {how} or how a number is written ({count:,} such "
        f"{what}); if they are one, write them alike"
    )


def table_files(config: FilesConfig) -> TableFiles:
    """Return the files that a section names."""
    header = config.header is not False  # auto is settled before (`first_lines`)
    table, documents = getattr(config, "table", None) or "", tuple(getattr(config, "texts", ()))
    return TableFiles(
        config.files, config.format, header, config.delimiter, config.missing_values, table=table, documents=documents
    )


def _is_of_kinds(error: DataError) -> bool:
    """Whether Arrow could not make of a cell what it made of those before."""
    return any(words in str(error.__cause__) for words in ("conversion error", "Failed to parse"))


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


_ROWS, _COLUMNS = 5000, 64
"""How much of a table is looked at."""
_NUMBER_OR_DATE = r"^\s*([+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[0-9]{4}-[0-9]{2}-[0-9]{2}([T ].*)?)\s*$"
_WHOLE = r"^\s*(-?[0-9]+|0[xX][0-9a-fA-F]+)\s*$"
_LEADING_ZERO = r"^\s*0[0-9]"
_SHOWN = 60

Table = TypeVar("Table", bound=FilesConfig)


def _first_lines(table: FilesConfig) -> pa.RecordBatch | None:
    """Return a table's first lines as texts, the very first included; None for Parquet and what cannot be read.

    What is wrong with a file is said when it is read for good.
    """
    with contextlib.suppress(DataError):
        return table_files(table).head(_ROWS, _COLUMNS)
    return None


def _is_data(lines: pa.RecordBatch) -> bool:
    """Whether each cell of the first line is a number or date over some such, or stands below it again."""
    columns = [column for column in lines.columns if column[0].as_py()]
    numbers = [_is_number_over_numbers(column) for column in columns]
    # Columns are called 2019, and hardly ever 0.73 or 2019-05-01.
    if any(not column[0].as_py().strip().isdigit() for column, number in zip(columns, numbers, strict=True) if number):
        return True
    again = [bool(compute.any(compute.equal(column.slice(1), column[0])).as_py()) for column in columns]
    return bool(columns) and all(number or seen for number, seen in zip(numbers, again, strict=True))


def _is_number_over_numbers(column: pa.Array) -> bool:
    like = compute.match_substring_regex(column, _NUMBER_OR_DATE)
    below = like.slice(1).filter(compute.fill_null(compute.not_equal(column.slice(1), ""), False))
    return bool(like[0].as_py()) and compute.any(below).as_py() is not False


def with_header_found(table: Table, option: str, intake: Intake) -> Table:
    """Return a table whose `header: auto` is settled, and leave a note where the first line is data.

    `option` is its section's name. Where it is unclear, the line is taken as names, as it is in most files.
    """
    if table.header != "auto" or not table_files(table).has_name_line:
        return table
    lines = _first_lines(table)
    if lines is None:
        return table
    is_data = _is_data(lines)
    if is_data:
        shown = ",".join(_cells(lines))[:_SHOWN]
        intake.notes.append(
            f"{table.names}: the first line, {shown!r}, looks like data, and is read as data; if it names the columns: "
            f"{option}.header=true"
        )
    return table.model_copy(update={"header": not is_data})


def _cells(lines: pa.RecordBatch) -> list[str]:
    return [column[0].as_py() or "" for column in lines.columns]
