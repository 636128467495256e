"""Where the points of a layout begin: near to where they belong, so that a layout has less to find out."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from tasks.arrays import Array, blocks

_BLOCK_BYTES = 1 << 26
_MOST_COLUMNS = 1024
"""Of vectors; wider ones are projected to so many by a random matrix first."""


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
