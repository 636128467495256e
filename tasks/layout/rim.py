"""Points that no edge moves: around all others, where nobody takes them for members of a group."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tasks.arrays import Array

_SHARE, _LEAST, _MOST = 0.99, 1.1, 1.2
"""Of others' distances from the middle, the one within which so many lie; how far out the rim is, in these."""


def put_around(points: NDArray[np.float32], alone: Array, seed: int, *, keep_directions: bool = False) -> None:
    """Put some points around the others, in place.

    Args:
        points: finite, float32 (N, dim).
        alone: bool (N,): which to put there; the others, of which there has to be one, stay.
        seed: of their places.
        keep_directions: leave them in the direction from the others' middle in which they lie.
    """
    count = int(np.count_nonzero(alone))
    if not count or count == len(points):
        return
    rng = np.random.default_rng(seed)
    others = points[~alone]
    middle = np.median(others, axis=0)
    reach = float(np.quantile(np.linalg.norm(others - middle, axis=1), _SHARE)) or 1.0
    directions = rng.standard_normal((count, points.shape[1]))
    if keep_directions:
        present = points[alone] - middle
        directions = np.where(np.linalg.norm(present, axis=1, keepdims=True) > 0, present, directions)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    points[alone] = middle + directions * reach * rng.uniform(_LEAST, _MOST, (count, 1))
