"""Pooling of contiguous groups and its inverse."""

from __future__ import annotations

import pytest
import torch

from models.kernels.sparse.segment import reference_segment_reduce, segment_broadcast, segment_reduce
from tests.kernels.graphs import compare, numbers

OFFSETS = torch.tensor([0, 0, 5, 6, 6, 6, 19, 20, 20])
"""Empty groups at both ends and between."""


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
def test_pooling(reduce: str, dtype: torch.dtype) -> None:
    x = torch.rand(20, 7).argsort(0).to(dtype).requires_grad_()  # no equal numbers in a column
    compare(lambda x: segment_reduce(x, OFFSETS, reduce), lambda x: reference_segment_reduce(x, OFFSETS, reduce), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_broadcast(dtype: torch.dtype) -> None:
    x = numbers(8, 7, dtype=dtype)
    compare(lambda x: segment_broadcast(x, OFFSETS), lambda x: x[[1, 1, 1, 1, 1, 2, *[5] * 13, 6]], x)


@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
def test_groups_without_rows(reduce: str) -> None:
    x, offsets = numbers(0, 7), torch.zeros(4, dtype=torch.int64)
    assert torch.equal(segment_reduce(x, offsets, reduce), torch.zeros(3, 7))
    assert segment_broadcast(numbers(3, 7), offsets).shape == (0, 7)


def test_threads_change_nothing(threads: int) -> None:
    offsets = torch.arange(0, 20_001, 5)
    x = numbers(20_000, 7)
    for reduce in ("sum", "max"):
        compare(
            lambda x, r=reduce: segment_reduce(x, offsets, r),
            lambda x, r=reduce: x.view(-1, 5, 7).sum(1) if r == "sum" else x.view(-1, 5, 7).amax(1),
            x,
        )  # type: ignore[misc]
    compare(lambda x: segment_broadcast(x, offsets), lambda x: x.repeat_interleave(5, 0), numbers(4000, 7))


def test_an_unknown_reduction_is_refused() -> None:
    with pytest.raises(ValueError, match="sum, mean or max"):
        segment_reduce(numbers(20, 7), OFFSETS, "median")
