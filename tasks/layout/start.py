"""Where the points of a layout begin: near to where they belong; and where those lie that no edge moves."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from tasks.arrays import Array, blocks

_BLOCK_BYTES = 1 << 26
_MOST_COLUMNS = 1024
"""Of vectors; wider ones are projected to so many by a random matrix first."""
_SHARE, _LEAST, _MOST = 0.99, 1.1, 1.2
"""Of others' distances from the middle, the one within which so many lie; how far out the rim is, in these."""


def pca_start(vectors: Array, dim: int, seed: int) -> NDArray[np.float32]:
    """Return the first principal components of vectors, float32 (n, dim), with a standard deviation of 1 each.

    In blocks: vectors (n, d) may be a memory map. Components point to where their largest loading is positive.
    """
    width = vectors.shape[1]
    sketch = None
    if width > _MOST_COLUMNS:
        rng = np.random.default_rng(seed)
        sketch = torch.from_numpy(rng.standard_normal((width, _MOST_COLUMNS)).astype(np.float32))
    parts = list(blocks(len(vectors), max(1, _BLOCK_BYTES // (4 * width))))

    def read(part: slice) -> torch.Tensor:
        rows = torch.from_numpy(np.array(vectors[part], np.float32))
        return rows if sketch is None else rows @ sketch

    columns = min(width, _MOST_COLUMNS)
    total, mean = torch.zeros(columns, columns, dtype=torch.float64), torch.zeros(columns, dtype=torch.float64)
    for part in parts:
        mean += read(part).double().sum(0) / len(vectors)
    for part in parts:
        rows = (read(part) - mean.float()).double()
        total += rows.T @ rows
    loadings = torch.linalg.eigh(total)[1][:, -dim:].flip(1)
    loadings *= loadings.gather(0, loadings.abs().argmax(0, keepdim=True)).sign()
    components = torch.cat([(read(part) - mean.float()) @ loadings.float() for part in parts]).numpy()
    return _spread(components, dim, seed)


def _spread(points: NDArray[np.float32], dim: int, seed: int) -> NDArray[np.float32]:
    """Give each coordinate a mean of 0 and a deviation of 1; where there is none, draw it. Far ones come nearer."""
    spread = np.random.default_rng(seed).standard_normal((len(points), dim)).astype(np.float32)
    centred = points - points.mean(0)
    deviation = centred.std(0)
    some = deviation > 1e-6 * max(float(np.abs(points).max(initial=0.0)), 1e-30)
    spread[:, : len(some)][:, some] = np.clip(centred[:, some] / deviation[some], -5, 5)
    return spread


def put_around(points: NDArray[np.float32], alone: Array, seed: int, *, keep_directions: bool = False) -> None:
    """Put some points around the others, in place: where nobody takes them for members of a group.

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
