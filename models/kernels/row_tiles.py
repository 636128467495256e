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
from numba import types

from models.kernels import _llvm
from models.kernels._llvm import BYTES, FLOAT, INT
from models.kernels.constants import Constant
from models.kernels.roots import HAS_AVX512, REGISTER
from models.kernels.vector import FAST, VectorType, instruction


@dataclass(frozen=True)
class RowTile(Constant):
    """How many rows, and how many lanes of each."""

    rows: int
    lanes: int


def _vector(tile: Any) -> VectorType:
    return VectorType(tile.rows * tile.lanes)


def _picked(builder: Any, vector: Any, places: list[int]) -> Any:
    """Return the lanes at some places."""
    undefined = ir.Constant(vector.type, ir.Undefined)
    return builder.shuffle_vector(vector, undefined, ir.Constant(ir.VectorType(INT, len(places)), places))


def _cut(builder: Any, value: Any, tile: Any) -> list[Any]:
    """Return a value's rows."""
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
def sum_of_rows(typing, tile, value):  # type: ignore[no-untyped-def]
    """sum_of_rows(tile, value) -> vector: the rows' sum, lane by lane."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        first, *others = _cut(builder, args[1], signature.args[0])
        for row in others:
            first = builder.fadd(first, row, flags=FAST)
        return first

    return VectorType(tile.lanes)(tile, _vector(tile)), generate


@instruction
def multiply_add(typing, a, b, c):  # type: ignore[no-untyped-def]
    """multiply_add(a, b, c) -> a b + c, lane by lane. LLVM fuses no product that is used twice: this does."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return _fused(builder, *args)

    return a(a, a, a), generate


@instruction
def sum_of_products(typing, tile, a, b, first):  # type: ignore[no-untyped-def]
    """sum_of_products(tile, a, b, first) -> vector: first, and the sum over rows of a b, lane by lane."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        rows = (_cut(builder, value, signature.args[0]) for value in args[1:3])
        found = args[3]
        for one, other in zip(*rows, strict=True):
            found = _fused(builder, one, other, found)
        return found

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
def signed(typing, number, difference):  # type: ignore[no-untyped-def]
    """signed(number, difference) -> number times the sign of difference, lane by lane: 0 where that is 0."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        lanes = signature.return_type.lanes
        bits = [builder.bitcast(value, ir.VectorType(INT, lanes)) for value in args]
        changed = builder.bitcast(_with_sign(builder, *bits), args[0].type)
        zero = _llvm.constant(FLOAT, lanes, 0.0)
        return builder.select(builder.fcmp_unordered("!=", args[1], zero), changed, zero)

    return number(number, number), generate


def _with_sign(builder: Any, number: Any, other: Any) -> Any:
    """Return number's bits, the sign turned over where other has one."""
    if not HAS_AVX512 or number.type.count % REGISTER:
        sign = _llvm.constant(INT, number.type.count, -(2**31))
        return builder.xor(number, builder.and_(other, sign))
    # LLVM makes two instructions of this where the result is masked.
    sign, table = _llvm.constant(INT, REGISTER, -(2**31)), ir.Constant(INT, 0x6A)
    whole = RowTile(number.type.count // REGISTER, REGISTER)
    rows = zip(_cut(builder, other, whole), _cut(builder, number, whole), strict=True)
    name = "llvm.x86.avx512.pternlog.d.512"
    return _joined(builder, [_llvm.call(builder, name, sign.type, [a, sign, b, table]) for a, b in rows])
