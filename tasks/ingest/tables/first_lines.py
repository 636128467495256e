"""Whether a table's first line names its columns or is data, by what stands below it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as compute

from configs.errors import DataError
from tasks.ingest.tables.intake import Intake, table_files
from tasks.ingest.tables.table_configs import FilesConfig

_ROWS, _COLUMNS = 5000, 64
"""How much of a table is looked at."""
_NUMBER_OR_DATE = r"^\s*([+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[0-9]{4}-[0-9]{2}-[0-9]{2}([T ].*)?)\s*$"
_WHOLE = r"^\s*(-?[0-9]+|0[xX][0-9a-fA-F]+)\s*$"
_LEADING_ZERO = r"^\s*0[0-9xX]"
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


def id_with_leading_zero(table: FilesConfig, ids: Iterable[str]) -> str | None:
    """Return an id such as `007` or `0x1F` in the first lines of columns of numbers `ids`; None: none is."""
    lines = _first_lines(table) if table.files else None
    if lines is None:
        return None
    has_names = table_files(table).has_name_line
    names = _cells(lines) if has_names else lines.schema.names
    for column in (lines.column(names.index(name)).slice(int(has_names)) for name in ids if name in names):
        zeros = column.filter(compute.fill_null(compute.match_substring_regex(column, _LEADING_ZERO), False))
        if len(zeros) and compute.all(compute.match_substring_regex(column, _WHOLE)).as_py():
            return str(zeros[0])
    return None


def _cells(lines: pa.RecordBatch) -> list[str]:
    return [column[0].as_py() or "" for column in lines.columns]
