"""Kernels that call what is tested: their names must be a module's. Import it where Triton is there."""

from __future__ import annotations

import triton
import triton.language as tl

from tasks.sampling.device.neighbors_triton import below, output, stream


@triton.jit(do_not_specialize=["key", "limit"])
def fill_numbers(words, key: tl.uint64, limit: tl.int64, COUNT: tl.constexpr):  # type: ignore[no-untyped-def]
    """Fill words int64 (2, COUNT)."""
    i = tl.arange(0, COUNT).to(tl.int64)
    state = stream(key, i)
    tl.store(words + i, output(state).to(tl.int64, bitcast=True))
    tl.store(words + COUNT + i, below(state, limit))
