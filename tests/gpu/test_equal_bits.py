"""Operators give the same bits each time, as `train.deterministic` promises.

With torch's functions this may fail: NVIDIA says of the algorithm that torch has cuSPARSE take for products, CSR_ALG2,
that its results may differ slightly from run to run, and torch, asked for deterministic algorithms, does not warn.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from models.kernels.sparse.adjacency import Adjacency
from tests.gpu.test_large_tables import NUM_DST, OPERATORS, WIDTH
from tests.gpu.where import DEVICE, HAS_GPU, KERNELS, MARKS, computing_with

pytestmark = MARKS
NUM_SRC = 5000
HUB = 300_000 if HAS_GPU else 3000
"""Edges of one destination, more than any other's: what several programs may share."""
TIMES = 20


@pytest.fixture(autouse=True)
def _deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@KERNELS
@pytest.mark.parametrize("name", OPERATORS)
def test_sums_and_gradients_are_the_same_each_time(name: str, kernels: str) -> None:
    generator = torch.Generator().manual_seed(0)
    counts = torch.randint(0, 900, (NUM_DST,), generator=generator)
    counts[3] = HUB
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    indices = torch.randint(NUM_SRC, (int(indptr[-1]),), generator=generator, dtype=torch.int32)
    rows = torch.randn(NUM_SRC, WIDTH, generator=generator).to(DEVICE)
    results = []
    with computing_with(kernels):
        for _ in range(TIMES):
            x = rows.clone().requires_grad_()
            found = OPERATORS[name](Adjacency(indptr.to(DEVICE), indices.to(DEVICE), NUM_SRC), x)
            found.square().sum().backward()
            assert x.grad is not None
            results.append((found.detach(), x.grad))
    for found, gradient in results[1:]:
        assert torch.equal(found, results[0][0])
        assert torch.equal(gradient, results[0][1])
