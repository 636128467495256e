"""Prefetch instructions in numba, for loops that know early which memory they will read.

A loop over random places waits for one cache miss after the other unless it says some iterations ahead what it will
need. Prefetching is a hint: an address outside of the array does no harm, and results never depend on it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

AHEAD = 32
"""Elements of 4 or 8 bytes that loops look ahead. Zen 4, November 2026: 16 costs up to 10 % more, 64 gains nothing."""
ROWS_AHEAD = 16
"""Rows of features that loops look ahead: flat from 12 to 64 on the same machine."""
_LINE_BYTES = 64
_BYTE, _INT, _LONG = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_FIRST_LEVEL, _SECOND_LEVEL = 3, 2  # LLVM's locality hints, which choose the cache


def _emit(builder: Any, pointer: Any, locality: int) -> None:
    kind = ir.FunctionType(ir.VoidType(), [pointer.type, _INT, _INT, _INT])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(function, [pointer, _INT(0), _INT(locality), _INT(1)])  # 0: to read; 1: data


def _address(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    pointer = builder.gep(context.make_array(kind)(context, builder, array).data, [index])
    return builder.bitcast(pointer, _BYTE.as_pointer())


@intrinsic
def prefetch(typing, array, index):  # type: ignore[no-untyped-def]
    """Ask for array[index], a one-dimensional contiguous array, in the first-level cache."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        _emit(builder, _address(context, builder, signature.args[0], *args), _FIRST_LEVEL)
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


@cache
def row_prefetch(row_bytes: int) -> Callable[..., None]:
    """Return prefetch(array, index): ask for the `row_bytes` bytes from array[index] on in the second-level cache.

    A row of features is several lines; asking for them in the first level exhausts its fill buffers, and gathers then
    run at two thirds of the speed (Zen 4, rows of 400 and 512 bytes).
    """

    @intrinsic
    def prefetch_row(typing, array, index):  # type: ignore[no-untyped-def]
        def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
            start = _address(context, builder, signature.args[0], *args)
            # One byte short of a line more: rows seldom start where a line does.
            for offset in range(0, row_bytes + _LINE_BYTES - 4, _LINE_BYTES):
                _emit(builder, builder.gep(start, [_LONG(offset)]), _SECOND_LEVEL)
            return context.get_dummy_value()

        return types.void(array, types.int64), generate

    return prefetch_row
