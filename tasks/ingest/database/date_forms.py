"""Dates that are no ISO 8601, known by how all cells of a column are written: 31/12/2023, Dec 31, 2023, 20231231."""

from __future__ import annotations

import itertools
import re

import pyarrow as pa
import pyarrow.compute as compute

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
