"""Hints: texts of one column that are told apart, though somebody may have meant them to be one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

_MOST_TEXTS = 10_000_000  # beyond, a hint is not worth the memory
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,2})?$"
_PLAIN = r"^(-?[1-9][0-9]*|0)$"
_EXACT_LENGTH = 15
"""Digits that float64 tells apart."""


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
    plain = _as_numbers(compute.utf8_lower(plain) if letters else plain)
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


def _as_numbers(texts: pa.Array) -> pa.Array:
    """Return texts with numbers in one form: `+01`, `1.0` and `1e0` as `1`."""
    number = compute.match_substring_regex(texts, _NUMBER)
    odd = compute.and_not(number, compute.match_substring_regex(texts, _PLAIN))
    if not compute.any(odd).as_py():
        return texts
    whole = compute.replace_substring_regex(texts.filter(odd), r"^\+", "")
    whole = compute.replace_substring_regex(whole, r"^(-?)0+([0-9])", r"\1\2")
    whole = compute.replace_substring_regex(whole, r"\.0*$", "")
    short = compute.less_equal(compute.utf8_length(whole), _EXACT_LENGTH)
    decimal = compute.and_(short, compute.match_substring_regex(whole, "[.eE]"))
    values = np.asarray(whole.filter(decimal).cast(pa.float64()))
    forms = [str(int(value)) if value == np.floor(value) else repr(value) for value in values.tolist()]
    whole = compute.replace_with_mask(whole, decimal, pa.array(forms, whole.type))
    return compute.replace_with_mask(texts, odd, whole)
