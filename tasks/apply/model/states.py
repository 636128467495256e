"""What transforms learned, by digest within a process."""

from __future__ import annotations

from typing import Any

from configs.errors import RecipeError
from tasks.preprocess.shards import digest
from tasks.preprocess.transforms.base import State

# States by their digest, for transforms that stand in recipes with that, and send the states to the workers.
_STATES: dict[str, dict[str, State]] = {}


def keep_states(states: dict[str, State]) -> str:
    """Keep what was learned for `states_of`; returns its digest."""
    key = digest(states)
    _STATES[key] = states
    return key


def states_of(config: Any) -> dict[str, State]:
    """Return what was learned, by the digest in a transform's options. Raises RecipeError where none is known."""
    if config.sha256 not in _STATES:
        raise RecipeError(
            f"preprocess.transforms: {config.name} is what graphmill predict puts in place of a transform; name the "
            "transform itself"
        )
    return _STATES[config.sha256]
