"""Hints: texts of one column that are told apart, though somebody may have meant them to be one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

_MOST_TEXTS = 10_000_000  # beyond, a hint is not worth the memory


def similar_texts(texts: pa.Array, *, letters: bool) -> tuple[str, str] | None:
    """Return two of some distinct texts that differ only by blanks around them or by Unicode's form of a letter.

    `letters`: also by upper and lower case, or as `1` and `1.0` do. None where there are no such two.
    """
    if len(texts) > _MOST_TEXTS:
        return None
    plain = compute.utf8_trim_whitespace(texts)
    whole_ascii = compute.all(compute.string_is_ascii(plain)).as_py()
    if not whole_ascii and compute.any(compute.match_substring_regex(plain, r"\p{M}")).as_py():  # accents on their own
        plain = compute.utf8_normalize(plain, form="NFC")
    if letters:
        plain = compute.replace_substring_regex(compute.utf8_lower(plain), r"^([+-]?[0-9]+)\.0*$", r"\1")
    if not compute.any(compute.not_equal(plain, texts)).as_py():
        return None
    codes = np.asarray(compute.dictionary_encode(plain).indices)
    order = np.argsort(codes, kind="stable")
    same = np.flatnonzero(codes[order][1:] == codes[order][:-1])
    if len(same) == 0:
        return None
    first, second = order[same[0]], order[same[0] + 1]
    return texts[first].as_py(), texts[second].as_py()
