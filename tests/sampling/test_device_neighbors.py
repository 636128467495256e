"""Blocks that are sampled on a device are the CPU's, bit by bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from configs.errors import RecipeError
from tasks.arrays import Array
from tasks.sampling.neighborhoods.neighbors import NeighborSampler
from tests.triton_device import DEVICE, MARKS_OF_TABLES

pytestmark = MARKS_OF_TABLES
Csc = tuple[Array, Array]


def graph(num_nodes: int = 151, degree: float = 4.0, hubs: int = 3, dtype: Any = np.int32, seed: int = 0) -> Csc:
    """Nodes without in-edges, hubs with edges in parallel, self-loops; sources ascend within a node."""
    random = np.random.default_rng(seed)
    degrees = random.poisson(degree, num_nodes)
    degrees[::5] = 0
    degrees[1 : hubs + 1] = 3 * num_nodes + np.arange(hubs)
    indptr = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    sources = [np.sort(random.integers(0, num_nodes, count)) for count in degrees]
    return indptr, np.concatenate(sources).astype(dtype)


def assert_equal(csc: Csc, fanouts: tuple[int, ...], batches: list[Array], *, open_last: bool = False) -> None:
    """All batches, one after the other, on both sides."""
    from tasks.sampling.device.neighbors import DeviceSampler

    ours, theirs = DeviceSampler(*csc, fanouts, 23, DEVICE), NeighborSampler(*csc, fanouts)
    for number, seeds in enumerate(batches):
        key = 2**62 + 1234567 * number
        nodes, layers = ours.sample(seeds, key, open_last=open_last)
        expected_nodes, expected = theirs.sample(seeds, key, open_last=open_last)
        assert nodes.cpu().numpy().dtype == expected_nodes.dtype
        assert np.array_equal(nodes.cpu().numpy(), expected_nodes)
        assert len(layers) == len(expected)
        for layer, other in zip(layers, expected, strict=True):
            for name in ("indptr", "indices", "degree"):
                found, wanted = getattr(layer, name).cpu().numpy(), getattr(other, name)
                assert found.dtype == wanted.dtype, name
                assert np.array_equal(found, wanted), name


def seeds(count: int, num_nodes: int = 151, seed: int = 0) -> Array:
    return np.random.default_rng(seed).permutation(num_nodes)[:count]


@pytest.mark.parametrize("open_last", [False, True])
@pytest.mark.parametrize("fanouts", [(3,), (4, 3), (5, 1, 3), (17, 2)])
def test_blocks(fanouts: tuple[int, ...], open_last: bool) -> None:
    batches = [seeds(23), seeds(7, seed=1), np.arange(1, 4), np.array([5]), seeds(23, seed=2)]
    assert_equal(graph(), fanouts, batches, open_last=open_last)


@pytest.mark.parametrize("fanout", [64, 65, 100])
def test_large_fanouts_are_drawn_as_on_the_cpu(fanout: int) -> None:
    """Above 64 some are drawn by a scan: of degrees up to a 16th of the square."""
    assert_equal(graph(hubs=3), (fanout, 2), [np.array([1, 2, 3, 0, 5, 17]), seeds(6)])


def test_ids_of_64_bits_and_sources_that_are_all_alike() -> None:
    assert_equal(graph(dtype=np.int64), (4, 3), [seeds(23)])
    indptr = np.array([0, 9, 9, 12, 12], np.int64)
    assert_equal((indptr, np.array([3] * 9 + [0, 0, 3], np.int32)), (4, 3), [np.array([2, 0]), np.array([1, 3])])


def test_a_graph_without_edges_and_no_seeds() -> None:
    assert_equal((np.zeros(6, np.int64), np.empty(0, np.int32)), (2, 2), [np.array([4, 0]), np.array([], np.int64)])


def test_degrees_without_a_hop() -> None:
    assert_equal(graph(), (), [seeds(9)])


def test_what_has_no_bound_is_refused() -> None:
    from tasks.sampling.device.neighbors import DeviceSampler, Room

    with pytest.raises(RecipeError, match=r"fan-out of -1 takes all.*give train\.loader\.fanout numbers"):
        DeviceSampler(*graph(), (3, -1), 23, DEVICE)
    with pytest.raises(RecipeError, match=r"a batch may reach 1\d,\d+,\d+,\d+ edges.*lower train\.loader\.batch_size"):
        Room.of(10, (10_000, 10_000, 10), 10**12, 10**12)
