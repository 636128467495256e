"""Whether a table's first line names its columns or is data, by what stands below it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from configs.errors import DataError
from tasks.arrays import Array
from tasks.ingest.tables.intake import Intake, table_files
from tasks.ingest.tables.table_configs import FilesConfig

_ROWS, _COLUMNS = 5000, 64
"""How much of a table is looked at."""
_NUMBER = r"^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$"
_DATE = r"^\s*[0-9]{4}-[0-9]{2}-[0-9]{2}([T ].*)?$"
_WHOLE = r"^\s*-?[0-9]+\s*$"
_LEADING_ZERO = r"^\s*0[0-9]"
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_USUAL_WORDS = """
    src source sources dst dest destination target targets from to start end head tail parent child user users
    item items node nodes vertex id ids idx index key name sender receiver follower followee citing cited subject
    object predicate relation rel edge type label class weight weights w count score time timestamp ts date year
    day u v
"""
_USUAL = frozenset(_USUAL_WORDS.split())
_LAST_WORDS = frozenset({"id", "ids", "idx", "index", "key", "name", "type"})
_MOST_WORDS = 3
_SHOWN = 60

Table = TypeVar("Table", bound=FilesConfig)
Verdict = Literal["names", "data", "unclear"]


class _Cell(NamedTuple):
    """What a cell of the first line is, going by the cells below it."""

    usual: bool  # a usual name of a column that does not stand below
    over_numbers: bool  # a text over numbers
    number: bool  # a number or date over such
    whole: bool  # nothing but digits
    seen: bool  # it stands below too, and is no usual name


def first_lines(table: FilesConfig) -> pa.RecordBatch | None:
    """Return a table's first lines as texts, the very first included; None for Parquet and what cannot be read.

    What is wrong with a file is said when it is read for good.
    """
    with contextlib.suppress(DataError):
        return table_files(table).head(_ROWS, _COLUMNS)
    return None


def judge(lines: pa.RecordBatch) -> Verdict:
    """Return what the first line is."""
    cells = [_look_at(column) for column in lines.columns if column[0].as_py()]
    if not cells or any(cell.usual for cell in cells):
        return "names"
    if all(cell.number or cell.seen for cell in cells):
        return "data"
    if any(cell.over_numbers for cell in cells):
        return "unclear" if any(cell.number for cell in cells) else "names"
    # Columns are called 2019, and hardly ever 0.73 or 2019-05-01.
    return "data" if any(cell.number and not cell.whole for cell in cells) else "unclear"


def _look_at(column: pa.Array) -> _Cell:
    text, below = column[0].as_py().strip(), column.slice(1)
    below = below.filter(compute.fill_null(compute.not_equal(below, ""), False))
    like, is_number = _like_numbers(below), bool(_like_numbers(column.slice(0, 1))[0])
    stands_below = bool(compute.any(compute.equal(below, column[0])).as_py())
    usual = _is_usual(text)
    return _Cell(
        usual=usual and not stands_below,
        over_numbers=not is_number and len(below) > 0 and bool(like.all()),
        number=is_number and bool(len(below) == 0 or like.any()),
        whole=text.isdigit(),
        seen=stands_below and not usual,
    )


def _like_numbers(texts: pa.Array) -> Array:
    are_like = compute.or_(compute.match_substring_regex(texts, _NUMBER), compute.match_substring_regex(texts, _DATE))
    return np.asarray(compute.fill_null(are_like, False), np.bool_)


def _is_usual(text: str) -> bool:
    """Whether columns are often called so; `user_17` is rather a user."""
    words = [word.lower() for word in _WORD.findall(text)]
    if not words or len(words) > _MOST_WORDS or any(letter.isdigit() for letter in text):
        return False
    return words[-1] in _LAST_WORDS or all(word in _USUAL for word in words)


def with_header_found(table: Table, option: str, intake: Intake) -> Table:
    """Return a table whose header is settled; `option` is its section's name.

    Where it is unclear, the line is taken as names, as it is in most files, with a warning.
    """
    lines = None if table.header is True else first_lines(table)
    if lines is None:
        return table
    if not table_files(table).has_name_line:
        if judge(lines) == "names":
            words = "reads like names, and is taken as data"
            way_out = f"{option}.header=true" if table.header is False else "begin it with #"
            intake.hints.append(f"{_first(table, lines, words)}; if it names the columns: {way_out}")
        return table
    verdict = judge(lines)
    if verdict == "data":
        places = [str(place) for place in range(lines.num_columns)]
        maybe = " (or names that pandas gave)" if _cells(lines) == places else ""
        words = f"looks like data{maybe}, and is read as data"
        intake.notes.append(f"{_first(table, lines, words)}; if it names the columns: {option}.header=true")
    elif verdict == "unclear":
        words = "may be names or data, and is taken as the columns' names"
        intake.hints.append(f"{_first(table, lines, words)}; if it is data: {option}.header=false")
    return table.model_copy(update={"header": verdict != "data"})


def hint_at_data_in_header(table: FilesConfig, option: str, intake: Intake) -> None:
    """Leave a hint where columns go by their places and the line of their names looks like data."""
    lines = first_lines(table) if table_files(table).has_name_line else None
    if lines is not None and judge(lines) == "data":
        words = "looks like data, and is taken as the columns' names"
        intake.hints.append(f"{_first(table, lines, words)}; if it is data: {option}.header=false")


def id_with_leading_zero(table: FilesConfig, ids: Iterable[str]) -> str | None:
    """Return an id such as `007` of the first lines, in a column of `ids` that is read as numbers; None: none is."""
    lines = first_lines(table) if table.files else None
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


def _first(table: FilesConfig, lines: pa.RecordBatch, what: str) -> str:
    return f"{table.names}: the first line, {','.join(_cells(lines))[:_SHOWN]!r}, {what}"
