"""Means that are gathered on a device are the CPU's, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tasks.arrays import Array
from tasks.sampling.neighborhoods.neighbors import NeighborSampler
from tasks.sampling.rows.gather import gather_mean
from tests.sampling.test_device_neighbors import graph, seeds
from tests.triton_device import DEVICE, MARKS_OF_TABLES

pytestmark = MARKS_OF_TABLES


def table(width: int, stored: str) -> Array:
    values = torch.from_numpy(np.random.default_rng(3).standard_normal((151, width)).astype(np.float32))
    if stored == "bfloat16":
        return values.bfloat16().view(torch.uint16).numpy()
    return values.numpy().astype(stored)


@pytest.mark.parametrize("stored", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [1, 7, 16, 130])
def test_means(width: int, stored: str, dtype: torch.dtype) -> None:
    from tasks.sampling.device.rows_triton import gather_means

    values, csc = table(width, stored), graph()
    nodes, [layer] = NeighborSampler(*csc, (9,)).sample(seeds(23), 5, open_last=True)
    _, expected = gather_mean(values, nodes, layer.indptr, layer.indices, dtype)
    on_device = torch.from_numpy(values).to(DEVICE)
    on_device = on_device.view(torch.bfloat16) if stored == "bfloat16" else on_device
    both = torch.full((len(nodes), 2 * width), torch.nan, dtype=dtype, device=DEVICE)
    edges = (torch.from_numpy(array).to(DEVICE) for array in (layer.indptr, layer.indices))
    gather_means(on_device, *edges, both[:, width:])
    assert torch.equal(both[:, width:].cpu(), expected)
    assert both[:, :width].isnan().all()
