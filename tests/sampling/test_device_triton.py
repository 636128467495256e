"""What is drawn on a device is what the CPU draws, bit by bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numba import njit

from tasks.sampling.neighborhoods import fast_random
from tasks.sampling.walks import alias
from tests.triton_device import DEVICE, MARKS_OF_TABLES

pytestmark = MARKS_OF_TABLES


@njit
def _numbers(key, limit, count):  # type: ignore[no-untyped-def]
    words = np.empty((2, count), np.int64)
    for i in range(count):
        state = fast_random.stream(key, i)
        words[0, i], words[1, i] = np.int64(fast_random.output(state)), fast_random.below(state, limit)
    return words


@pytest.mark.parametrize("key", [5, 2**62 + 12345])
@pytest.mark.parametrize("limit", [1, 7, 50, 2**40 + 1])
def test_random_numbers(key: int, limit: int) -> None:
    from tests.sampling.kernels_triton import fill_numbers

    words = torch.empty(2, 64, dtype=torch.int64, device=DEVICE)
    fill_numbers[(1,)](words, key, limit, COUNT=64)
    assert np.array_equal(words.cpu().numpy(), _numbers(key, limit, 64))


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
