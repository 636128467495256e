"""Which processor computes, and which of its instructions: what the last bits of libraries' results follow from."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

SETTINGS = (
    "MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ONEDNN_DEFAULT_FPMATH_MODE",
    "DNNL_DEFAULT_FPMATH_MODE", "ATEN_CPU_CAPABILITY", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES",
    "NPY_DISABLE_CPU_FEATURES", "NPY_ENABLE_CPU_FEATURES",
)  # fmt: skip
"""Variables of the environment by which libraries choose instructions."""
_FACTS = ("vendor_id", "model name", "flags", "Features")


@cache
def processor() -> tuple[str, ...]:
    """Return what Linux says of the processor's maker, name and instructions; nothing elsewhere."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return tuple(dict.fromkeys(line for line in lines if line.startswith(_FACTS)))


def instructions() -> tuple[str, ...]:
    """Return that, and what the environment lets libraries take of it."""
    return (*processor(), *(f"{name}={os.environ[name]}" for name in SETTINGS if name in os.environ))
