"""What a device samples, draws and gathers is the CPU's, bit by bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numba import njit

from configs.errors import RecipeError
from tasks.arrays import Array
from tasks.sampling.neighborhoods import fast_random
from tasks.sampling.neighborhoods.neighbors import NeighborSampler
from tasks.sampling.rows.gather import gather_mean
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


KEYS = [5, 2**62 + 12345]


@njit
def _numbers(key, limit, count):  # type: ignore[no-untyped-def]
    words = np.empty((2, count), np.int64)
    for i in range(count):
        state = fast_random.stream(key, i)
        words[0, i], words[1, i] = np.int64(fast_random.output(state)), fast_random.below(state, limit)
    return words


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("limit", [1, 7, 50, 2**40 + 1])
def test_random_numbers(key: int, limit: int) -> None:
    from tests.sampling.kernels_triton import fill_numbers

    words = torch.empty(2, 64, dtype=torch.int64, device=DEVICE)
    fill_numbers[(1,)](words, key, limit, COUNT=64)
    assert np.array_equal(words.cpu().numpy(), _numbers(key, limit, 64))
