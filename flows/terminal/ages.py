"""Ages as people write them."""

from __future__ import annotations

from configs.errors import RecipeError
from configs.values.expectations import age_seconds


def parse_age(text: str, option: str = "--older-than") -> float:
    """Return `7d`, `12h`, `30m`, `4w` in seconds. Raises RecipeError."""
    try:
        return age_seconds(text)
    except ValueError as error:
        raise RecipeError(f"{option} {error}") from None
