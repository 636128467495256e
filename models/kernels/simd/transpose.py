"""Rows of numbers as columns: tiles in which a column of several rows is one vector."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types

from models.kernels.simd import _llvm
from models.kernels.simd._llvm import INT
from models.kernels.simd.vector import instruction


@instruction
def transpose(typing, square, rows, at, stride, tiles, to, step):  # type: ignore[no-untyped-def]
    """transpose(square, rows, at, stride, tiles, to, step): write a square's rows as columns, n numbers each.

    Its first number is read at `at` and written at `to`; strides are the steps from row to row. A quarter of a cycle a
    number, where single ones take four.
    """
    _check_numbers(rows)
    _check_numbers(tiles)

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        size = signature.args[0].count
        kinds, places, steps = signature.args[1::3], args[2::3], args[3::3]

        def pointer(k: int, number: int) -> Any:
            step = builder.mul(steps[k], ir.Constant(steps[k].type, number))
            return _llvm.vector_address(context, builder, kinds[k], args[1 + 3 * k], builder.add(places[k], step), size)

        def between(first: int) -> Any:
            places = [place + other for place in range(first, first + size // 2) for other in (0, size)]
            return ir.Constant(ir.VectorType(INT, size), places)

        vectors = [builder.load(pointer(0, number), align=4) for number in range(size)]
        # Each round puts rows i and i + n/2 between each other; after log2(n) rounds rows are columns.
        for _ in range(size.bit_length() - 1):
            vectors = [
                builder.shuffle_vector(vectors[i], vectors[i + size // 2], between(first))
                for i in range(size // 2)
                for first in (0, size // 2)
            ]
        for number, vector in enumerate(vectors):
            builder.store(vector, pointer(1, number), align=4)
        return context.get_dummy_value()

    place = types.int64
    return types.void(square, rows, place, place, tiles, place, place), generate


def _check_numbers(kind: Any) -> None:
    assert isinstance(kind, types.Array)
    assert kind.dtype == types.float32
    assert kind.layout == "C"


@njit(inline="always")
def lay_out(square, side, rows, row, count, tiles, begin, size):  # type: ignore[no-untyped-def]
    """Write `count` rows from `row` on, `size` at most, as the columns of the tile that begins at `begin`."""
    width = rows.shape[1]
    whole, full = width // side * side, count // side * side
    for lane in range(0, full, side):
        for j in range(0, whole, side):
            transpose(square, rows, (row + lane) * width + j, width, tiles, begin + j * size + lane, size)
    for lane in range(count):
        for j in range(whole if lane < full else 0, width):
            tiles[begin + j * size + lane] = rows[row + lane, j]
