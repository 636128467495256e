"""Instruction sets that one machine can stand for: what libraries are told to take, by variables of the environment.

They only leave instructions out, so every x86 processor can run them; on others they change little.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

from llvmlite import binding

SETS: dict[str, dict[str, str]] = {
    "avx2": {"MKL_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"},
    "sse4": {"MKL_ENABLE_INSTRUCTIONS": "SSE4_2", "ONEDNN_MAX_CPU_ISA": "SSE41", "ATEN_CPU_CAPABILITY": "default"},
    "avx512": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE", "ATEN_CPU_CAPABILITY": "avx512"},
    "haswell": {
        "MKL_CBWR": "AVX2", "ATEN_CPU_CAPABILITY": "avx2", "NUMBA_CPU_NAME": "haswell",
        "NUMBA_CPU_FEATURES": "+avx,+avx2,+bmi,+bmi2,+cx16,+f16c,+fma,+lzcnt,+movbe,+popcnt,+sse4.2",
    },
}  # fmt: skip
"""haswell: kernels of graphmill's own are compiled anew, some minutes the first time."""
_NEEDS = {"avx2": "avx2", "avx512": "avx512f", "haswell": "avx2"}


def can_run(name: str) -> bool:
    if platform.machine() != "x86_64":
        return name == "sse4"  # torch's own kernels without vectors
    return name not in _NEEDS or bool(binding.get_host_cpu_features().get(_NEEDS[name]))


def run_tests(name: str, *options: str, timeout_seconds: float) -> str:
    """Run tests under a set; returns pytest's last line. AssertionError where one fails."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0", "-q", "--no-header", "-p", "no:cacheprovider", *options],
        cwd=Path(__file__).resolve().parent.parent, env={**os.environ, **SETS[name]}, capture_output=True, text=True,
        timeout=timeout_seconds, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{name}: {done.stdout[-4000:]}{done.stderr[-2000:]}"
    return done.stdout.strip().splitlines()[-1]
