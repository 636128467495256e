"""Factors of matrices that stand on a graph's edges: products with our own kernels, nothing of size N x N.

Rows are orthonormalised by way of their Gram matrix in float64 (Cholesky QR, Yamamoto and others, ETNA 44, 2015), which
reads them twice; a QR of tall matrices takes several times as long.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from configs.errors import RecipeError
from models.kernels.sparse.adjacency import Adjacency
from models.kernels.sparse.product import multiply

_CHUNK_ROWS = 1 << 15
_OVERSAMPLING = 10
_NOISE = 1e-10
"""Share of the largest eigenvalue below which a direction of a Gram matrix is rounding noise."""


@dataclass(frozen=True)
class EdgeMatrix:
    """A sparse matrix with a number on each edge: row i has its out-edges."""

    adjacency: Adjacency
    """Rows as destinations, columns as sources."""
    values: Tensor
    """float32 (E,), in the order of the edges."""

    def times(self, x: Tensor) -> Tensor:
        """Return the product with x: float32 (columns, d) -> (rows, d)."""
        return multiply(self.adjacency, x, self.values, None, None, None)

    def transposed_times(self, x: Tensor) -> Tensor:
        """Return the transpose's product with x: float32 (rows, d) -> (columns, d)."""
        edges = self.adjacency.transpose().edges
        return multiply(self.adjacency.reverse(), x, self.values, edges, None, None)


def low_rank(matrix: EdgeMatrix, rank: int, seed: int, iterations: int = 4) -> tuple[Tensor, Tensor]:
    """Return the first `rank` left singular vectors and values of a matrix, by random projection.

    Halko, Martinsson, Tropp: Finding structure with randomness, SIAM Review 53, 2011, algorithm 4.4, with
    `iterations` of the power scheme.

    Returns:
        float32 (rows, rank) and (rank,); a matrix of a lower rank has zeros behind it.
    """
    num_rows, num_columns = matrix.adjacency.num_dst, matrix.adjacency.num_src
    width = min(rank + _OVERSAMPLING, num_rows, num_columns)
    generator = torch.Generator().manual_seed(seed)
    basis = orthonormal(matrix.times(torch.randn(num_columns, width, generator=generator)))
    for _ in range(iterations):
        basis = orthonormal(matrix.times(orthonormal(matrix.transposed_times(basis))))
    small = matrix.transposed_times(basis)  # (columns, width): the transpose of basis^T matrix
    squares, turn = _eigen(_gram(small))
    vectors, values = basis @ turn.float(), squares.clamp(min=0).sqrt().float()
    missing = rank - width
    if missing > 0:
        vectors = torch.cat([vectors, vectors.new_zeros(num_rows, missing)], 1)
        values = torch.cat([values, values.new_zeros(missing)])
    return vectors[:, :rank].contiguous(), values[:rank].contiguous()


def left_factor(x: Tensor, rank: int) -> Tensor:
    """Return U sqrt(S) of x = U S V^T, its first `rank` columns: float32 (n, D) -> (n, rank), rank <= D."""
    squares, turn = _eigen(_gram(x))
    values = squares.clamp(min=0).sqrt()
    kept = values > values[0].clamp(min=1e-30) * _NOISE**0.5
    scale = torch.where(kept, values.clamp(min=1e-30).rsqrt(), torch.zeros_like(values))
    return x @ (turn * scale)[:, :rank].float()


def orthonormal(x: Tensor) -> Tensor:
    """Return an orthonormal basis of what x's columns span: float32 (n, D) -> (n, D); directions of no size are 0."""
    for _ in range(2):  # the second time takes away what the first one's rounding leaves
        squares, turn = _eigen(_gram(x))
        kept = squares > squares[0].clamp(min=1e-30) * _NOISE
        scale = torch.where(kept, squares.clamp(min=1e-30).rsqrt(), torch.zeros_like(squares))
        x = x @ (turn * scale).float()
    return x


def _gram(x: Tensor) -> Tensor:
    total = torch.zeros(x.shape[1], x.shape[1], dtype=torch.float64)
    for part in torch.split(x, _CHUNK_ROWS):
        rows = part.double()
        total += rows.T @ rows
    return total


def _eigen(gram: Tensor) -> tuple[Tensor, Tensor]:
    """Return eigenvalues, the largest first, and eigenvectors. Raises RecipeError: the numbers are not finite."""
    if not gram.isfinite().all():
        raise RecipeError(
            "a matrix that is to be factored holds numbers that are not finite; the model's options are too far from "
            "the usual ones, or the edges' weights too far from each other (weighted=false reads none)"
        )
    values, vectors = torch.linalg.eigh(gram)
    return values.flip(0), vectors.flip(1)


def unit_rows(x: Tensor) -> Tensor:
    """Return x with rows of length 1; rows of zeros stay."""
    return torch.nn.functional.normalize(x, dim=1)


def chebyshev_gaussian(propagate: Callable[[Tensor], Tensor], x: Tensor, order: int, mu: float, theta: float) -> Tensor:
    """Return x filtered by a Gaussian of the graph's frequencies, as a Chebyshev series of `order` terms.

    ProNE (IJCAI 2019, section 3.2): with L = I - P the filter is exp(-theta ((L - mu)^2 - 1) / 2) up to a factor.

    Args:
        propagate: x -> P x, P the random walk with loops.
        x: float32 (N, D).
        order: terms, 2 at least.
        mu: frequency in the filter's middle.
        theta: its narrowness.
    """
    from scipy.special import iv

    def shifted(y: Tensor) -> Tensor:
        return (1 - mu) * y - propagate(y)

    before, here = x, 0.5 * shifted(shifted(x)) - x
    total = float(iv(0, theta)) * before - 2 * float(iv(1, theta)) * here
    for term in range(2, order):
        before, here = here, shifted(shifted(here)) - 2 * here - before
        total += (-1) ** term * 2 * float(iv(term, theta)) * here
    return total
