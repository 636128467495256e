"""Small random graphs with everything that kernels may trip over, and comparisons with float64."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from models.kernels.sparse.adjacency import Adjacency
from models.kernels.sparse.spmm import reference_weighted_sum, weighted_sum
from models.kernels.sparse.spmm_max import max_rows, reference_max

_TOLERANCES = {torch.bfloat16: 1e-2, torch.float16: 1.5e-3}


def random_graph(num_dst: int = 37, num_src: int = 53, num_edges: int = 400, seed: int = 0) -> Adjacency:
    """Edges with parallel ones, a hub, and a third of the destinations without any."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randint(max(2 * num_dst // 3, 1), (num_edges,), generator=generator)
    rows[: num_edges // 4] = 0
    indptr = torch.zeros(num_dst + 1, dtype=torch.int64)
    indptr[1:] = torch.bincount(rows, minlength=num_dst).cumsum(0)
    indices = torch.randint(num_src, (num_edges,), generator=generator, dtype=torch.int32)
    return Adjacency(indptr, indices, num_src)


def without_edges() -> Adjacency:
    return random_graph(5, 3, 0)


def large_graph() -> Adjacency:
    """Enough work to be cut into ranges for several threads."""
    return random_graph(3000, 2000, 30_000)


def numbers(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 1) -> Tensor:
    """Normal numbers that want gradients."""
    made = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return made.to(dtype).requires_grad_()


def compare(fast: Callable[..., Tensor], reference: Callable[..., Tensor], *inputs: Tensor, slack: float = 1.0) -> None:
    """Compare values and the inputs' gradients with those of the reference in float64, from the same numbers.

    `slack` multiplies the tolerance, where sums cancel.
    """
    exact = [value.detach().double().requires_grad_() for value in inputs]
    y, expected = fast(*inputs), reference(*exact)
    assert y.shape == expected.shape
    _close(y, expected, y.dtype, slack)
    change = numbers(*y.shape, seed=9).detach().to(y.dtype)
    gradients = torch.autograd.grad(y, inputs, change, allow_unused=True)
    wanted = torch.autograd.grad(expected, exact, change.double(), allow_unused=True)
    for value, gradient, exactly in zip(inputs, gradients, wanted, strict=True):
        assert gradient.dtype == value.dtype
        dtype = next((kind for kind in _TOLERANCES if kind in (y.dtype, value.dtype)), torch.float32)
        _close(gradient, exactly, dtype, slack)


def assert_threads_do_not_matter(run: Callable[[], Iterable[Tensor]]) -> None:
    results = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        results.append(tuple(run()))
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def _close(value: Tensor, exact: Tensor | None, dtype: torch.dtype, slack: float) -> None:
    if exact is None:  # nothing depends on it
        exact = torch.zeros(value.shape, dtype=torch.float64)
    exact = exact.detach()
    rtol = slack * _TOLERANCES.get(dtype, 1e-5)
    atol = rtol * max(float(exact.abs().max()), 1.0) if exact.numel() else 0.0
    torch.testing.assert_close(value.detach().double(), exact, rtol=rtol, atol=atol)


def symmetric_graph(num_nodes: int = 40) -> Adjacency:
    """Every edge both ways; sources are not in order within a destination."""
    generator = torch.Generator().manual_seed(3)
    pairs = torch.randint(num_nodes, (2, 150), generator=generator)
    rows, columns = torch.cat([pairs, pairs.flip(0)], dim=1)
    order = torch.argsort(rows, stable=True)
    indptr = torch.zeros(num_nodes + 1, dtype=torch.int64)
    indptr[1:] = torch.bincount(rows, minlength=num_nodes).cumsum(0)
    return Adjacency(indptr, columns[order].to(torch.int32), num_nodes, symmetric=True)


def spmm(adj: Adjacency, x: Tensor, weight: Tensor | None = None, reduce: str = "sum") -> Tensor:
    """Sum, mean (by the number of in-edges) or maximum of the sources."""
    if reduce == "max":
        return max_rows(adj, x)
    return weighted_sum(adj, x, weight, target_scale=adj.degree_scale() if reduce == "mean" else None)


def reference_spmm(adj: Adjacency, x: Tensor, weight: Tensor | None = None, reduce: str = "sum") -> Tensor:
    if reduce == "max":
        return reference_max(adj, x)
    y = reference_weighted_sum(adj, x, weight)
    return y if reduce == "sum" else y / adj.degrees().clamp(min=1).view(-1, *[1] * (x.dim() - 1)).to(x.dtype)
