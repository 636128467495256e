"""Suggest the known word nearest to a misspelt one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from itertools import islice

# Looking for a near word takes a time that grows with both: names in users' files can be many and long.
_MAX_WORDS, _MAX_CHARS = 2000, 200


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ` (did you mean 'x'?)`, or an empty string where nothing is near."""
    if len(word) > _MAX_CHARS:
        return ""
    words = [name for name in islice(known, _MAX_WORDS) if len(name) <= _MAX_CHARS]
    near = difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    return f" (did you mean {near[0]!r}?)" if near else ""


def listed(names: Sequence[str], most: int = 30) -> str:
    """Return names with commas between, the first ones where there are many."""
    shown = ", ".join(name if len(name) <= _MAX_CHARS else f"{name[:_MAX_CHARS]}..." for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"
