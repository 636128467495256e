"""Random draws for kernels that make millions of them a batch: one wide multiplication a draw.

Number `counter` under `key` is wyrand's output at the state key + counter * 0xa0761d6478bd642f (Wang Yi, wyhash final
version 4, https://github.com/wangyi-fudan/wyhash, public domain): multiply the state by itself xor a constant and fold
the 128-bit product. It is as good as SplitMix64 in the usual batteries of tests, at a third of the cost, and needs
no state: draws are by counter, as everywhere (`tasks/counter_random.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from tasks.counter_random import GOLDEN, mix

STEP = np.uint64(0xA0761D6478BD642F)
"""From one draw of a stream to the next: state + STEP."""
SECOND_MULTIPLIER = np.uint64(0xE7037ED1A0B428DB)
_instruction: Callable[[Callable[..., Any]], Callable[..., Any]] = intrinsic  # callers do not pass `typing`
_WIDE, _LONG = ir.IntType(128), ir.IntType(64)


def _product(builder: Any, args: Any) -> tuple[Any, Any]:
    """Return the high and the low half of a 128-bit product."""
    wide = builder.mul(*(builder.zext(value, _WIDE) for value in args))
    return builder.trunc(builder.lshr(wide, _WIDE(64)), _LONG), builder.trunc(wide, _LONG)


@_instruction
def _multiply_high(typing, a, b):  # type: ignore[no-untyped-def]
    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return _product(builder, args)[0]

    return types.uint64(types.uint64, types.uint64), generate


@_instruction
def _multiply_fold(typing, a, b):  # type: ignore[no-untyped-def]
    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.xor(*_product(builder, args))

    return types.uint64(types.uint64, types.uint64), generate


@njit(inline="always")
def stream(key, number):  # type: ignore[no-untyped-def]
    """Return the first state of stream `number` under `key` (integers >= 0)."""
    return mix(np.uint64(key) + (np.uint64(number) + np.uint64(1)) * GOLDEN)


@njit(inline="always")
def output(state):  # type: ignore[no-untyped-def]
    """Return 64 random bits."""
    return _multiply_fold(state, state ^ SECOND_MULTIPLIER)


@njit(inline="always")
def below(state, limit):  # type: ignore[no-untyped-def]
    """Return an int64 in 0..limit-1; numbers differ in probability by limit / 2^64 at most."""
    return np.int64(_multiply_high(output(state), np.uint64(limit)))


@njit(inline="always")
def below_and_fraction(state, limit):  # type: ignore[no-untyped-def]
    """Return an int64 in 0..limit-1 and 64 random bits, independent of each other for limits far below 2^64.

    They are the whole part of limit * (64 random bits) / 2^64, and its fractional part times 2^64.
    """
    random = output(state)
    return np.int64(_multiply_high(random, np.uint64(limit))), random * np.uint64(limit)


@njit(inline="always")
def unit(state):  # type: ignore[no-untyped-def]
    """Return a float64 in (0, 1]."""
    return np.float64((output(state) >> np.uint64(11)) + np.uint64(1)) * (1.0 / 9007199254740992.0)
