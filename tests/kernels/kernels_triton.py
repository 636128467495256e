"""Kernels that call what is tested: their names must be a module's. Import it where Triton is there."""

from __future__ import annotations

import triton
import triton.language as tl

from models.kernels.tables.rounding_triton import mix, put


@triton.jit
def put_rows(out, values, noise: tl.uint64, ROWS: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """Write the same values, (WIDTH,), into all rows of out: bfloat16 (ROWS, WIDTH)."""
    rows, columns = tl.arange(0, ROWS)[:, None], tl.arange(0, WIDTH)[None, :]
    numbers = tl.load(values + columns) + tl.zeros([ROWS, WIDTH], tl.float32)
    random = mix(noise.to(tl.uint64) + rows.to(tl.uint64))
    put(out + rows * WIDTH + columns, numbers, (rows >= 0) & (columns >= 0), random, columns, True)
