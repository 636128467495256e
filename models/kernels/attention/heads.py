"""Attention heads as vectors in numba: a row of (H, D) columns is one vector, its heads' numbers another of H lanes.

    w = exp(load(scores, score_src, u * num_heads + first, tile_heads))   # one number a head
    acc = acc + spread(heads, w) * load(row, x, u * stride + column, width)  # over each head's columns
    dot = sum_heads(heads, a * b)                                         # and back

Both are shuffles that LLVM knows at compile time: nothing goes through memory, whatever H and D are. A kernel is
compiled once for each shape of a tile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba import types

from models.kernels.simd import _llvm
from models.kernels.simd._llvm import FLOAT, INT, KernelConstant
from models.kernels.simd.vector import WIDEST, Lanes, VectorType, instruction

_FAST = ("contract", "reassoc", "nsz", "arcp")
_PADDING = 16  # lanes: an AVX-512 register


@dataclass(frozen=True)
class HeadShape(KernelConstant):
    """`count` heads of `dim` columns."""

    count: int
    dim: int


def _row_lanes(heads: Any) -> int:
    return -(-heads.count * heads.dim // _PADDING) * _PADDING


@dataclass(frozen=True)
class HeadTile:
    """Columns of a row that a kernel works on at once: some heads, or a part of one wide head."""

    first: int
    """First head."""
    column: int
    """First column of the row."""
    heads: HeadShape

    def place(self, num_heads: int, dim: int) -> tuple[Any, ...]:
        """Return what kernels are told of the tile in rows of num_heads x dim columns, as `tile`.

        heads, numbers (lanes of the heads' numbers), lanes (of the columns), width (columns of the tile), column (the
        first), stride (columns of a row), count (heads of the tile), first (of them), num_heads.
        """
        count, width, lanes = self.heads.count, self.heads.count * self.heads.dim, _row_lanes(self.heads)
        shape = (self.heads, Lanes(count), Lanes(lanes, width < lanes))
        return *shape, width, self.column, num_heads * dim, count, self.first, num_heads


def head_tiles(num_heads: int, dim: int, widest: int = WIDEST, splits_heads: bool = True) -> list[HeadTile]:
    """Cut a row of num_heads x dim columns into tiles of at most `widest` columns; a wider head stays whole if told."""
    if dim > widest and not splits_heads:
        return [HeadTile(head, head * dim, HeadShape(1, dim)) for head in range(num_heads)]
    if dim > widest:
        pieces = -(-dim // widest)
        step = -(-dim // pieces)
        return [
            HeadTile(head, head * dim + column, HeadShape(1, min(step, dim - column)))
            for head in range(num_heads)
            for column in range(0, dim, step)
        ]
    count = -(-num_heads // -(-num_heads * dim // widest))
    count = min(count, widest // dim)
    return [
        HeadTile(head, head * dim, HeadShape(min(count, num_heads - head), dim)) for head in range(0, num_heads, count)
    ]


def _shuffle(builder: Any, vector: Any, lanes: list[int | None]) -> Any:
    """Return a vector of the given lanes of another; None: zero."""
    zero = _llvm.constant(FLOAT, vector.type.count, 0.0)
    numbers = [vector.type.count if lane is None else lane for lane in lanes]
    return builder.shuffle_vector(vector, zero, ir.Constant(ir.VectorType(INT, len(numbers)), numbers))


@instruction
def spread(typing, heads, numbers):  # type: ignore[no-untyped-def]
    """spread(heads, numbers) -> a row with each head's number in all its columns."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        shape = signature.args[0]
        width = shape.count * shape.dim
        lanes: list[int | None] = [lane // shape.dim if lane < width else None for lane in range(_row_lanes(shape))]
        return _shuffle(builder, args[1], lanes)

    return VectorType(_row_lanes(heads))(heads, VectorType(heads.count)), generate


@instruction
def sum_heads(typing, heads, row):  # type: ignore[no-untyped-def]
    """sum_heads(heads, row) -> the sum of each head's columns."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        shape = signature.args[0]
        vector, dim = args[1], shape.dim
        if dim == 1:
            return _shuffle(builder, vector, list(range(shape.count)))
        while dim > 1:
            half = (dim + 1) // 2
            low: list[int | None] = [h * dim + i for h in range(shape.count) for i in range(half)]
            high = [h * dim + half + i if half + i < dim else None for h in range(shape.count) for i in range(half)]
            vector = builder.fadd(_shuffle(builder, vector, low), _shuffle(builder, vector, high), flags=_FAST)
            dim = half
        return vector

    return VectorType(heads.count)(heads, VectorType(_row_lanes(heads))), generate


@instruction
def leaky(typing, a, slope):  # type: ignore[no-untyped-def]
    """Return a where a > 0, else slope * a."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        value, lanes = args[0], signature.return_type.lanes
        sloped = builder.fmul(value, _llvm.splat(builder, args[1], lanes), flags=_FAST)
        return builder.select(builder.fcmp_ordered(">", value, _llvm.constant(FLOAT, lanes, 0.0)), value, sloped)

    return a(a, types.float32), generate


@instruction
def leaky_gradient(typing, a, slope, gradient):  # type: ignore[no-untyped-def]
    """Return the gradient where a > 0, else slope * gradient."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        lanes = signature.return_type.lanes
        sloped = builder.fmul(args[2], _llvm.splat(builder, args[1], lanes), flags=_FAST)
        return builder.select(builder.fcmp_ordered(">", args[0], _llvm.constant(FLOAT, lanes, 0.0)), args[2], sloped)

    return a(a, types.float32, a), generate
