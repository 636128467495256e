"""Where the points of a layout begin: near to where they belong, so that a layout has less to find out."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from tasks.arrays import Array, blocks

_BLOCK_BYTES = 1 << 26
_MOST_COLUMNS = 1024
"""Of vectors; wider ones are projected to so many by a random matrix first."""
_SUBSPACE, _ITERATIONS, _ORTHOGONAL_EVERY = 12, 120, 6


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


def spectral_start(indptr: Array, indices: Array, weight: Array | None, dim: int, seed: int) -> NDArray[np.float32]:
    """Return coordinates that change little along edges: float32 (N, dim), with a standard deviation of 1 each.

    They are the eigenvectors of the symmetrically normalised adjacency that follow the first, divided by the square
    roots of degrees, by subspace iteration: near to the exact ones where the graph has few long paths.

    Args:
        indptr, indices: CSR of the graph, each edge in both directions.
        weight: float (E,); None: all alike.
        dim: coordinates.
        seed: of where the iteration begins.
    """
    size = len(indptr) - 1
    data = np.ones(len(indices), np.float32) if weight is None else np.asarray(weight, np.float32)
    edges = sparse.csr_matrix((data, np.asarray(indices), np.asarray(indptr)), (size, size))
    degree = np.asarray(edges.sum(1)).ravel()
    scale = np.where(degree > 0, 1 / np.sqrt(np.maximum(degree, 1e-30)), 0).astype(np.float32)
    operator = sparse.diags(scale) @ edges @ sparse.diags(scale)
    first = np.sqrt(degree / max(degree.sum(), 1e-30)).astype(np.float32)[:, None]
    subspace = np.random.default_rng(seed).standard_normal((size, dim + _SUBSPACE)).astype(np.float32)
    for step in range(_ITERATIONS):
        if step % _ORTHOGONAL_EVERY == 0:
            subspace -= first @ (first.T @ subspace)
            subspace = np.linalg.qr(subspace)[0]
        subspace = 0.5 * (subspace + operator @ subspace)  # eigenvalues in 0..1: those near -1 are not wanted
    subspace -= first @ (first.T @ subspace)
    basis = np.linalg.qr(subspace)[0]
    values, rotation = np.linalg.eigh(basis.T @ (operator @ basis))
    chosen = basis @ rotation[:, np.argsort(-values)[:dim]]
    return _spread(chosen * scale[:, None], dim, seed)


def _spread(points: NDArray[np.float32], dim: int, seed: int) -> NDArray[np.float32]:
    """Give each coordinate a mean of 0 and a deviation of 1; where there is none, draw it. Far ones come nearer."""
    spread = np.random.default_rng(seed).standard_normal((len(points), dim)).astype(np.float32)
    centred = points - points.mean(0)
    deviation = centred.std(0)
    some = deviation > 1e-6 * max(float(np.abs(points).max(initial=0.0)), 1e-30)
    spread[:, : len(some)][:, some] = np.clip(centred[:, some] / deviation[some], -5, 5)
    return spread
