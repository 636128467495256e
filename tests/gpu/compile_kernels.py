"""Compiles every kernel for an H100, which needs none: `python -m tests.gpu.compile_kernels`; not in the interpreter.

What the interpreter runs may still be refused by the compiler. With `--ptx FOLDER` the assembler's text is kept there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from triton import compile as compile_kernel
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from models.kernels.attention import gat_triton, gatv2_triton
from models.kernels.layout import move_points_triton
from models.kernels.skipgram import train_pairs_triton
from models.kernels.sparse import message_triton, product_triton, sddmm_triton, spmm_max_triton
from tasks.sampling.device import alias_triton, neighbors_triton, rows_triton, walk_pairs_triton, walks_triton

HOPPER = GPUTarget("cuda", 90, 32)
FLOATS = ("*fp32", "*fp16", "*bf16")
Case = tuple[Any, dict[str, str], dict[str, Any]]
"""A kernel, types of arguments that are not `*i64`, and constants."""


def typed(kind: str, *names: str) -> dict[str, str]:
    """One type for many arguments."""
    return dict.fromkeys(names, kind)


def attention() -> Iterator[Case]:
    scalars = {**typed("fp32", "slope", "scale"), **typed("i64", "low", "high", "threshold"), "num_dst": "i32"}
    numbers = typed("*fp32", "score_src", "score_dst", "attn", "log_sums", "dots", "shares")
    ids = typed("*i32", "indices", "edges")
    for kind in FLOATS:
        rows = typed(kind, "x", "x_src", "x_dst", "grad", "y", "grad_x")
        for drops in (False, True):
            constants = {"H": 4, "D": 40, "EDGES": 16, "WIDTH": 64, "DROPS": drops}
            for module, own in ((gat_triton, "*fp32"), (gatv2_triton, kind)):
                types = {**scalars, **numbers, **ids, **rows, **typed(own, "grad_src", "grad_dst")}
                for kernel in (module._forward, module._backward_targets, module._backward_sources):
                    yield kernel, types, constants


def sums() -> Iterator[Case]:
    ids = typed("*i32", "indices", "edges", "codes", "rank", "out_indices", "out_edges")
    floats = {**typed("*fp32", "number", "log_sums", "shares", "s"), "eps": "fp32", "D": "i32", "width": "i32"}
    block = {"EDGES": 16, "WIDTH": 128}
    for kind in FLOATS:
        names = ("x", "y", "a", "b", "term", "grad", "grad_x", "weight", "source_scale", "target_scale")
        types = {**ids, **floats, **typed(kind, *names)}
        for case in range(3):
            gradient = {"grad_term": "*fp32" if case == 2 else kind}
            constants = {"KIND": case, "TERM": (case + 1) % 3, **block}
            yield message_triton._forward, types, constants
            yield message_triton._backward, {**types, **gradient}, constants
        yield spmm_max_triton._forward, types, block
        yield spmm_max_triton._backward, types, block
        for flag in (False, True):
            shape = {"H": 2, "D": 100, **typed(flag, "BY_SOURCE", "BY_TARGET"), **block}  # type: ignore[arg-type]
            yield sddmm_triton._dot_rows, types, shape
            yield product_triton._multiply, types, {**shape, "WEIGHTED": flag, "BY_NUMBER": flag}


def neighborhoods() -> Iterator[Case]:
    k, wide = neighbors_triton, typed("i64", "fanout", "first_place", "room", "rows", "beyond")
    known = {**wide, "hop": "i32", "degree": "*fp32", **typed("*i32", "numbers", "flags", "ranks", "local")}
    for ids in ("*i32", "*i64"):
        own = {**known, **typed(ids, "ids", "nodes", "indices")}
        yield k.begin, own, {"HEAD": 4, "BLOCK": 256}
        yield k.flag, own, {"BLOCK": 256}
        yield k.number, own, {"BLOCK": 256}
        for flag in (False, True):
            yield k.count, own, {"REPLACES": flag, "COUNTS": flag, "BLOCK": 256}
            constants = {"REPLACES": flag, "SCANS": not flag, "KEEPS": flag, "MARKS": not flag}
            yield k.draw, own, {**constants, "ROWS": 8, "WIDTH": 64}
    for table, out in (("*fp32", "*fp32"), ("*fp16", "*bf16"), ("*bf16", "*bf16")):
        types = {**typed(table, "hot", "cold"), "out": out, **typed("*i32", "ids", "nodes", "place")}
        types |= typed("i64", "rows", "width", "stride")
        for split in (False, True):
            yield rows_triton._gather, types, {"SPLIT": split, "ROWS": 4, "WIDTH": 128}
            yield rows_triton._mean, types, {"SPLIT": split, "ROWS": 4, "WIDTH": 128}


def walks() -> Iterator[Case]:
    sizes = ("count", "length", "num_starts", "num_items", "num_walks", "num_tokens", "window", "room")
    floats = {**typed("*fp32", "weight", "largest"), "chances": "*fp64"}
    known = {**typed("i64", "first", *sizes), "key": "u64", "half": "i32", **floats}
    for ids in ("*i32", "*i64"):
        own = {**known, **typed(ids, "indices", "starts", "tokens", "sources", "targets", "out", "centres", "contexts")}
        yield alias_triton._draw, own, {"DRAWS": 512}
        for flag in (False, True):
            for second in (False, True):
                constants = {"WEIGHTED": flag, "BY_DEGREE": flag, "SECOND_ORDER": second, "PATIENCE": 64, "WALKS": 64}
                yield walks_triton._fill_walks, own, constants
            yield walks_triton._fill_edges, own, {"WEIGHTED": flag, "WALKS": 64}
            counted = {**own, **typed("*i32", "counts", "before")}
            yield walk_pairs_triton._count, counted, {"FORWARD": flag, "SHRINK": flag, "WALKS": 32}
        yield walk_pairs_triton._fill, counted, {"TOKENS": 128, "OFFSETS": 8}


def skipgram() -> Iterator[Case]:
    k = train_pairs_triton
    sizes = {**typed("i64", "room", "groups", "num_negatives"), **typed("i32", "num_parts", "num_columns")}
    floats = typed("fp32", "weight", "decay", "second_decay", "epsilon")
    memory = typed("*fp32", "vertex_moment", "vertex_scalars", "context_moment", "context_scalars", "scratch", "rates")
    ids = typed("*i32", "centres", "contexts", "negatives")
    for kind, adds in (("*fp32", True), ("*fp32", False), ("*bf16", False)):
        types = {**sizes, **floats, **memory, **ids, "noise": "u64", **typed(kind, "vertex", "context")}
        size = {"PART": 256, "STRIDE": 112, "WIDTH": 128, "ADDS": adds, "BY_CHANCE": kind == "*bf16"}
        for group in (1, 4):
            yield k._walk_groups, types, {**size, "GROUP": group, "SLOTS": 8, "SHARED": group == 1}
        for flag in (False, True):
            yield k._walk_rows, types, {**size, "GROUP": 1, "HAS_MOMENT": flag, "HAS_SCALARS": True, "SHARED": flag}


def layouts() -> Iterator[Case]:
    sizes = {**typed("i64", "room", "num_negatives"), "num_blocks": "i32"}
    floats = typed("fp32", "gamma", "epsilon", "a", "b", "odds", "most")
    points = typed("*fp32", "own", "others", "rates")
    for ids in ("*i32", "*i64"):
        types = {**sizes, **floats, **points, **typed(ids, "heads", "tails", "negatives")}
        for kind in range(3):
            for dim, axes in ((2, 2), (3, 4)):
                size = {"KIND": kind, "STRIDE": axes, "DIM": dim, "AXES": axes, "BLOCK": 128}
                moved = {"MOVES_TAILS": True, "MOVES_NEGATIVES": kind != 1}
                yield move_points_triton._move, types, {**size, **moved}


def compiled(kernel: Any, types: dict[str, str], constants: dict[str, Any]) -> Any:
    """Compile a kernel; what is a pointer and not named in `types` points to int64."""
    names = kernel.arg_names
    signature = {name: "constexpr" if name in constants else types.get(name, "*i64") for name in names}
    values = {(names.index(name),): value for name, value in constants.items()}
    return compile_kernel(ASTSource(kernel, signature, values), target=HOPPER)


def main(arguments: list[str]) -> None:
    folder = Path(arguments[1]) if arguments[:1] == ["--ptx"] else None
    for family in (attention, sums, neighborhoods, walks, skipgram, layouts):
        for number, (kernel, types, constants) in enumerate(family()):
            made = compiled(kernel, types, constants)
            print(family.__name__, kernel.__name__, len(made.asm["cubin"]), flush=True)
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
                (folder / f"{family.__name__}-{number}-{kernel.__name__}.ptx").write_text(made.asm["ptx"])


if __name__ == "__main__":
    main(sys.argv[1:])
