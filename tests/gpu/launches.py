"""Records how tests launch Triton's kernels in its interpreter: a JSON line for each kind of launch.

Triton compiles a kernel anew for each dtype and constant, for sizes and addresses that are multiples of 16, and for
sizes of 1. `tests.gpu.compile_kernels` compiles what is recorded here.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

VARIABLE = "GRAPHMILL_LAUNCHES"
"""Names the folder of what is recorded, a file a process; where it is not set, nothing is."""


def record() -> None:
    """Write what this process launches from now on, if that is asked for."""
    if VARIABLE not in os.environ:
        return
    from triton.runtime.interpreter import GridExecutor

    folder, launch, seen = Path(os.environ[VARIABLE]), GridExecutor.__call__, set()
    folder.mkdir(parents=True, exist_ok=True)

    def launch_and_write(self: Any, *args: Any, **options: Any) -> Any:
        values = dict(zip(self.arg_names, args, strict=False)) | options
        constant = {*self.constexprs, *values.keys() - {*self.arg_names}}
        line = {
            "module": self.fn.__globals__["__name__"],
            "kernel": self.fn.__name__,
            "arguments": {name: kind(value) for name, value in values.items() if name not in constant},
            "constants": {name: value for name, value in values.items() if name in constant},
        }
        if (text := json.dumps(line)) not in seen:
            seen.add(text)
            with (folder / f"{os.getpid()}.jsonl").open("a") as file:
                file.write(json.dumps({**line, "test": os.environ.get("PYTEST_CURRENT_TEST", "")}) + "\n")
        return launch(self, *args, **options)

    GridExecutor.__call__ = launch_and_write


def kind(value: Any) -> Any:
    """Return what the compiler asks of an argument: of a tensor its dtype and whether it begins at a multiple of 16.

    A number stands for all that are compiled alike: those of as many bits that are multiples of 16, 1, or others.
    """
    if hasattr(value, "data_ptr"):
        return [str(value.dtype).removeprefix("torch."), value.data_ptr() % 16 == 0]
    if isinstance(value, float):
        return 0.5
    if isinstance(value, bool) or not isinstance(value, int) or value in (0, 1):
        return value
    least = next((1 << bits for bits in (63, 31) if value >= 1 << bits), 16)
    return least + (value % 16 > 0)
