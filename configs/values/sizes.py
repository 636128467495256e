"""Sizes of memory as people write them."""

from __future__ import annotations

import math
import re
from typing import Any

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?(?:e\d+)?)\s*([kmgt]i?)?b?", re.IGNORECASE)


def number_of_bytes(value: Any) -> Any:
    """Return the bytes that `500MB`, `1.5 GiB` or `2e9` mean; other values as they are. Raises ValueError: no size."""
    if not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        raise ValueError(f"{value!r} is not a size; give bytes, or a unit as in 500MB or 1.5GiB")
    return float(match[1]) * _UNITS[(match[2] or "").lower()]


def in_words(num_bytes: float) -> str:
    """Return a size in the unit that fits, rounded up, as `number_of_bytes` reads it: 39.1 kB."""
    for power, unit in ((12, "TB"), (9, "GB"), (6, "MB"), (3, "kB")):
        if num_bytes >= 10**power:
            return f"{math.ceil(num_bytes / 10 ** (power - 1)) / 10:,.1f} {unit}".replace(",", "")
    return f"{math.ceil(num_bytes)} B"
