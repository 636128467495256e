"""Prefetch instructions in numba, for loops that know early which memory they will read.

A loop over random places waits for one cache miss after the other unless it says some iterations ahead what it will
need. Prefetching is a hint: an address outside of the array does no harm, and results never depend on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba import types

from models.kernels.simd import _llvm
from models.kernels.simd._llvm import KernelConstant
from models.kernels.simd.vector import instruction

AHEAD = 32
"""Elements of 4 or 8 bytes that loops look ahead. Zen 4, November 2026: 16 costs up to 10 % more, 64 gains nothing."""
ROWS_AHEAD, ROWS_NEAR = 32, 12
"""Rows of features that loops look ahead, in the second and the first level: flat from 16 to 64 and from 8 to 16."""
_LINE_BYTES = 64


@dataclass(frozen=True)
class Lines(KernelConstant):
    """How many cache lines `prefetch_row` asks for."""

    count: int


def row_lines(row_bytes: int, item_bytes: int) -> tuple[Lines, Lines | None]:
    """Return how many lines to ask for where rows of so many bytes are read at random, and how many once more, in the
    first level, shortly before they are read; None: none.

    As many as a row can touch, and two more: reading several lines in a row sets the processor's own prefetcher off,
    which runs past the row's end, and what it wants had better be on its way. Rows of 200, 400 and 512 bytes are
    gathered 1.3, 1.15 and 1.1 times as fast as with the row's own lines. 16-bit numbers are widened as they are loaded,
    and that waits for the second level: asking once more saves a sixth. Rows of float32 lose a tenth by it (Zen 4,
    November 2026).
    """
    touched = -(-(row_bytes + _LINE_BYTES - 4) // _LINE_BYTES)
    far = Lines(touched + 2 if row_bytes > _LINE_BYTES else touched)
    return far, Lines(-(-row_bytes // _LINE_BYTES)) if item_bytes == 2 else None


def _row_prefetch(cache: int) -> Callable[..., Any]:
    def prefetch_lines(typing, lines, array, start):  # type: ignore[no-untyped-def]
        def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
            first = _llvm.address(context, builder, signature.args[1], args[1], args[2])
            first = builder.bitcast(first, ir.IntType(8).as_pointer())
            for line in range(signature.args[0].count):
                _llvm.prefetch(builder, builder.gep(first, [ir.IntType(64)(line * _LINE_BYTES)]), cache)
            return context.get_dummy_value()

        return types.void(lines, array, types.int64), generate

    return instruction(prefetch_lines)


prefetch_row = _row_prefetch(2)
"""prefetch_row(lines, array, start): ask for the row of features from array[start] on in the second-level cache.

A row is several lines. Asked for in the first level they exhaust its fill buffers, and gathers run at two thirds of the
speed (Zen 4). The instructions are unrolled: a loop over lines takes longer than the reading itself.
"""
prefetch_row_near = _row_prefetch(1)
"""prefetch_row_near(lines, array, start): the same in the first-level cache, for rows that are in the second."""
