"""What does not fit together is refused before a kernel reads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from models.kernels.attention.attention import gat_attention, gatv2_attention, gatv2_scores
from models.kernels.dense.convolve import convolve
from models.kernels.sparse.edge_softmax import edge_softmax
from models.kernels.sparse.message import message_sum, softmax_aggregate
from models.kernels.sparse.pairs import pair_product
from models.kernels.sparse.segment import segment_broadcast, segment_reduce
from models.kernels.sparse.spmm import sddmm, weighted_sum
from tests.kernels.graphs import random_graph, spmm

ADJ = random_graph()
"""53 sources, 37 destinations, 400 edges."""
SOME = torch.tensor([[0, 3], [1, 2]])


def ones(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.ones(*shape, dtype=dtype)


def ones_of(shape: tuple[int, ...]) -> Tensor:
    return ones(*shape)


FITTING = ones(53, 8), ones(5, 8), ones(5, 8)
CODES = torch.zeros(400, dtype=torch.int32)
EDGE_TERMS: list[Any] = [
    *(ones(399, 4), ones(400, 3), ones(400, 4, dtype=torch.bfloat16)),
    *((ones(5, 3), CODES), (ones(5, 4), CODES.float()), (ones(5, 4), CODES[1:])),
]
HEADS = [
    *(((52, 4, 8), (53, 4), (37, 4)), ((53, 32), (53, 4), (37, 4)), ((53, 4, 8), (53, 3), (37, 4))),
    *(((53, 4, 8), (53, 4), (37, 3)), ((53, 4, 8), (53, 4), (53, 4))),
]
ENDS = [
    *(((37, 4, 8), (37, 4, 8), (4, 8)), ((53, 4, 8), (53, 4, 8), (4, 8)), ((53, 4, 8), (37, 4, 8), (8,))),
    ((53, 8), (37, 4, 8), (4, 8)),
]
WRONG: list[tuple[Callable[[], Tensor], str]] = [
    (lambda: spmm(ADJ, ones(40, 8)), r"x must be \(53, D\) or \(53, H, D\), not \(40, 8\)"),
    (lambda: spmm(ADJ, ones(53)), r"x must be .*, not \(53,\)"),
    (lambda: spmm(ADJ, ones(40, 8), reduce="max"), r"x must be \(53, D\), not \(40, 8\)"),
    (lambda: spmm(ADJ, ones(40, 8), reduce="mean"), r"x must be .*, not \(40, 8\)"),
    (lambda: spmm(ADJ, ones(53, 2, dtype=torch.int64)), r"x must be of a floating dtype, not torch\.int64"),
    (lambda: spmm(ADJ, ones(53, 8), weight=ones(100)), r"weight must be \(400,\), not \(100,\)"),
    (lambda: spmm(ADJ, ones(53, 8), weight=ones(400, 1)), r"weight must be \(400,\), not \(400, 1\)"),
    (lambda: spmm(ADJ, ones(53, 8), weight=ones(400, 2)), r"weight must be \(400,\), not \(400, 2\)"),
    (lambda: spmm(ADJ, ones(53, 3, 8), weight=ones(400, 2)), r"weight must be \(400,\) or \(400, 3\), not \(400, 2\)"),
    (lambda: weighted_sum(ADJ, ones(53, 8), None, ones(52)), r"source_scale must be \(53,\), not \(52,\)"),
    (lambda: weighted_sum(ADJ, ones(53, 8), None, None, ones(36)), r"target_scale must be \(37,\), not \(36,\)"),
    (lambda: sddmm(ADJ, ones(52, 1, 4), ones(37, 1, 4)), r"a must be \(53, D\) or \(53, H, D\), not \(52, 1, 4\)"),
    (lambda: sddmm(ADJ, ones(53, 1, 4), ones(10, 1, 4)), r"b must be \(37, 1, 4\), not \(10, 1, 4\)"),
    (lambda: sddmm(ADJ, ones(53, 2, 4), ones(37, 1, 4)), r"b must be \(37, 2, 4\), not \(37, 1, 4\)"),
    (lambda: sddmm(ADJ, ones(53, 1, 4), ones(37, 1, 4).double()), r"b must be of a's torch\.float32, not .*float64"),
    (lambda: edge_softmax(ADJ, ones(100, 2)), r"scores must be \(400, H\), not \(100, 2\)"),
    (lambda: edge_softmax(ADJ, ones(400)), r"scores must be \(400, H\), not \(400,\)"),
    (lambda: pair_product(ones(4), SOME), r"x must be \(n, D\), not \(4,\)"),
    (lambda: pair_product(ones(4, 3), SOME[0]), r"pairs must be \(2, P\), not \(2,\)"),
    (lambda: pair_product(ones(4, 3), SOME.int()), r"pairs must be of torch\.int64, not torch\.int32"),
    (lambda: pair_product(ones(3, 3), SOME), r"pairs must be from 0 to below 3, the rows of x, not from 0 to 3"),
    (lambda: pair_product(ones(4, 3).double(), SOME - 1), r"pairs must be from 0 to below 4, .* not from -1 to 2"),
    (lambda: segment_reduce(ones(4), SOME[0], "sum"), r"x must be \(n, D\), not \(4,\)"),
    (lambda: segment_reduce(ones(4, 3), SOME, "sum"), r"offsets must be \(G \+ 1,\), not \(2, 2\)"),
    (lambda: segment_reduce(ones(4, 3), torch.tensor([0, 4]).int(), "sum"), r"offsets must be of torch\.int64, not"),
    (lambda: segment_reduce(ones(4, 3), torch.tensor([0, 2, 1000]), "sum"), r"from 0 to x's 4 rows, not .* to 1000"),
    (lambda: segment_reduce(ones(4, 3), torch.tensor([1, 2, 4]), "max"), r"offsets must begin with 0, not 1"),
    (lambda: segment_reduce(ones(4, 3), torch.tensor([0, 3, 2, 4]), "mean"), r"offsets must never fall"),
    (lambda: segment_reduce(ones(0, 3), torch.zeros(0, dtype=torch.int64), "sum"), r"offsets must be \(G \+ 1,\), not"),
    (lambda: segment_broadcast(ones(3, 3), torch.tensor([0, 4])), r"x must be \(1, D\), not \(3, 3\)"),
    (lambda: segment_broadcast(ones(2, 3), torch.tensor([0, 3, 2])), r"offsets must never fall"),
    (lambda: segment_broadcast(ones(2, 3), torch.tensor([-1, 3, 4])), r"offsets must begin with 0, not -1"),
    (lambda: convolve(ADJ, ones(40, 8), ones(5, 8), ones(5, 8)), r"x must be \(53, in\), not \(40, 8\)"),
    (lambda: convolve(ADJ, ones(53, 8), ones(5, 7), ones(5, 8)), r"own_weight must be \(out, 8\), not \(5, 7\)"),
    (lambda: convolve(ADJ, ones(53, 8), ones(5, 8), ones(4, 8)), r"neighbor_weight must be \(5, 8\), not \(4, 8\)"),
    (lambda: convolve(ADJ, ones(53, 8), ones(5, 8), ones(5, 8), ones(4)), r"bias must be \(5,\), not \(4,\)"),
    (lambda: convolve(ADJ, *FITTING, edge_weight=ones(400, 1)), r"edge_weight must be \(400,\), not \(400, 1\)"),
    (lambda: convolve(ADJ, *FITTING, target_scale=ones(36)), r"target_scale must be \(37,\), not \(36,\)"),
    (lambda: convolve(ADJ, ones(37, 8), *FITTING[1:], pooled=ones(36, 8)), r"pooled must be \(37, 8\), not \(36, 8\)"),
    (lambda: convolve(ADJ, ones(36, 8), *FITTING[1:], pooled=ones(37, 8)), r"x must have the 37 .*, not 36"),
    (lambda: segment_reduce(ones(4, 3), torch.tensor([0, 4]), "median"), "sum, mean or max"),
    *((lambda e=edge: message_sum(ADJ, ones(53, 4), e), "must be") for edge in EDGE_TERMS),  # type: ignore[misc]
    (lambda: softmax_aggregate(ADJ, ones(50, 4), torch.tensor(1.0)), "must be"),
    *((lambda g=given: gat_attention(ADJ, *map(ones_of, g)), "must be") for given in HEADS),  # type: ignore[misc]
    *((lambda g=given, op=op: op(ADJ, *map(ones_of, g)), "x_src, x_dst and attn must be") for given in ENDS
      for op in (gatv2_attention, gatv2_scores)),  # type: ignore[misc]
    (lambda: gatv2_scores(ADJ, ones(53, 4, 8), ones(37, 4, 8, dtype=torch.bfloat16), ones(4, 8)), "one dtype"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_what_does_not_fit_is_refused(call: Callable[[], Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
