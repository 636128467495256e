"""Compiled kernels are kept until something changes that they are compiled from."""

from __future__ import annotations

import json
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

from models import kernel_cache

kernel_cache.ROOT = Path(sys.argv[1])
from caller import twice

print(json.dumps([twice(1.0), sum(twice.stats.cache_hits.values())]))
"""


@pytest.mark.parametrize("place", ["beside the sources", "in a folder", "of a user's file"])
def test_a_kernel_is_compiled_anew_where_one_that_it_calls_has_changed(tmp_path: Path, place: str) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    own = tmp_path if place == "of a user's file" else repository
    variables = {**environment(), "PYTHONPATH": f"{own}:{repository}:{ROOT}"}
    variables.pop("NUMBA_CACHE_DIR", None)
    if place == "in a folder":
        variables["NUMBA_CACHE_DIR"] = str(tmp_path / "kept")

    def run(constant: int, called: str = CALLED) -> list[float]:
        (own / "caller.py").write_text(CALLER)
        (repository / "called.py").write_text(called)
        (repository / "constant.py").write_text(f"SCALE = {constant}\n")
        words = [sys.executable, "-c", SCRIPT, str(repository)]
        done = subprocess.run(words, capture_output=True, text=True, env=variables, cwd=tmp_path, check=True)
        found: list[float] = json.loads(done.stdout)
        return found

    assert run(3) == [6.0, 0]
    assert run(3) == [6.0, 1]
    assert run(5) == [10.0, 0]
    assert run(5, CALLED.replace("SCALE * x", "SCALE * x + 1")) == [12.0, 0]
    # The folder has the first ones still, beside the others.
    assert run(3) == [6.0, 1 if place == "in a folder" else 0]


def test_what_a_kernel_is_compiled_from() -> None:
    found = {str(path.relative_to(ROOT)) for path in sources(ROOT / "tasks" / "sampling" / "draws.py")}
    assert {"tasks/sampling/draws.py", "tasks/sampling/fast_random.py", "tasks/counter_random.py"} <= found
    assert not any("torch" in path or path.startswith("flows") for path in found)
    # Several names in brackets, and a module imported from its package.
    found = {str(path.relative_to(ROOT)) for path in sources(ROOT / "models" / "kernels" / "attention.py")}
    assert {"models/kernels/vector.py", "models/kernels/_llvm.py"} <= found
