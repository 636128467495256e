"""Arguments of kernels whose value is part of their numba type: a kernel is compiled once for each value."""

from __future__ import annotations

from dataclasses import fields
from functools import cache, cached_property
from typing import Any

from numba import types
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
