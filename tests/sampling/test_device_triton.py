"""What is drawn on a device is what the CPU draws, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numba import njit

from tasks.sampling.neighborhoods import fast_random
from tests.triton_device import DEVICE, MARKS_OF_TABLES

pytestmark = MARKS_OF_TABLES
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
