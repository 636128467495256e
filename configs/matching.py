"""Suggest the known word nearest to a misspelt one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

# Looking for a near word takes a time that grows with both: names in users' files can be many and long.
_MAX_WORDS, _MAX_CHARS = 2000, 200
_MISSPELT_IN = 20
"""A name may be another one's misspelling where that is so many times as frequent."""
_SHORT, _MISSPELT_IN_OF_SHORT = 3, 100
"""The same of three letters, where one is another or two are swapped: `cat` and `car` are rather two words."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ` (did you mean 'x'?)`, or an empty string where nothing is near."""
    if len(word) > _MAX_CHARS:
        return ""
    words = [name for name in islice(known, _MAX_WORDS) if len(name) <= _MAX_CHARS]
    near = difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    return f" (did you mean {near[0]!r}?)" if near else ""


_FIRST_SIGN = "\u0800"
"""From here on a sign says more than a letter does: three are not short."""


def misspelt(counts: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return names that are hardly there, each with the common one that it looks like: `fruad` and `fraud`.

    `counts`: of rows, by name. Of names of three letters one may differ, where the other is 100 times as frequent.
    Names with digits are codes, which look alike by design.
    """
    by_count = sorted(counts, key=lambda name: -counts[name])[:_MAX_WORDS]
    words = [name for name in by_count if len(name) <= _MAX_CHARS and not any(map(str.isdigit, name))]
    folded = {name.casefold().strip(): name for name in reversed(words)}
    found = []
    for name in words:
        plain = name.casefold().strip()
        others = [other for other, whole in folded.items() if counts[whole] >= _MISSPELT_IN * max(1, counts[name])]
        near = [plain] if plain in others else difflib.get_close_matches(plain, others, n=1, cutoff=0.75)
        if len(plain) == _SHORT and max(plain) < _FIRST_SIGN and not near:
            least = _MISSPELT_IN_OF_SHORT * max(1, counts[name])
            near = [other for other in others if counts[folded[other]] >= least and _is_near(plain, other)][:1]
        found += [(name, folded[near[0]])] if near else []
    return found


def _is_near(name: str, other: str) -> bool:
    """Whether two names of one length differ in a letter, or in two that are swapped."""
    different = sum(a != b for a, b in zip(name, other, strict=False))
    return len(name) == len(other) and (different == 1 or (different == 2 and sorted(name) == sorted(other)))


def listed(names: Sequence[str], most: int = 30) -> str:
    """Return names with commas between, the first ones where there are many."""
    shown = ", ".join(name if len(name) <= _MAX_CHARS else f"{name[:_MAX_CHARS]}..." for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"
