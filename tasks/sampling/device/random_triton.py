"""`counter_random`, `fast_random` and draws from alias tables on GPUs: the same numbers, bit by bit.

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
_TWO_TO_MINUS_53 = tl.constexpr(2.0**-53)
_TWO_TO_MINUS_64 = tl.constexpr(2.0**-64)
_ROUNDS = tl.constexpr(4)


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


@triton.jit
def below_and_rest(state, limit):  # type: ignore[no-untyped-def]
    """Return an int64 in 0..limit-1 and a float64 in [0, 1)."""
    random, limit = output(state), limit.to(tl.uint64)
    return tl.umulhi(random, limit).to(tl.int64), (random * limit).to(tl.float64) * _TWO_TO_MINUS_64


@triton.jit
def unit(state):  # type: ignore[no-untyped-def]
    """Return a float64 in (0, 1]."""
    return ((output(state) >> 11) + 1).to(tl.float64) * _TWO_TO_MINUS_53


@triton.jit
def chosen(place, item, rest):  # type: ignore[no-untyped-def]
    """Return the own item of an alias table's place, given as int64, or the other one."""
    place = place.to(tl.uint64, bitcast=True)
    is_own = rest * 4294967296.0 < (place >> 32).to(tl.float64)
    return tl.where(is_own, item, (place & 0xFFFFFFFF).to(tl.int64))


@triton.jit
def draw(table, num_items, state, mask):  # type: ignore[no-untyped-def]
    """Return an item, int64, of an alias table, int64 (num_items,); 0 where `mask` is false."""
    item, rest = below_and_rest(state, num_items)
    return tl.where(mask, chosen(tl.load(table + item, mask=mask, other=0), item, rest), 0)


@triton.jit
def _bits(seed, stream_number, counter):  # type: ignore[no-untyped-def]
    key = mix(mix(seed + _GOLDEN) + (stream_number + 1).to(tl.uint64) * _GOLDEN)
    return mix(key + (counter + 1) * _GOLDEN)


@triton.jit
def _rounds(seed, half, mask, x):  # type: ignore[no-untyped-def]
    left, right = x >> half, x & mask
    for r in tl.static_range(_ROUNDS):
        after = left ^ (_bits(seed, tl.full([], r, tl.uint64), right) & mask)
        left, right = right, after
    return (left << half) | right


@triton.jit
def permute(seed, n, half, i):  # type: ignore[no-untyped-def]
    """Return images under bijections on 0..n-1, one for each uint64 of `seed`; half: half of n's bits, rounded up."""
    half = half.to(tl.uint64)
    mask = (tl.full([], 1, tl.uint64) << half) - 1
    limit = n.to(tl.uint64)
    x = _rounds(seed, half, mask, i.to(tl.uint64))
    while tl.max((x >= limit).to(tl.int32), 0) > 0:
        x = tl.where(x >= limit, _rounds(seed, half, mask, x), x)
    return x.to(tl.int64)
