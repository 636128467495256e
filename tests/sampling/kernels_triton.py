"""Kernels that call what is tested: their names must be a module's. Import it where Triton is there."""

from __future__ import annotations

import triton
import triton.language as tl

from tasks.sampling.device.random_triton import below_and_rest, output, permute, stream, unit


@triton.jit(do_not_specialize=["key", "limit", "half"])
def fill_numbers(  # type: ignore[no-untyped-def]
    words, units, key: tl.uint64, limit: tl.int64, half: tl.int32, COUNT: tl.constexpr
):
    """Fill words int64 (3, COUNT) and units float64 (2, COUNT)."""
    i = tl.arange(0, COUNT).to(tl.int64)
    state = stream(key, i)
    item, rest = below_and_rest(state, limit)
    tl.store(words + i, output(state).to(tl.int64, bitcast=True))
    tl.store(words + COUNT + i, item)
    tl.store(words + 2 * COUNT + i, permute(key.to(tl.uint64) + (i % 3).to(tl.uint64), limit, half, i % limit))
    tl.store(units + i, unit(state))
    tl.store(units + COUNT + i, rest)
