"""How much rows of a class count in a loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator

from configs.base import MAX_NUMBER


def _names_as_texts(value: Any) -> Any:
    """Return a mapping with texts as keys: YAML reads numbers and truth values."""
    if not isinstance(value, Mapping):
        if value not in ("none", "balanced"):
            raise ValueError(f"none, balanced, or names of classes and their weights ({{fraud: 20}}), not {value!r}")
        return value
    return {str(key).lower() if isinstance(key, bool) else str(key): weight for key, weight in value.items()}


def _above_zero(value: str | dict[str, float]) -> str | dict[str, float]:
    for name, weight in value.items() if isinstance(value, dict) else ():
        if not 0 < weight < MAX_NUMBER:
            raise ValueError(f"{name}={weight:g}: a weight is a number above 0; leave a class out that weighs 1")
    if value == {}:
        raise ValueError("no class is named; none, balanced, or names and weights: {fraud: 20}")
    return value


ClassWeight = Annotated[
    Literal["none", "balanced"] | dict[str, float], BeforeValidator(_names_as_texts), AfterValidator(_above_zero)
]
