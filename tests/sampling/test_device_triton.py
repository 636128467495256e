"""What is drawn on a device is what the CPU draws, bit by bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numba import njit

from tasks.arrays import Array
from tasks.counter_random import half_bits, permute
from tasks.sampling.neighborhoods import fast_random
from tasks.sampling.walks import alias
from tasks.sampling.walks.pairs import most_pairs, walk_pairs
from tasks.sampling.walks.random_walks import Walks
from tests.sampling.test_walks import Csr, csr, random_csr
from tests.triton_device import DEVICE, MARKS_OF_TABLES

pytestmark = MARKS_OF_TABLES
KEYS = [5, 2**62 + 12345]


@njit
def _numbers(key, limit, count):  # type: ignore[no-untyped-def]
    words, units = np.empty((3, count), np.int64), np.empty((2, count))
    for i in range(count):
        state = fast_random.stream(key, i)
        words[0, i], units[0, i] = np.int64(fast_random.output(state)), fast_random.unit(state)
        words[1, i], units[1, i] = fast_random.below_and_rest(state, limit)
        words[2, i] = permute(key + i % 3, limit, i % limit)
    return words, units


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("limit", [1, 7, 50, 2**40 + 1])
def test_random_numbers(key: int, limit: int) -> None:
    from tests.sampling.kernels_triton import fill_numbers

    words = torch.empty(3, 64, dtype=torch.int64, device=DEVICE)
    units = torch.empty(2, 64, dtype=torch.float64, device=DEVICE)
    fill_numbers[(1,)](words, units, key, limit, half_bits(limit), COUNT=64)
    expected = _numbers(key, limit, 64)
    assert np.array_equal(words.cpu().numpy(), expected[0])
    assert np.array_equal(units.cpu().numpy(), expected[1])


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_draws_from_an_alias_table(dtype: Any) -> None:
    from tasks.sampling.device.alias_triton import draw_many, table_tensor

    table = alias.alias_table(np.arange(38.0))
    states = np.array([5, 2**63 + 77, 2**64 - 1], np.uint64)
    expected = np.empty((3, 700), dtype)
    for state, row in zip(states, expected, strict=True):
        alias.draw_many(table, state, row)
    drawn = torch.from_numpy(np.zeros_like(expected)).to(DEVICE)
    draw_many(table_tensor(table, DEVICE), torch.from_numpy(states.view(np.int64)).to(DEVICE), drawn)
    assert np.array_equal(drawn.cpu().numpy(), expected)
    draw_many(table_tensor(table, DEVICE), torch.empty(0, dtype=torch.int64, device=DEVICE), drawn[:0])


def graphs() -> dict[str, Csr]:
    return {
        "symmetric": random_csr(50, 6),
        "with ends": csr([(0, 1), (1, 2), (3, 2), (3, 1), (3, 4)], 6),
    }


def weights(indices: Array) -> Array:
    """Of some nodes so uneven that they get alias tables, and with zeros."""
    weight = np.random.default_rng(0).pareto(0.6, len(indices)).astype(np.float32)
    weight[::7] = 0
    return weight


@pytest.mark.parametrize("name", ["symmetric", "with ends"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"by_degree": True},
        {"p": 4.0, "q": 2.0},
        {"p": 0.3, "q": 0.7, "by_degree": True},
        {"p": 1e-5, "q": 1e5},
        {"p": 1e3, "q": 1e3},
    ],
)
def test_walks(name: str, weighted: bool, options: dict[str, Any]) -> None:
    from tasks.sampling.device.walks_triton import DeviceWalks

    indptr, indices = graphs()[name]
    length = 4 if name == "symmetric" else 7  # each further node takes seconds of the interpreter
    walks = Walks(indptr, indices, key=KEYS[1], length=length, weight=weights(indices) if weighted else None, **options)
    assert walks.steps is None or name != "symmetric" or 0 < (walks.steps.first >= 0).sum() < 49
    expected = np.empty((70, length), np.int32)
    walks.fill(1000, expected)
    tokens = torch.zeros(70, length, dtype=torch.int32, device=DEVICE)
    DeviceWalks(walks, DEVICE).fill(1000, tokens)
    assert np.array_equal(tokens.cpu().numpy(), expected)
    assert ((expected[:, 1:] < 0).any()) == (name == "with ends")


@pytest.mark.parametrize("weighted", [False, True])
def test_random_edges(weighted: bool) -> None:
    from tasks.sampling.device.walks_triton import DeviceWalks

    indptr, indices = random_csr(50, 6)
    indices = indices.astype(np.int64)
    weight = weights(indices) if weighted else None
    walks = Walks(indptr, indices, key=KEYS[0], length=2, by_degree=True, weight=weight)
    expected = np.empty((2, 130), np.int64)
    walks.fill_edges(7, *expected)
    ends = torch.zeros(2, 130, dtype=torch.int64, device=DEVICE)
    DeviceWalks(walks, DEVICE).fill_edges(7, *ends)
    assert np.array_equal(ends.cpu().numpy(), expected)


@pytest.mark.parametrize("window", [1, 3, 40])
@pytest.mark.parametrize("shrink", [False, True])
@pytest.mark.parametrize("forward", [False, True])
def test_pairs_of_walks(window: int, forward: bool, shrink: bool) -> None:
    from tasks.sampling.device.walk_pairs_triton import fill_pairs

    tokens = np.empty((30, 9), np.int32)
    Walks(*graphs()["with ends"], key=5, length=9).fill(600, tokens)
    options = {"forward": forward, "shrink": shrink, "key": KEYS[1]}
    expected = walk_pairs(tokens, window, first=600, **options)
    room = 10 * most_pairs(9, window, forward) + 3
    pairs = torch.full((2, 3, room), -1, dtype=torch.int32, device=DEVICE)
    chunks = torch.from_numpy(tokens).to(DEVICE).view(3, 10, 9)
    counts = fill_pairs(chunks, window, first=600, centres=pairs[0], contexts=pairs[1], **options)
    found = torch.cat([pairs[:, number, :count] for number, count in enumerate(counts.tolist())], 1)
    assert np.array_equal(found.cpu().numpy(), np.stack(expected))
    assert all((pairs[:, number, count:] == -1).all() for number, count in enumerate(counts.tolist()))
