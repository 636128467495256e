"""Products of the two ends of pairs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from models.kernels.simd.vector import WIDEST
from models.kernels.sparse.pairs import pair_product, reference_pair_product
from tests.kernels.graphs import compare, numbers


def random_pairs(num_rows: int, count: int) -> Tensor:
    """Pairs with a hub, loops and repeated ones; the last row is in none."""
    pairs = torch.randint(num_rows - 1, (2, count), generator=torch.Generator().manual_seed(3))
    pairs[0, : count // 4] = 0
    pairs[1, : count // 8] = pairs[0, : count // 8]
    return pairs


@pytest.mark.parametrize(
    ("width", "dtype"), [(WIDEST + 7, torch.float32), (64, torch.float32), (7, torch.float32), (100, torch.bfloat16)]
)
def test_products(threads: int, width: int, dtype: torch.dtype) -> None:
    x, pairs = numbers(53, width, dtype=dtype), random_pairs(53, 9001)
    assert pair_product(x, pairs).dtype == dtype
    compare(lambda x: pair_product(x, pairs), lambda x: reference_pair_product(x, pairs), x)


def test_slices_are_read_where_they_are() -> None:
    x, pairs = numbers(53, 40), random_pairs(53, 200)
    compare(
        lambda x: pair_product(x[:, 3:20], pairs.flip(0)),
        lambda x: reference_pair_product(x[:, 3:20], pairs.flip(0)),
        x,
    )


def test_no_pairs() -> None:
    x = numbers(5, 7)
    made = pair_product(x, torch.empty(2, 0, dtype=torch.int64))
    assert made.shape == (0, 7)
    assert torch.equal(torch.autograd.grad(made.sum(), x)[0], torch.zeros(5, 7))


def test_float64_checks_gradients() -> None:
    x, pairs = numbers(6, 3).detach().double().requires_grad_(), random_pairs(6, 11)
    assert torch.autograd.gradcheck(lambda x: pair_product(x, pairs), (x,))
