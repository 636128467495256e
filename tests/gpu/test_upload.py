"""Batches arrive on a GPU whole, whatever becomes of the memory that they came from and went into."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from models.block import Batch, Inputs
from models.kernels.memory import recycled
from tasks.train.gradients.pipeline import Pipeline
from tests.gpu.where import DEVICE, HAS_GPU, MARKS

pytestmark = MARKS
ROWS, WIDTH, BATCHES = (20_000, 128, 200) if HAS_GPU else (500, 8, 20)


def make(number: int) -> Batch:
    """A batch of one number, in recycled memory that held another one before."""
    rows = ROWS - 37 * (number % 7)
    feat = torch.from_numpy(recycled((rows, WIDTH), "float32"))
    feat.fill_(float(number))
    both = torch.from_numpy(recycled((rows, 2 * WIDTH), "float32"))
    both.fill_(-float(number))
    # Columns of a wider matrix take another way into page-locked memory.
    return Batch([], Inputs(torch.full((rows,), number), feat), both[:, WIDTH:], rows)


def poison(rows: int) -> None:
    """Fill what the allocator may hand out next, on the caller's stream."""
    for _ in range(3):
        torch.full((rows, WIDTH), torch.nan, device=DEVICE)


def slow() -> None:
    """Keep the GPU busy, so that steps are still reading when later batches arrive."""
    if HAS_GPU:
        torch.cuda._sleep(2_000_000)


def read(batch: Batch) -> Tensor:
    assert batch.inputs.feat is not None
    parts = (batch.inputs.feat, -batch.target, batch.inputs.node_ids.float())
    return torch.stack([end for part in parts for end in (part.min(), part.max())])


@pytest.mark.parametrize(("ahead", "threads"), [(0, 1), (1, 1), (4, 3), (16, 8)])
def test_no_batch_is_mixed_with_another(ahead: int, threads: int) -> None:
    found = []
    with Pipeline(make, 0, BATCHES, ahead=ahead, threads=threads, device=DEVICE) as pipeline:
        for number, batch in enumerate(pipeline):
            assert batch.target.device == DEVICE
            slow()
            found.append(read(batch))
            rows = batch.num_seeds
            del batch  # its memory is free from here on, and the GPU has not read it yet
            poison(rows)
            assert rows == ROWS - 37 * (number % 7)
    expected = torch.arange(BATCHES, dtype=torch.float32).unsqueeze(1).expand(-1, 6)
    assert torch.equal(torch.stack(found).cpu(), expected)
