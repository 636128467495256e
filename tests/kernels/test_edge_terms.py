"""GATv2's scores of edges that carry something, against plain torch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from models.kernels.attention.attention import gatv2_scores, reference_gatv2_scores
from models.kernels.sparse.adjacency import Adjacency


def adjacency(num_dst: int, num_src: int, num_edges: int) -> Adjacency:
    rng = np.random.default_rng(0)
    dst = np.sort(rng.integers(0, max(1, num_dst - 1), num_edges))
    indptr = torch.from_numpy(np.searchsorted(dst, np.arange(num_dst + 1)).astype(np.int64))
    return Adjacency(indptr, torch.from_numpy(rng.integers(0, num_src, num_edges).astype(np.int32)), num_src)


def check(run: Callable[..., Tensor], reference: Callable[..., Tensor], *inputs: Tensor) -> None:
    """Compare values and gradients."""
    outcomes = []
    for function, kind in ((run, torch.float32), (reference, torch.float64)):
        own = [one.to(kind, copy=True).requires_grad_() for one in inputs]
        y = function(*own)
        (y * torch.linspace(-1, 1, y.numel(), dtype=kind).view_as(y)).sum().backward()
        outcomes.append((y.detach().float(), [one.grad.float() for one in own]))  # type: ignore[union-attr]
    torch.testing.assert_close(*outcomes, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("shape", [(30, 50, 400), (7, 7, 0), (1, 3, 5), (300, 200, 3000)])
@pytest.mark.parametrize("heads", [1, 3, 8])
def test_they_are_what_plain_torch_says(shape: tuple[int, int, int], heads: int) -> None:
    torch.manual_seed(0)
    adj = adjacency(*shape)
    num_dst, num_src, _ = shape
    ends = torch.randn(num_src, heads, 6), torch.randn(num_dst, heads, 6), torch.randn(heads, 6)
    check(lambda *x: gatv2_scores(adj, *x, 0.1), lambda *x: reference_gatv2_scores(adj, *x, 0.1), *ends)


def test_wide_heads_take_plain_torch() -> None:
    adj, width = adjacency(5, 6, 20), 600
    ends = torch.randn(6, 1, width), torch.randn(5, 1, width), torch.randn(1, width) / width
    check(lambda *x: gatv2_scores(adj, *x), lambda *x: reference_gatv2_scores(adj, *x), *ends)


def test_bfloat16_is_added_up_in_float32() -> None:
    adj = adjacency(30, 50, 400)
    ends = [torch.randn(50, 2, 8).bfloat16(), torch.randn(30, 2, 8).bfloat16()]
    vector = torch.randn(2, 8)
    found = gatv2_scores(adj, *ends, vector)
    assert found.dtype == torch.float32
    expected = reference_gatv2_scores(adj, *(one.float() for one in ends), vector)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-3)


def test_shapes_that_do_not_fit() -> None:
    adj = adjacency(3, 4, 6)
    with pytest.raises(ValueError, match="x_src, x_dst and attn"):
        gatv2_scores(adj, torch.zeros(4, 2, 3), torch.zeros(3, 2, 3), torch.zeros(2, 4))
