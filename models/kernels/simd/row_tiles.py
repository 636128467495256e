"""A few rows at once in numba: some columns of each in one LLVM value, kept in registers.

    tile = RowTile(rows=4, lanes=16)
    q = load_rows(tile, queries, i * width + j, width, count)       # 16 columns of 4 rows
    change = change + absolute(q - repeated(tile, candidate))       # each of them with one candidate

A row that is loaded once meets several of the other side: loops compute more than they load. A value holds one row's
lanes after the other's; LLVM splits it into registers, and what only copies parts of it about costs nothing. Arithmetic
is that of `vector.py`, and so are single rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba import njit, types

from models.kernels.simd import _llvm
from models.kernels.simd._llvm import BYTES, FLOAT, HAS_AVX512, INT, KernelConstant
from models.kernels.simd.vector import FAST, VectorType, instruction

LEAST = 1.1754944e-38
"""The smallest normal float32, which is added to squares: 0 has no reciprocal root."""
REGISTER = 16
"""Lanes of a register of AVX-512."""


def guess_reciprocal_root(builder: Any, vector: Any) -> Any:
    """Return 1 / sqrt(x) of normal x > 0 to 14 bits; of registers of AVX-512 only."""
    every = ir.Constant(ir.IntType(REGISTER), -1)
    parts = []
    for first in range(0, vector.type.count, REGISTER):
        register = _picked(builder, vector, list(range(first, first + REGISTER)))
        arguments = [register, ir.Constant(register.type, ir.Undefined), every]
        parts.append(_llvm.call(builder, "llvm.x86.avx512.rsqrt14.ps.512", register.type, arguments))
    return _joined(builder, parts)


@instruction
def rough_reciprocal_root(typing, a):  # type: ignore[no-untyped-def]
    """rough_reciprocal_root(a) -> 1 / sqrt(a) of normal a > 0, lane by lane, to 14 bits or better."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        lanes = signature.return_type.lanes
        if HAS_AVX512 and lanes % REGISTER == 0:
            return guess_reciprocal_root(builder, args[0])
        root = _llvm.call(builder, f"llvm.sqrt.v{lanes}f32", args[0].type, [args[0]])
        return builder.fdiv(_llvm.constant(FLOAT, lanes, 1.0), root, flags=FAST)

    return a(a), generate


_SIGNS = 0xA9A9A811
"""Answers of four bits, from the lowest on: of NaN (two kinds) itself, of 0 0, of 1 1, of -infinity -1, of infinity 1,
of what is negative -1, of what is positive 1."""


@dataclass(frozen=True)
class RowTile(KernelConstant):
    """How many rows, and how many lanes of each."""

    rows: int
    lanes: int


def _vector(tile: Any) -> VectorType:
    return VectorType(tile.rows * tile.lanes)


def _picked(builder: Any, vector: Any, places: list[int]) -> Any:
    undefined = ir.Constant(vector.type, ir.Undefined)
    return builder.shuffle_vector(vector, undefined, ir.Constant(ir.VectorType(INT, len(places)), places))


def _cut(builder: Any, value: Any, tile: Any) -> list[Any]:
    starts = range(0, tile.rows * tile.lanes, tile.lanes)
    return [_picked(builder, value, list(range(start, start + tile.lanes))) for start in starts]


def _joined(builder: Any, rows: list[Any]) -> Any:
    """Make one value of rows; there are 1, 2, 4 or 8."""
    while len(rows) > 1:
        size = 2 * rows[0].type.count
        places = ir.Constant(ir.VectorType(INT, size), list(range(size)))
        rows = [builder.shuffle_vector(a, b, places) for a, b in zip(rows[::2], rows[1::2], strict=True)]
    return rows[0]


def _places(builder: Any, tile: Any, at: Any, stride: Any) -> list[Any]:
    return [builder.add(at, builder.mul(stride, ir.Constant(stride.type, row))) for row in range(tile.rows)]


@instruction
def zero_rows(typing, tile):  # type: ignore[no-untyped-def]
    """zero_rows(tile) -> zeros."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return _llvm.constant(FLOAT, signature.return_type.lanes, 0.0)

    return _vector(tile)(tile), generate


@instruction
def load_rows(typing, tile, array, at, stride, count):  # type: ignore[no-untyped-def]
    """load_rows(tile, array, at, stride, count) -> rows from `at`, at + stride, ... on; lanes from count on are 0."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        shape, kind = signature.args[0], signature.args[1]
        zero, mask = _llvm.constant(FLOAT, shape.lanes, 0.0), _llvm.first_lanes(builder, args[4], shape.lanes)
        rows = []
        for place in _places(builder, shape, args[2], args[3]):
            pointer = _llvm.vector_address(context, builder, kind, args[1], place, shape.lanes)
            arguments = [pointer, ir.Constant(INT, BYTES[FLOAT]), mask, zero]
            rows.append(_llvm.call(builder, f"llvm.masked.load.v{shape.lanes}f32.p0", zero.type, arguments))
        return _joined(builder, rows)

    return _vector(tile)(tile, array, types.int64, types.int64, types.int64), generate


@instruction
def store_rows(typing, tile, array, at, stride, value, count):  # type: ignore[no-untyped-def]
    """store_rows(tile, array, at, stride, value, count): write the first `count` lanes of each row."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        shape, kind = signature.args[0], signature.args[1]
        mask = _llvm.first_lanes(builder, args[5], shape.lanes)
        places = _places(builder, shape, args[2], args[3])
        for place, row in zip(places, _cut(builder, args[4], shape), strict=True):
            pointer = _llvm.vector_address(context, builder, kind, args[1], place, shape.lanes)
            arguments = [row, pointer, ir.Constant(INT, BYTES[FLOAT]), mask]
            _llvm.call(builder, f"llvm.masked.store.v{shape.lanes}f32.p0", ir.VoidType(), arguments)
        return context.get_dummy_value()

    return types.void(tile, array, types.int64, types.int64, _vector(tile), types.int64), generate


@instruction
def spread_rows(typing, tile, array, at, stride):  # type: ignore[no-untyped-def]
    """spread_rows(tile, array, at, stride) -> array[at], array[at + stride], ..., each in all lanes of a row."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        shape, kind = signature.args[0], signature.args[1]
        rows = []
        for place in _places(builder, shape, args[2], args[3]):
            number = builder.load(_llvm.address(context, builder, kind, args[1], place))
            rows.append(_llvm.splat(builder, number, shape.lanes))
        return _joined(builder, rows)

    return _vector(tile)(tile, array, types.int64, types.int64), generate


@instruction
def repeated(typing, tile, vector):  # type: ignore[no-untyped-def]
    """repeated(tile, vector) -> the vector in each row."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        shape = signature.args[0]
        return _picked(builder, args[1], list(range(shape.lanes)) * shape.rows)

    return _vector(tile)(tile, vector), generate


@instruction
def multiply_add(typing, a, b, c):  # type: ignore[no-untyped-def]
    """multiply_add(a, b, c) -> a b + c, lane by lane. LLVM fuses no product that is used twice: this does."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return _fused(builder, *args)

    return a(a, a, a), generate


@instruction
def fused(typing, a, b, c):  # type: ignore[no-untyped-def]
    """fused(a, b, c) -> a b + c, lane by lane, rounded once on every processor and never reordered."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return _llvm.call(builder, f"llvm.fma.v{signature.return_type.lanes}f32", args[0].type, args)

    return a(a, a, a), generate


@instruction
def sum_of_products(typing, tile, a, b, first):  # type: ignore[no-untyped-def]
    """sum_of_products(tile, a, b, first) -> vector: first, and the sum over rows of a b, lane by lane."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        rows = (_cut(builder, value, signature.args[0]) for value in args[1:3])
        sums = args[3]
        for one, other in zip(*rows, strict=True):
            sums = _fused(builder, one, other, sums)
        return sums

    vector = VectorType(tile.lanes)
    return vector(tile, _vector(tile), _vector(tile), vector), generate


def _fused(builder: Any, a: Any, b: Any, c: Any) -> Any:
    return _llvm.call(builder, f"llvm.fmuladd.v{a.type.count}f32", a.type, [a, b, c], FAST)


@instruction
def absolute(typing, a):  # type: ignore[no-untyped-def]
    """absolute(a) -> |a|, lane by lane."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return _llvm.call(builder, f"llvm.fabs.v{signature.return_type.lanes}f32", args[0].type, [args[0]])

    return a(a), generate


@instruction
def sign(typing, a):  # type: ignore[no-untyped-def]
    """sign(a) -> -1, 0 or 1, lane by lane; NaN passes."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        value, lanes = args[0], signature.return_type.lanes
        if HAS_AVX512 and lanes % REGISTER == 0:
            rows = _cut(builder, value, RowTile(lanes // REGISTER, REGISTER))
            return _joined(builder, [_sign_of_register(builder, row) for row in rows])
        one = _llvm.call(builder, f"llvm.copysign.v{lanes}f32", value.type, [_llvm.constant(FLOAT, lanes, 1.0), value])
        return builder.select(builder.fcmp_ordered("!=", value, _llvm.constant(FLOAT, lanes, 0.0)), one, value)

    return a(a), generate


def _sign_of_register(builder: Any, value: Any) -> Any:
    """Return the signs by one instruction, VFIXUPIMMPS: it has an answer for each class of numbers."""
    answers = _llvm.constant(INT, REGISTER, _SIGNS - 2**32)
    everywhere, usual = ir.Constant(ir.IntType(16), -1), ir.Constant(INT, 4)
    arguments = [value, value, answers, ir.Constant(INT, 0), everywhere, usual]
    return _llvm.call(builder, "llvm.x86.avx512.mask.fixupimm.ps.512", value.type, arguments)


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
