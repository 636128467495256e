"""Text read eight and sixty-four bytes at a time: digits' values, and where something else begins."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

POWERS_OF_TEN = np.array([10**k for k in range(9)], np.uint64)


@intrinsic
def load_word(typing_context, buf, i):  # type: ignore[no-untyped-def]
    """Return buf[i:i + 8] as a little-endian uint64, at any alignment."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        array = context.make_array(signature.args[0])(context, builder, args[0])
        place = builder.gep(array.data, [args[1]])
        word = builder.load(builder.bitcast(place, ir.IntType(64).as_pointer()))
        word.align = 1
        return word

    return types.uint64(buf, types.intp), generate


@intrinsic
def trailing_zeros(typing_context, x):  # type: ignore[no-untyped-def]
    """Return the number of zero bits below the lowest one of a uint64 other than 0."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), generate


@intrinsic
def bytes_outside(typing_context, buf, i, low, span):  # type: ignore[no-untyped-def]
    """Return the bytes of buf[i:i + 64] outside low..low + span as bits of a uint64: one comparison with AVX-512."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        byte, vector = ir.IntType(8), ir.VectorType(ir.IntType(8), 64)
        array = context.make_array(signature.args[0])(context, builder, args[0])
        block = builder.load(builder.bitcast(builder.gep(array.data, [args[1]]), vector.as_pointer()))
        block.align = 1
        same = ir.Constant(ir.VectorType(ir.IntType(32), 64), [0] * 64)
        undefined = ir.Constant(vector, ir.Undefined)
        first, width = (
            builder.shuffle_vector(
                builder.insert_element(undefined, builder.trunc(value, byte), ir.Constant(ir.IntType(32), 0)),
                undefined,
                same,
            )
            for value in args[2:]
        )
        return builder.bitcast(builder.icmp_unsigned(">", builder.sub(block, first), width), ir.IntType(64))

    return types.uint64(buf, types.intp, types.intp, types.intp), generate


@intrinsic
def count_bits(typing_context, x):  # type: ignore[no-untyped-def]
    """Return the number of bits of a uint64 that are set."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), generate


@njit(cache=True, nogil=True)
def digits_value(word, count):  # type: ignore[no-untyped-def]
    """Return the number that the first `count` (1 to 8) bytes of a word of text write.

    Pairs, fours and eights of digits are joined by multiplications (Lemire: Number parsing at a gigabyte per
    second, Software: Practice and Experience 51, 2021).
    """
    word ^= np.uint64(0x3030303030303030)  # digits become 0..9
    word <<= np.uint64(64) - (np.uint64(count) << np.uint64(3))  # missing digits become leading zeros
    word = word * np.uint64(10) + (word >> np.uint64(8))
    word = (
        (word & np.uint64(0x000000FF000000FF)) * np.uint64(0x000F424000000064)
        + ((word >> np.uint64(16)) & np.uint64(0x000000FF000000FF)) * np.uint64(0x0000271000000001)
    ) >> np.uint64(32)
    return word & np.uint64(0xFFFFFFFF)


@njit(cache=True, nogil=True)
def read_digits(buf, i):  # type: ignore[no-untyped-def]
    """Read digits from i on, eight at a time.

    Return (position after them, value, modulo 2^64). Reads up to 8 bytes beyond the last digit.
    """
    value = np.uint64(0)
    while True:
        word: Any = load_word(buf, i)  # type: ignore[call-arg]
        values = word ^ np.uint64(0x3030303030303030)  # digits become 0..9
        others = ((values + np.uint64(0x7676767676767676)) | values) & np.uint64(0x8080808080808080)
        count = np.uint64(8) if others == np.uint64(0) else trailing_zeros(others) >> np.uint64(3)
        if count == np.uint64(0):
            return i, value
        value = value * POWERS_OF_TEN[count] + digits_value(word, count)
        i += np.int64(count)
        if count < np.uint64(8):
            return i, value
