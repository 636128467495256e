"""Compiles kernels for an H100, which needs none: `python -m tests.sampling.compile_for_gpus`; not in the interpreter.

What the interpreter runs may still be refused by the compiler.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from triton import compile as compile_kernel
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from models.kernels.sparse import product_triton
from tasks.sampling.device import neighbors_triton, rows_triton

HOPPER = GPUTarget("cuda", 90, 32)
WIDE = {"fanout", "first_place", "room", "rows", "beyond", "width", "stride"}
POINTERS = {"degree": "*fp32", "numbers": "*i32", "flags": "*i32", "ranks": "*i32", "local": "*i32", "place": "*i32"}


def cases() -> Iterator[tuple[Any, dict[str, str], dict[str, Any]]]:
    """Kernels, types of some arguments, and constants."""
    k, r = neighbors_triton, rows_triton
    for ids in ("*i32", "*i64"):
        own = {"ids": ids, "nodes": ids, "indices": ids}
        yield k.begin, own, {"HEAD": 4, "BLOCK": 256}
        yield k.flag, own, {"BLOCK": 256}
        yield k.number, own, {"BLOCK": 256}
        for flag in (False, True):
            yield k.count, own, {"REPLACES": flag, "COUNTS": flag, "BLOCK": 256}
            constants = {"REPLACES": flag, "SCANS": not flag, "KEEPS": flag, "MARKS": not flag}
            yield k.draw, own, {**constants, "ROWS": 8, "WIDTH": 64}
    for table, out in (("*fp32", "*fp32"), ("*fp16", "*bf16"), ("*bf16", "*bf16")):
        types = {"hot": table, "cold": table, "out": out, "ids": "*i32", "nodes": "*i32"}
        for split in (False, True):
            yield r._gather, types, {"SPLIT": split, "ROWS": 4, "WIDTH": 128}
            yield r._mean, types, {"SPLIT": split, "ROWS": 4, "WIDTH": 128}
    names = ("WEIGHTED", "BY_NUMBER", "BY_SOURCE", "BY_TARGET")
    types = dict.fromkeys(("x", "weight", "source_scale", "target_scale", "y"), "*fp32")
    types |= {"indices": "*i32", "edges": "*i32"}
    for flag in (False, True):
        constants = {"H": 1, "D": 100, "EDGES": 16, "WIDTH": 128, **dict.fromkeys(names, flag)}
        yield product_triton._multiply, types, constants


def main() -> None:
    for kernel, types, constants in cases():
        known = {**POINTERS, **dict.fromkeys(WIDE, "i64"), "hop": "i32", **types}
        names = kernel.arg_names
        signature = {name: "constexpr" if name in constants else known.get(name, "*i64") for name in names}
        values = {(names.index(name),): value for name, value in constants.items()}
        compiled = compile_kernel(ASTSource(kernel, signature, values), target=HOPPER)
        print(kernel.__name__, len(compiled.asm["cubin"]))


if __name__ == "__main__":
    main()
