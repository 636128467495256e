"""Rows and means that are gathered on a device are the CPU's, bit by bit, wherever the rows lie."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tasks.arrays import Array
from tasks.sampling.device.feature_table import FeatureTable, expected_reads
from tasks.sampling.neighborhoods.neighbors import NeighborSampler
from tasks.sampling.rows.gather import gather_mean, gather_rows
from tests.sampling.test_device_neighbors import graph, seeds
from tests.triton_device import DEVICE, MARKS_OF_TABLES

pytestmark = MARKS_OF_TABLES
EVERYWHERE = [1 << 30, 4000, 0]
"""Bytes on the device: for all rows, for some, for none."""


def table(width: int, stored: str) -> Array:
    values = torch.from_numpy(np.random.default_rng(3).standard_normal((151, width)).astype(np.float32))
    if stored == "bfloat16":
        return values.bfloat16().view(torch.uint16).numpy()
    return values.numpy().astype(stored)


@pytest.mark.parametrize("memory", EVERYWHERE)
@pytest.mark.parametrize("stored", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [1, 7, 16, 130])
def test_rows_and_means(width: int, stored: str, dtype: torch.dtype, memory: int) -> None:
    from tasks.sampling.device import rows_triton

    values, csc = table(width, stored), graph()
    nodes, layers = NeighborSampler(*csc, (9,)).sample(seeds(23), 5, open_last=True)
    layer = layers[0]
    expected_own, expected_mean = gather_mean(values, nodes, layer.indptr, layer.indices, dtype)
    placed = FeatureTable.put(values, np.arange(151.0), DEVICE, memory)
    assert placed.is_split == (memory < values.nbytes)
    room, count = 30, torch.tensor([len(nodes)], device=DEVICE)
    padded = torch.full((room,), 3, dtype=torch.int32)
    padded[: len(nodes)] = torch.from_numpy(nodes)
    indptr = torch.full((room + 1,), len(layer.indices))
    indptr[: len(nodes) + 1] = torch.from_numpy(layer.indptr)
    both = torch.full((room, 2 * width), torch.nan, dtype=dtype, device=DEVICE)
    own, mean = both[:, :width], both[:, width:]
    rows_triton.gather_rows(placed, padded.to(DEVICE), count, own)
    rows_triton.gather_means(placed, indptr.to(DEVICE), torch.from_numpy(layer.indices).to(DEVICE), count, mean)
    assert torch.equal(own[: len(nodes)].cpu(), expected_own)
    assert torch.equal(mean[: len(nodes)].cpu(), expected_mean)
    assert not both[len(nodes) :].any()
    alone = torch.empty(len(nodes), width, dtype=dtype, device=DEVICE)
    rows_triton.gather_rows(placed, padded.to(DEVICE), count, alone)
    assert torch.equal(alone.cpu(), gather_rows(values, nodes, dtype))


def test_what_is_read_most_lies_on_the_device() -> None:
    values = table(7, "float32")
    reads = np.random.default_rng(5).permutation(151).astype(np.float64)
    placed = FeatureTable.put(values, reads, DEVICE, 151 * 4 + 40 * 28 + 3)
    assert placed.place is not None
    assert placed.cold is not None
    assert (len(placed.hot), len(placed.cold)) == (40, 111)
    place = placed.place.cpu().numpy()
    assert np.array_equal(place >= 0, reads > 110)
    for node in range(151):
        row = placed.hot[place[node]].cpu() if place[node] >= 0 else placed.cold[-1 - place[node]]
        assert np.array_equal(row.numpy(), values[node])


def test_expected_reads_are_what_batches_read_on_average() -> None:
    indptr, indices = graph(num_nodes=60, degree=3)
    chosen = np.arange(0, 60, 2)
    expected = expected_reads(indptr, indices, chosen, (3, 2))
    sampler, reads = NeighborSampler(indptr, indices, (3, 2)), np.zeros(60)
    for number, seed in enumerate(np.repeat(chosen, 200)):
        nodes, (outer, inner) = sampler.sample(np.array([seed]), number)
        # Each appearance counts, as in the estimate: the seed, and the sources of both hops.
        np.add.at(reads, nodes[:1], 1)
        for layer in (outer, inner):
            np.add.at(reads, nodes[layer.indices], 1)
    found, wanted = reads / reads.sum(), expected / expected.sum()
    assert np.corrcoef(found, wanted)[0, 1] > 0.98
    assert (found[expected == 0] == 0).all()
