"""Pieces of LLVM code that the vectors of `vector.py` are made of, and constants that kernels are compiled for."""

from __future__ import annotations

from dataclasses import fields
from functools import cache, cached_property
from typing import Any

from llvmlite import binding, ir
from numba.core import cgutils, config, types
from numba.core.extending import NativeValue
from numba.extending import models, register_model, unbox


class ConstantType(types.Type):
    """numba's type of one `KernelConstant`; its attributes are the constant's fields."""

    def __init__(self, constant: Any) -> None:
        for field in fields(constant):
            setattr(self, field.name, getattr(constant, field.name))
        super().__init__(name=repr(constant))


register_model(ConstantType)(models.OpaqueModel)


@unbox(ConstantType)  # type: ignore[no-untyped-call]
def _unbox_constant(kind: Any, value: Any, context: Any) -> Any:
    return NativeValue(context.context.get_dummy_value())  # type: ignore[no-untyped-call]


class KernelConstant:
    """Base of frozen dataclasses that kernels take as constants."""

    @cached_property  # every call of a kernel asks for it
    def _numba_type_(self) -> ConstantType:
        return _type_of(self)


@cache
def _type_of(constant: KernelConstant) -> ConstantType:
    return ConstantType(constant)


FLOAT, BYTE, SHORT, INT = ir.FloatType(), ir.IntType(8), ir.IntType(16), ir.IntType(32)
BYTES = {FLOAT: 4, SHORT: 2, BYTE: 1}
_NAMES = {FLOAT: "f32", SHORT: "i16", BYTE: "i8"}
_FEATURES: str | None = getattr(config, "CPU_FEATURES")  # noqa: B009 (numba makes it as it starts)
HAS_AVX512 = bool(binding.get_host_cpu_features().get("avx512f")) if _FEATURES is None else "+avx512f" in _FEATURES
"""Whether kernels are compiled for AVX-512: NUMBA_CPU_FEATURES may say otherwise than the processor."""


def constant(kind: Any, lanes: int, value: Any) -> Any:
    """Return a vector with one value in all lanes."""
    return ir.Constant(ir.VectorType(kind, lanes), [value] * lanes)


def splat(builder: Any, scalar: Any, lanes: int) -> Any:
    """Copy a scalar to all lanes."""
    kind = ir.VectorType(scalar.type, lanes)
    undefined = ir.Constant(kind, ir.Undefined)
    one = builder.insert_element(undefined, scalar, ir.Constant(INT, 0))
    return builder.shuffle_vector(one, undefined, constant(INT, lanes, 0))


def first_lanes(builder: Any, count: Any, lanes: int) -> Any:
    """Return the mask of the first `count` lanes."""
    numbers = ir.Constant(ir.VectorType(INT, lanes), list(range(lanes)))
    return builder.icmp_unsigned("<", numbers, splat(builder, builder.trunc(count, INT), lanes))


def call(builder: Any, name: str, result: Any, arguments: list[Any], flags: tuple[str, ...] = ()) -> Any:
    """Call an LLVM intrinsic."""
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    function = cgutils.get_or_insert_function(builder.module, kind, name)  # type: ignore[no-untyped-call]
    return builder.call(function, arguments, fastmath=flags)


def element(kind: Any) -> Any:
    """Return LLVM's type of an array's items: 16 bits for bfloat16, else float32."""
    return SHORT if kind.dtype == types.uint16 else FLOAT


def address(context: Any, builder: Any, kind: Any, array: Any, offset: Any) -> Any:
    """Return the address of array[offset]."""
    return builder.gep(context.make_array(kind)(context, builder, array).data, [offset])


def vector_address(context: Any, builder: Any, kind: Any, array: Any, offset: Any, lanes: int) -> Any:
    """Return the address of array[offset : offset + lanes]."""
    pointer = ir.VectorType(element(kind), lanes).as_pointer()
    return builder.bitcast(address(context, builder, kind, array, offset), pointer)


def load(context: Any, builder: Any, signature: Any, args: Any, kind: Any) -> Any:
    """Return what (lanes, array, offset, count) say, as it lies in memory: items of a kind, 0 where there are none."""
    shape, lanes = signature.args[0], signature.return_type.lanes
    place = address(context, builder, signature.args[1], args[1], args[2])
    place = builder.bitcast(place, ir.VectorType(kind, lanes).as_pointer())
    if not shape.partly:
        return builder.load(place, align=BYTES[kind])
    zero = constant(kind, lanes, 0.0 if kind is FLOAT else 0)
    arguments = [place, ir.Constant(INT, BYTES[kind]), first_lanes(builder, args[3], lanes), zero]
    return call(builder, f"llvm.masked.load.v{lanes}{_NAMES[kind]}.p0", zero.type, arguments)


def widen(builder: Any, raw: Any, lanes: int) -> Any:
    """Make float32 of bfloat16."""
    wide = builder.zext(raw, ir.VectorType(INT, lanes))
    return builder.bitcast(builder.shl(wide, constant(INT, lanes, 16)), ir.VectorType(FLOAT, lanes))


def narrow(builder: Any, vector: Any, lanes: int) -> Any:
    """Round float32 to bfloat16, ties to even; NaN stays NaN."""
    bits = builder.bitcast(vector, ir.VectorType(INT, lanes))
    even = builder.and_(builder.lshr(bits, constant(INT, lanes, 16)), constant(INT, lanes, 1))
    rounded = builder.add(bits, builder.add(even, constant(INT, lanes, 0x7FFF)))
    is_nan = builder.fcmp_unordered("uno", vector, vector)
    rounded = builder.select(is_nan, constant(INT, lanes, 0x7FC00000), rounded)
    return builder.trunc(builder.lshr(rounded, constant(INT, lanes, 16)), ir.VectorType(SHORT, lanes))


def stream(builder: Any, value: Any, pointer: Any, align: int) -> None:
    """Store past the caches."""
    hint = builder.module.add_metadata([ir.Constant(INT, 1)])
    builder.store(value, pointer, align=align).set_metadata("nontemporal", hint)


def prefetch(builder: Any, pointer: Any, cache: int) -> None:
    """Ask for a cache line in the cache of a level, 1 or 2."""
    hints = [ir.Constant(INT, number) for number in (0, 4 - cache, 1)]  # to read, how close, data
    pointer = builder.bitcast(pointer, ir.IntType(8).as_pointer())
    call(builder, "llvm.prefetch.p0", ir.VoidType(), [pointer, *hints])


def exponent(builder: Any, vector: Any, lanes: int) -> Any:
    """Return the whole numbers k of a = 2^k f, f from the root of 1/2 to that of 2."""
    bits = builder.bitcast(vector, ir.VectorType(INT, lanes))
    root = constant(INT, lanes, 0x3F3504F3)  # the root of 1/2
    return builder.ashr(builder.sub(bits, root), constant(INT, lanes, 23))
