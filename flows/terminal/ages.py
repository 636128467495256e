"""Ages as people write them."""

from __future__ import annotations

import re

from configs.errors import RecipeError

_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def parse_age(text: str, option: str = "--older-than") -> float:
    """Return `7d`, `12h`, `30m`, `4w` in seconds. Raises RecipeError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text.strip())
    if match is None:
        raise RecipeError(f"{option} {text!r} is not an age such as 12h, 7d or 4w (s, m, h, d, w)")
    return float(match.group(1)) * _UNIT_SECONDS[match.group(2)]
