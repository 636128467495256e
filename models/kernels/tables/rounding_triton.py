"""What `row_steps.put` does, on GPUs: rows of bfloat16 tables rounded up or down by chance. Not yet run on a GPU."""

from __future__ import annotations

import triton
import triton.language as tl

_ODD = tl.constexpr(0x9E3779B1)  # 2^32 over the golden ratio


@triton.jit
def mix(x):  # type: ignore[no-untyped-def]
    """SplitMix64's finaliser (see tasks/counter_random.py): uint64 to uint64."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return x ^ (x >> 31)


@triton.jit
def put(pointers, values, mask, noise, columns, BY_CHANCE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Store float32 values; with BY_CHANCE in bfloat16, 16 random bits added below those that stay.

    `noise`: random uint64, another one for every row; `columns` int32: both as broadcast to the shape of `values`.
    """
    if BY_CHANCE:
        low, high = noise.to(tl.uint32), (noise >> 32).to(tl.uint32) | 1
        # Two products: by one alone, neighbouring columns of a row would be a constant apart.
        mixed = (columns.to(tl.uint32) * _ODD + low) * high
        mixed = (mixed ^ (mixed >> 15)) * 0x2C1B3C6D
        bits = values.to(tl.uint32, bitcast=True) + (mixed >> 16)
        tl.store(pointers, (bits >> 16).to(tl.uint16).to(tl.bfloat16, bitcast=True), mask=mask)
    else:
        tl.store(pointers, values, mask=mask)
