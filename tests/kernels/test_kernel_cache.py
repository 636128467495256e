"""Compiled kernels are kept until something changes that they are compiled from."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from models.kernel_cache import ROOT, sources
from tests.flows.conftest import environment

CALLER = """
from numba import njit

from called import scaled


@njit(cache=True)
def twice(x):
    return 2 * scaled(x)
"""
CALLED = """
from numba import njit

from constant import SCALE


@njit(cache=True)
def scaled(x):
    return SCALE * x
"""
SCRIPT = """
import json, sys
from pathlib import Path

import pytest

from models import kernel_cache

kernel_cache.ROOT = Path(sys.argv[1])
from caller import twice

print(json.dumps([twice(1.0), sum(twice.stats.cache_hits.values())]))
"""


class Sources:
    """A repository with a kernel that calls another, which reads a constant; its caller may lie elsewhere."""

    def __init__(self, folder: Path, own: Path | None = None, **variables: str) -> None:
        self.folder = folder / "repository"
        self.folder.mkdir()
        self.own = own or self.folder
        self.variables = {**environment(), "PYTHONPATH": f"{self.own}:{self.folder}:{ROOT}"}
        self.variables.pop("NUMBA_CACHE_DIR", None)
        # Python holds a kept byte code for that of a source of equal size that was written in the same second.
        self.variables["PYTHONDONTWRITEBYTECODE"] = "1"
        self.variables |= variables

    def run(self, constant: int, called: str = CALLED) -> list[float]:
        """Return what the kernel makes of 1, and how often a kept one was used."""
        (self.own / "caller.py").write_text(CALLER)
        (self.folder / "called.py").write_text(called)
        (self.folder / "constant.py").write_text(f"SCALE = {constant}\n")
        words = [sys.executable, "-c", SCRIPT, str(self.folder)]
        done = subprocess.run(words, capture_output=True, text=True, env=self.variables, check=True)
        outcome: list[float] = json.loads(done.stdout)
        return outcome


def test_a_kernel_is_compiled_anew_where_one_that_it_calls_has_changed(tmp_path: Path) -> None:
    sources = Sources(tmp_path)
    assert sources.run(3) == [6.0, 0]
    assert sources.run(5) == [10.0, 0]
    assert sources.run(5, CALLED.replace("SCALE * x", "SCALE * x + 1")) == [12.0, 0]
    assert sources.run(3) == [6.0, 1], "each state has a folder: what another holds need not even be readable"
    folders = list((sources.folder / "__pycache__").glob("caller-*"))
    assert len(folders) == 3
    for folder in folders:
        os.utime(folder, (0, 0))
    assert sources.run(7) == [14.0, 0]
    assert len(list((sources.folder / "__pycache__").glob("caller-*"))) == 1, "unused ones go"


@pytest.mark.parametrize("place", ["a folder that is named", "the user's, where sources cannot be written"])
def test_kernels_are_kept_elsewhere(tmp_path: Path, place: str) -> None:
    variable = "NUMBA_CACHE_DIR" if "named" in place else "XDG_CACHE_HOME"
    sources = Sources(tmp_path, **{variable: str(tmp_path / "kept")})
    if variable == "XDG_CACHE_HOME":
        (sources.folder / "__pycache__").touch()
    assert sources.run(3) == [6.0, 0]
    assert sources.run(3) == [6.0, 1]
    assert not list(sources.folder.rglob("*.nb?"))
    assert list((tmp_path / "kept").rglob("*.nb?"))


def test_a_users_kernel_follows_ours(tmp_path: Path) -> None:
    sources = Sources(tmp_path, own=tmp_path)
    assert sources.run(3) == [6.0, 0]
    assert sources.run(5) == [10.0, 0]


def test_what_a_kernel_is_compiled_from() -> None:
    """Several names in brackets, and a module imported from its package, too."""

    def parts(file: str) -> set[str]:
        return {str(path.relative_to(ROOT)) for path in sources(ROOT / file)}

    draws = parts("tasks/sampling/neighborhoods/draws.py")
    folder = "tasks/sampling/neighborhoods"
    assert {f"{folder}/draws.py", f"{folder}/fast_random.py", "tasks/counter_random.py"} <= draws
    assert not any("torch" in path or path.startswith("flows") for path in draws)
    simd = "models/kernels/simd"
    assert {f"{simd}/vector.py", f"{simd}/_llvm.py"} <= parts("models/kernels/attention/attention.py")
