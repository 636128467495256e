"""Whether a recipe's description still holds once overrides have put other data or another model in place."""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Mapping
from typing import Any

_GENERATED = "synthetic"
"""Any option of it makes another graph."""


def subject(data: Mapping[str, Any], keys: Collection[tuple[str, ...]]) -> tuple[Any, Any]:
    """Return what the description of a recipe, given as plain values, is about: its data set, and a model it names.

    `keys` are the places that overrides change. Of a data set that they replace as a whole, and of a generated one,
    every option counts; else its name does, for a path or a column of a user's own may change from run to run.
    """
    dataset, model = (_options(data.get(section)) for section in ("dataset", "model"))
    as_a_whole = ("dataset",) in keys or dataset.get("name") == _GENERATED
    named = model.get("name") if _names(data.get("description"), model.get("name")) else None
    return copy.deepcopy(dataset) if as_a_whole else dataset.get("name"), named


def _names(description: Any, model: Any) -> bool:
    return re.search(rf"\b{re.escape(str(model))}\b", str(description), re.IGNORECASE) is not None


def _options(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {"name": value}
