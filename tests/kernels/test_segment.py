"""Pooling of contiguous groups and its inverse."""

from __future__ import annotations

import pytest
import torch

from models.kernels.sparse.segment import (
    reference_segment_broadcast,
    reference_segment_reduce,
    segment_broadcast,
    segment_exchange,
    segment_reduce,
)
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
    compare(lambda x: segment_broadcast(x, OFFSETS), lambda x: reference_segment_broadcast(x, OFFSETS), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [7, 64, 131])
@pytest.mark.parametrize("used", ["both", "rows", "sums"])
def test_exchange(used: str, width: int, dtype: torch.dtype, threads: int) -> None:
    def picked(both: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return {"both": torch.cat(both), "rows": both[0], "sums": both[1]}[used]

    def reference(x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        y = x + reference_segment_broadcast(state, OFFSETS)
        return picked((y, reference_segment_reduce(y, OFFSETS, "sum")))

    x, state = numbers(20, width, dtype=dtype), numbers(8, width, dtype=dtype, seed=2)
    compare(lambda x, state: picked(segment_exchange(x, state, OFFSETS)), reference, x, state)
    y, sums = segment_exchange(x.double(), state.double(), OFFSETS)
    assert (y.dtype, sums.shape) == (torch.float64, (8, width))


def test_an_exchange_of_other_shapes_is_refused() -> None:
    with pytest.raises(ValueError, match=r"state must be \(8, 7\), not \(7, 7\)"):
        segment_exchange(numbers(20, 7), numbers(7, 7), OFFSETS)
    with pytest.raises(ValueError, match=r"state must be of x's torch\.float32, not torch\.bfloat16"):
        segment_exchange(numbers(20, 7), numbers(8, 7, dtype=torch.bfloat16), OFFSETS)


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
