"""What scores are summed of, as LLVM vectors: strict arithmetic, so that equal rows have equal scores.

A score is the sum of its terms from the first column to the last, one lane per entity. Nothing here may be reordered
or contracted by the compiler (`vector.py`'s own arithmetic may be): every kernel, on every tile, then gives the same
bits for the same query and row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from llvmlite import ir
from numba import types

from models.kernels.simd import _llvm
from models.kernels.simd._llvm import FLOAT, HAS_AVX512
from models.kernels.simd.constants import KernelConstant
from models.kernels.simd.roots import LEAST, guess_reciprocal_root
from models.kernels.simd.vector import Lanes, VectorType, instruction

Kind = Literal["dot", "l1", "l2", "complex"]
LANES = Lanes(32 if HAS_AVX512 else 8)
"""Entities that are scored at once, with GROUP queries: 16 accumulators of AVX-512's 32 registers, 8 of AVX2's 16.
Half the queries with twice the entities is as fast, but their columns leave the first-level cache."""
GROUP = 8
SQUARE = Lanes(min(LANES.count, 16))
"""Rows and columns that are transposed in registers."""


@dataclass(frozen=True)
class Similarity(KernelConstant):
    """Which similarity a kernel is compiled for."""

    kind: Kind


@instruction
def spread(typing, lanes, array, offset):  # type: ignore[no-untyped-def]
    """spread(lanes, array, offset) -> vector with array[offset] in all lanes; of None instead of an array None."""
    if isinstance(array, types.NoneType):
        return types.none(lanes, array, types.int64), lambda context, *_: context.get_dummy_value()

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        number = builder.load(_llvm.address(context, builder, signature.args[1], args[1], args[2]))
        return _llvm.splat(builder, number, signature.return_type.lanes)

    return VectorType(lanes.count)(lanes, array, types.int64), generate


@instruction
def add_term(typing, similarity, score, query, scale, entity, query2, entity2):  # type: ignore[no-untyped-def]
    """Return the score with one term more; in `complex` the second numbers are imaginary parts, else they are not read.

    Of `l2` it is the squares that are summed, without the root: their order is the same.
    """
    assert isinstance(scale, types.NoneType) or similarity.kind in ("l1", "l2"), "only distances have a scale"

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        lanes = signature.return_type.lanes
        score, query, scale, entity, query2, entity2 = args[1:]
        if similarity.kind == "dot":
            return _multiply_add(builder, query, entity, score)
        if similarity.kind == "complex":
            return _subtract_modulus(builder, score, builder.fsub(query, entity), builder.fsub(query2, entity2), lanes)
        if isinstance(signature.args[3], types.NoneType):
            difference = builder.fsub(query, entity)
        else:
            difference = _multiply_add(builder, builder.fneg(scale), entity, query)
        if similarity.kind == "l1":
            return builder.fsub(score, _call(builder, "llvm.fabs", [difference]))
        return _multiply_add(builder, builder.fneg(difference), difference, score)

    vectors = [query, scale, entity, query2, entity2]
    return score(similarity, score, *vectors), generate


def _call(builder: Any, name: str, arguments: list[Any]) -> Any:
    kind = arguments[0].type
    return _llvm.call(builder, f"{name}.v{kind.count}f32", kind, arguments)


def _multiply_add(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """Return a b + c, rounded once."""
    return _call(builder, "llvm.fma", [a, b, c])


def _subtract_modulus(builder: Any, score: Any, real: Any, imaginary: Any, lanes: int) -> Any:
    """Return score - |real + i imaginary|; NaN and infinity pass, as NaN.

    AVX-512's root takes 18 cycles or more, its guess of a reciprocal root to 14 bits takes 2: one step of Newton's
    makes it right to 27 bits, and is part of the sum: sqrt(x) = t (3 - t y) / 2 with y the guess and t = x y.
    """
    if not HAS_AVX512:
        square = _multiply_add(builder, real, real, builder.fmul(imaginary, imaginary))
        return builder.fsub(score, _call(builder, "llvm.sqrt", [square]))
    least = _llvm.constant(FLOAT, lanes, LEAST)
    square = _multiply_add(builder, real, real, _multiply_add(builder, imaginary, imaginary, least))
    guess = guess_reciprocal_root(builder, square)
    root = builder.fmul(square, guess)
    rest = _multiply_add(builder, builder.fneg(root), guess, _llvm.constant(FLOAT, lanes, 3.0))
    half = builder.fmul(root, _llvm.constant(FLOAT, lanes, -0.5))
    return _multiply_add(builder, half, rest, score)


def _mask(compare: Callable[[Any, list[Any], int], Any]) -> Callable[..., Any]:
    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        lanes = signature.args[0].lanes
        bits = builder.bitcast(compare(builder, args, lanes), ir.IntType(lanes))
        return builder.zext(bits, ir.IntType(64))

    return generate


def _above(builder: Any, args: list[Any], lanes: int) -> Any:
    return builder.fcmp_ordered(">", args[0], _llvm.splat(builder, args[1], lanes))


def _same(builder: Any, args: list[Any], lanes: int) -> Any:
    return builder.fcmp_ordered("==", args[0], _llvm.splat(builder, args[1], lanes))


def _bad(builder: Any, args: list[Any], lanes: int) -> Any:
    size = _call(builder, "llvm.fabs", [args[0]])
    return builder.fcmp_unordered("==", size, _llvm.constant(FLOAT, lanes, float("inf")))


@instruction
def lanes_above(typing, scores, bound):  # type: ignore[no-untyped-def]
    """lanes_above(scores, bound) -> uint64: a bit for each lane above the float32."""
    return types.uint64(scores, types.float32), _mask(_above)


@instruction
def lanes_equal(typing, scores, bound):  # type: ignore[no-untyped-def]
    """lanes_equal(scores, bound) -> uint64: a bit for each lane equal to the float32."""
    return types.uint64(scores, types.float32), _mask(_same)


@instruction
def lanes_not_finite(typing, scores):  # type: ignore[no-untyped-def]
    """lanes_not_finite(scores) -> uint64: a bit for each lane that is NaN or infinite."""
    return types.uint64(scores), _mask(_bad)


@instruction
def num_bits(typing, bits):  # type: ignore[no-untyped-def]
    """num_bits(bits) -> int64: how many bits of a uint64 are set."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return _llvm.call(builder, "llvm.ctpop.i64", ir.IntType(64), [args[0]])

    return types.int64(types.uint64), generate


@instruction
def lowest_bit(typing, bits):  # type: ignore[no-untyped-def]
    """lowest_bit(bits) -> int64: the place of the lowest bit that is set, of a uint64 that is not 0."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        yes = ir.Constant(ir.IntType(1), 1)
        return _llvm.call(builder, "llvm.cttz.i64", ir.IntType(64), [args[0], yes])

    return types.int64(types.uint64), generate
