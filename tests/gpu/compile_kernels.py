"""Compiles Triton's kernels for an H100, which needs none, as tests and real models launch them.

    GRAPHMILL_LAUNCHES=build/launches python -m tests.gpu      # in the interpreter, where torch sees no GPU: records
    python -m tests.gpu.compile_kernels build/launches         # minutes; exit code 1 where one is refused

The interpreter runs what the compiler may refuse. The second command may be another Python's, with another Triton; what
it leaves in TRITON_CACHE_DIR is found on a GPU machine with that Triton. Each launch is compiled as it was and with all
sizes multiples of 16, as those of real models are. With `--ptx FOLDER` the assembler's text is kept there.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import MockTensor


class Hopper:
    """What Triton asks of a device before it compiles."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)


class Unaligned(MockTensor):  # type: ignore[misc]
    """A tensor that does not begin at a multiple of 16 bytes."""

    @staticmethod
    def data_ptr() -> int:
        return 8


def launches(folder: Path) -> list[dict[str, Any]]:
    """Return each kind of launch once, and once with sizes that are multiples of 16."""
    kinds = {}
    for path in sorted(folder.glob("*.jsonl")):
        for line in map(json.loads, path.read_text().splitlines()):
            test, arguments = line.pop("test"), line.pop("arguments")
            rounded = {
                name: value & ~15 if type(value) is int and value > 1 else value for name, value in arguments.items()
            }
            for each in (arguments, rounded):
                kinds.setdefault(json.dumps({**line, "arguments": each}), test)
    return [{**json.loads(text), "test": test} for text, test in kinds.items()]


def compile_launch(line: dict[str, Any], ptx: Path | None) -> str:
    """Return the reason of a compiler that refuses; empty: it does not."""
    os.environ.pop("TRITON_INTERPRET", None)
    driver.set_active(Hopper())
    kernel = getattr(importlib.import_module(line["module"]), line["kernel"])
    arguments = {name: argument(value) for name, value in line["arguments"].items()}
    try:
        made = kernel.warmup(grid=(1,), **arguments, **line["constants"])
    except Exception as error:
        return (str(error).strip().splitlines() or [repr(error)])[-1][:200]
    if ptx is not None:
        (ptx / f"{line['kernel']}-{made.hash}.ptx").write_text(made.asm["ptx"])
    return ""


def argument(kind: Any) -> Any:
    if isinstance(kind, list):
        dtype, is_aligned = kind
        return (MockTensor if is_aligned else Unaligned)(getattr(torch, dtype))
    return kind


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="what GRAPHMILL_LAUNCHES named")
    parser.add_argument("--ptx", type=Path)
    args = parser.parse_args(arguments)
    lines = launches(args.folder)
    if not lines:
        parser.error(f"{args.folder} has no launch: record some first")
    if args.ptx is not None:
        args.ptx.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor() as pool:
        reasons = list(pool.map(partial(compile_launch, ptx=args.ptx), lines, chunksize=8))
    for name, count in sorted(Counter(f"{line['module']}.{line['kernel']}" for line in lines).items()):
        print(f"{count:5} {name}")
    refused = [(line, reason) for line, reason in zip(lines, reasons, strict=True) if reason]
    for line, reason in refused:
        print(f"REFUSED {json.dumps(line)}\n    {reason}")
    print(f"Triton {triton.__version__}: {len(lines)} kernels, {len(refused)} refused")
    sys.exit(bool(refused))


if __name__ == "__main__":
    main(sys.argv[1:])
