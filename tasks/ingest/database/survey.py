"""What the columns of a table hold, found by reading them once: numbers, categories, times, texts."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from tasks.arrays import Array
from tasks.ingest.database.table_configs import Kind
from tasks.ingest.ids.id_index import IdIndex
from tasks.ingest.tables.batches import TableBatch
from tasks.ingest.tables.columns import is_list
from tasks.ingest.tables.intake import GROUPED, OFTEN_MISSING
from tasks.readers.columns import is_text

_PARTS = {
    "%d": r"(0?[1-9]|[12][0-9]|3[01])",
    "%m": r"(0?[1-9]|1[0-2])",
    "%Y": r"(19|20)[0-9]{2}",
    "%y": r"[0-9]{2}",
    "%H": r"([01]?[0-9]|2[0-3])",
    "%I": r"(0?[1-9]|1[0-2])",
    "%M": r"[0-5][0-9]",
    "%S": r"[0-5][0-9]",
    "%p": r"[AaPp][Mm]",
    "%b": r"([Jj]an|[Ff]eb|[Mm]ar|[Aa]pr|[Mm]ay|[Jj]un|[Jj]ul|[Aa]ug|[Ss]ep|[Oo]ct|[Nn]ov|[Dd]ec)",
    "%B": r"(January|February|March|April|May|June|July|August|September|October|November|December)",
}
_DAYS = (
    *(order.replace("-", mark) for mark in "/.-" for order in ("%d-%m-%Y", "%m-%d-%Y", "%d-%m-%y", "%m-%d-%y")),
    *(f"%Y{mark}%m{mark}%d" for mark in "/."),
    *("%d-%b-%Y", "%d-%b-%y", "%d %b %Y", "%b %d, %Y", "%d %B %Y", "%B %d, %Y"),
)
_HOURS = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")


_PATTERNS = {
    form: rf"^\s*{''.join(_PARTS.get(piece) or re.escape(piece) for piece in re.split('(%[A-Za-z])', form))}\s*$"
    for form in map("".join, itertools.product(_DAYS, _HOURS))
}
_PATTERNS["%Y%m%d"] = r"^\s*(19|20)[0-9]{2}(0[1-9]|1[0-2])(0[1-9]|[12][0-9]|3[01])\s*$"
DATE_FORMS = tuple(_PATTERNS)
"""All forms that are known, as of Python's strptime; the day stands before the month where both may be meant."""


def fitting_forms(cells: pa.Array, forms: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of `forms` in which all cells, texts or whole numbers without empty ones, are written."""
    if not forms or not len(cells):
        return forms
    first = str(cells[0].as_py())
    near = [form for form in forms if re.match(_PATTERNS[form], first)]
    if not near:
        return ()
    texts = cells.cast(pa.string())
    return tuple(form for form in near if compute.all(compute.match_substring_regex(texts, _PATTERNS[form])).as_py())


FEW = 20
"""Whole numbers of so many different values or fewer are categories if each stands twice on average, texts if any does.
"""
EXPLICIT = 10
"""How many times more categories than `max_categories` a column may have that is named as one."""
_WORDS = 3
_NUMBER = r"^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$"
_TIME = r"^\s*\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}.*)?$"
_ROW_NUMBERS = r"|Unnamed: \d+|__index_level_\d+__"
"""What pandas calls an index that nobody named, in CSV, read from there again, and in Parquet."""
Form = Literal["whole", "decimal", "text", "numeric text", "date text", "date", "bool", "list", "other"]


@dataclass
class Profile:
    """A column, as far as it was read."""

    forms: set[Form] = field(default_factory=set)
    """Of all rows; what else is here is of those that may decide."""
    rows: int = 0
    empty: int = 0
    num_later: int = 0
    """Rows that decide nothing."""
    gaps: bool = False
    """Whether any row has an empty cell."""
    broken: str = ""
    """What of these cells no column of numbers may hold."""
    most: int = 10_000
    """Different values beyond are not counted."""
    values: IdIndex | None = field(default_factory=IdIndex)
    """The different values of texts and whole numbers, as texts; None: more than `most`, or of another form."""
    date_forms: tuple[str, ...] = DATE_FORMS
    """Forms of strptime, none of them ISO 8601, in which all cells may be written."""
    words: set[str] | None = field(default_factory=set)
    """Cells of texts that are no numbers, up to three different ones; None: more."""
    num_grouped: int = 0
    """Cells of numbers with signs for thousands and the like, which are not among `words`."""
    low: float = np.inf
    high: float = -np.inf

    @property
    def num_values(self) -> int | None:
        """How many different values there are; None: many."""
        return None if self.values is None else self.values.count

    @property
    def date_form(self) -> str | None:
        """The form of strptime in which all cells are written, if they are dates that are no ISO 8601; else None."""
        return self.date_forms[0] if self.date_forms and self.rows > self.empty else None

    @property
    def missing_words(self) -> tuple[str, ...]:
        """The cells that keep texts from being numbers, if they are such as often stand for an empty one, else none."""
        words = self.words or ()
        whole = not self.num_grouped and all(word.lower() in OFTEN_MISSING for word in words)
        return tuple(sorted(words)) if whole and (self.num_values is None or self.num_values > len(words)) else ()

    def add(self, batch: TableBatch, column: str, decide: Array | None = None) -> None:
        """Look at more rows; `decide`, bool (n,): those that may say what the column is, None: all."""
        whole = batch.column(column)
        there = ~np.asarray(compute.is_null(whole, nan_is_null=True))
        self.gaps |= not there.all()
        decide = np.ones(len(there), np.bool_) if decide is None else decide
        num_later = int(np.count_nonzero(~decide))
        if num_later:
            self.num_later += num_later
            later = whole.filter(pa.array(~decide & there))
            self.forms |= {_form(later)} if len(later) else set()
        self.rows += len(whole) - num_later
        cells = whole if there.all() and not num_later else whole.filter(pa.array(decide & there))
        self.empty += len(whole) - num_later - len(cells)
        if not len(cells):
            return
        form = _form(cells)
        self.forms.add(form)
        dated = form in ("whole", "text", "numeric text")
        self.date_forms = fitting_forms(cells, self.date_forms) if dated else ()
        if form == "text" and self.words is not None:
            self._look_at_words(cells)
        if form == "list":
            lengths = compute.min_max(compute.list_value_length(cells))
            self.low, self.high = min(self.low, lengths["min"].as_py()), max(self.high, lengths["max"].as_py())
            if self.low != self.high:
                self.broken = f"has lists of {self.low:,.0f} to {self.high:,.0f} numbers"
        if form in ("whole", "decimal", "bool"):
            ends = compute.min_max(cells.cast(pa.float64(), safe=False))
            self.low, self.high = min(self.low, ends["min"].as_py()), max(self.high, ends["max"].as_py())
            if np.isinf(self.low) or np.isinf(self.high):
                self.broken = "has infinite numbers"
        if self.values is not None and form in ("whole", "text", "numeric text", "date text"):
            self.values.add(compute.unique(cells).cast(pa.string()))
            self.values = self.values if self.values.count <= self.most else None
        else:
            self.values = None

    def _look_at_words(self, cells: pa.Array) -> None:
        """Take up what keeps texts from being numbers."""
        texts = compute.utf8_trim_whitespace(cells.cast(pa.string()))
        texts = texts.filter(compute.invert(compute.match_substring_regex(texts, _NUMBER)))
        grouped = compute.match_substring_regex(texts, f"^({GROUPED})$")
        self.num_grouped += int(np.count_nonzero(grouped))
        assert self.words is not None
        words = self.words | set(compute.unique(texts.filter(compute.invert(grouped))).slice(0, _WORDS + 1).to_pylist())
        self.words = words if len(words) <= _WORDS else None

    @property
    def is_constant(self) -> bool:
        """Whether all rows have one value, or none has any."""
        one_number = self.low == self.high and self.forms <= {"whole", "decimal", "bool"}
        return self.empty == self.rows or (not self.empty and (self.num_values == 1 or one_number))


def _form(cells: pa.Array) -> Form:
    kind = cells.type
    if pa.types.is_boolean(kind):
        return "bool"
    if pa.types.is_integer(kind):
        return "whole"
    if pa.types.is_floating(kind):
        return "decimal"
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return "date"
    if is_list(kind):
        values = kind.value_type
        return "list" if pa.types.is_integer(values) or pa.types.is_floating(values) else "other"
    if is_text(kind):
        if compute.all(compute.match_substring_regex(cells, _NUMBER)).as_py():
            return "numeric text"
        return "date text" if compute.all(compute.match_substring_regex(cells, _TIME)).as_py() else "text"
    return "other"


@dataclass(frozen=True)
class Verdict:
    """What a column is taken as, and why it is not read where it is not."""

    kind: Kind | Literal["list"]
    why: str = ""


def judge(column: str, profile: Profile, *, is_csv: bool, max_categories: int, has_own_time: bool) -> Verdict:
    """Return what a column that no recipe speaks of is taken as.

    `is_csv`: its numbers may have been read as texts. `has_own_time`: whether the table has a time, from which days can
    be counted.
    """
    forms, values = profile.forms, profile.num_values
    if profile.is_constant:
        where = " in rows older than the first moment that validates" if profile.num_later else ""
        return Verdict("ignore", f"is empty{where}" if profile.empty == profile.rows else f"has one value{where}")
    if re.fullmatch(_ROW_NUMBERS, column) and forms <= {"whole", "numeric text"}:
        return Verdict("ignore", "is called as pandas calls row numbers, which tell the order of the rows")
    if forms <= {"date", "date text"}:
        if has_own_time:
            return Verdict("time")
        return Verdict("ignore", "holds times, and the table has no time of its own that they could be before")
    if forms == {"list"}:
        return Verdict("list")
    if forms == {"whole"} and values is not None and values <= FEW and 2 * values <= profile.rows - profile.empty:
        return Verdict("category")
    if forms <= {"whole", "decimal", "bool"} or (is_csv and forms <= {"whole", "decimal", "bool", "numeric text"}):
        return Verdict("number")
    if forms == {"text"} and profile.date_form:
        return Verdict("ignore", f"holds dates written as {profile.date_form}")
    if forms <= {"whole", "text", "numeric text", "date text"}:
        return _of_texts(profile, max_categories)
    return Verdict("ignore", f"holds {' and '.join(sorted(forms))}")


def _of_texts(profile: Profile, max_categories: int) -> Verdict:
    values, there = profile.num_values, profile.rows - profile.empty
    repeated = values is not None and (2 * values <= there or (values <= FEW and values < there))
    if values is not None and values <= max_categories and repeated:
        return Verdict("category")
    count = f"{values:,}" if values is not None else f"more than {profile.most:,}"
    numbers = "; store numbers as such" if profile.forms == {"numeric text"} else ""
    if not numbers and profile.num_grouped and profile.words is not None:
        return Verdict("ignore", "holds numbers with signs for thousands, a decimal comma or a currency; write 1234.5")
    way_out = numbers or "; `text` reads its words"
    return Verdict("ignore", f"is text of {count} different values in {there:,} rows{way_out}")


def category_texts(values: Any) -> pa.Array:
    """Return categories as texts, the empty one for an empty cell."""
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    return compute.fill_null(values.cast(pa.string()), "")
