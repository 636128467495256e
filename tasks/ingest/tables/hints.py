"""Hints: texts of one column that are told apart, though somebody may have meant them to be one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

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
