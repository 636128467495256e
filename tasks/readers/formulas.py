"""Texts of CSV files that a spreadsheet would run as formulas: written behind an apostrophe, read without it.

Whoever opens a CSV in a spreadsheet runs the cells that begin with `= + - @`, a tab or a line end (CWE-1236). Every
text that begins so, with any apostrophes before, is written with one more, unless it is a plain number; the reader
takes one away from such a text. So `=1+1` is written `'=1+1`, `'=1+1` is `''=1+1`, `-5` stays, and
all come back as they were.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as compute

from tasks.readers.columns import is_text

_STARTS = "[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]"  # the last four: wide forms, which Japanese spreadsheets take too
_FORMULA = f"^('*{_STARTS})"
_GUARDED = f"^'('*{_STARTS})"
_NUMBER = r"(?i)^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+|inf(inity)?)(e[+-]?[0-9]+)?$"


def guarded(table: Any) -> Any:
    """Return a table or batch to be written as CSV, with an apostrophe before what would be a formula, in names too."""
    for place, field in enumerate(table.schema):
        if is_text(field.type):
            texts = table.column(place).cast(pa.string())
            safe = compute.replace_substring_regex(texts, _FORMULA, "'\\1")
            is_number = compute.match_substring_regex(texts, _NUMBER)
            table = table.set_column(place, field.name, compute.if_else(is_number, texts, safe))
    return table.rename_columns([re.sub(_FORMULA, r"'\1", name) for name in table.schema.names])


def unguarded(cells: pa.Array) -> pa.Array:
    """Return a CSV's cells as they were before `guarded`; numbers are left alone."""
    if not is_text(cells.type) or not compute.any(compute.starts_with(cells, "'")).as_py():
        return cells
    return compute.replace_substring_regex(cells, _GUARDED, "\\1")


def unguarded_name(name: str) -> str:
    """Return a column's name as it was before `guarded`."""
    return re.sub(_GUARDED, r"\1", name)
