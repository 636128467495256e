"""`counter_random` and `fast_random` on GPUs: the same numbers, bit by bit.

Not yet run on a GPU. Functions take and return blocks of numbers; states are uint64.
"""

from __future__ import annotations

import triton
import triton.language as tl

from models.kernels.tables.rounding_triton import mix
from tasks.counter_random import GOLDEN
from tasks.sampling.neighborhoods import fast_random

STEP = tl.constexpr(int(fast_random.STEP))
"""From one draw of a stream to the next: state + STEP."""
_GOLDEN = tl.constexpr(int(GOLDEN))
_SECOND_MULTIPLIER = tl.constexpr(int(fast_random.SECOND_MULTIPLIER))


@triton.jit
def stream(key, number):  # type: ignore[no-untyped-def]
    """Return the first state of stream `number` under `key`."""
    return mix(key.to(tl.uint64) + (number.to(tl.uint64) + 1) * _GOLDEN)


@triton.jit
def output(state):  # type: ignore[no-untyped-def]
    """Return 64 random bits."""
    other = state ^ _SECOND_MULTIPLIER
    return tl.umulhi(state, other) ^ (state * other)


@triton.jit
def below(state, limit):  # type: ignore[no-untyped-def]
    """Return an int64 in 0..limit-1."""
    return tl.umulhi(output(state), limit.to(tl.uint64)).to(tl.int64)
