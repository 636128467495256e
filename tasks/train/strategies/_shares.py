"""What the strategies whose ranks train on their own parts have in common."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from configs.errors import RecipeError


def check_parts(name: str, loaders: Sequence[str], loader: str | None, world_size: int, num_parts: int) -> None:
    """Raise RecipeError where strategy `name` cannot work with a loader, or ranks cannot share the parts."""
    if loader is not None and loader not in loaders:
        raise RecipeError(
            f"train.strategy={name} works with the loaders {', '.join(loaders)} and this is {loader}; choose one of "
            "them or train.strategy=data_parallel"
        )
    if num_parts % world_size:
        raise RecipeError(
            f"train.strategy={name} gives each of the {world_size} ranks equally many parts and the partition has "
            f"{num_parts}; set partition.num_parts={world_size} or a multiple"
        )


def cut_largest(largest: int, count: int, step: int, steps: int) -> NDArray[np.int64]:
    """Return the places, among a rank's `count` seeds, of a step, where the rank with most has `largest`.

    A rank with fewer starts its order over.
    """
    return np.arange(largest * step // steps, largest * (step + 1) // steps, dtype=np.int64) % count
