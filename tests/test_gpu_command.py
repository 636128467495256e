"""`python -m tests.gpu` keeps each result, and goes on after a test that hangs, crashes or breaks the GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TESTS = """
import os, time
import pytest

def test_a_passes(): ...
def test_b_hangs(): time.sleep(1000)
def test_c_fails(): assert 1 + 1 == 3
@pytest.mark.skip(reason="it rains")
def test_d_is_skipped(): ...
def test_e_crashes(): os.abort()
def test_f_breaks_the_gpu():
    import tests.gpu.watch
    tests.gpu.watch.is_broken = lambda: True
    raise RuntimeError("an illegal memory access was encountered")
def test_g_passes_in_the_last_process(): ...
"""


def test_one_test_costs_itself_only(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    results, command = tmp_path / "results.jsonl", [sys.executable, "-m", "tests.gpu", "--limit", "10"]
    files = ["--results", str(results), "--files", str(tmp_path / "test_it.py"), "-p", "no:cacheprovider"]
    done = subprocess.run([*command, *files], cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 1, done.stdout + done.stderr
    last = {line["test"].rpartition("::")[2]: line for line in map(json.loads, results.read_text().splitlines())}
    assert {name: line["outcome"] for name, line in last.items()} == {
        "test_a_passes": "passed",
        "test_b_hangs": "hung",
        "test_c_fails": "failed",
        "test_d_is_skipped": "skipped",
        "test_e_crashes": "crashed",
        "test_f_breaks_the_gpu": "failed",
        "test_g_passes_in_the_last_process": "passed",
    }
    assert "assert (1 + 1) == 3" in last["test_c_fails"]["text"]
    assert "in test_b_hangs" in results.with_suffix(".stacks").read_text()
    assert "test_f_breaks_the_gpu broke the GPU's context: going on in another process" in done.stdout
    assert done.stdout.splitlines()[-1] == f"{results}: 1 crashed, 2 failed, 1 hung, 2 passed, 1 skipped"


@pytest.mark.parametrize("parts", ["walking", "kernels,walking"])
def test_an_unknown_part_is_named(parts: str) -> None:
    command = [sys.executable, "-m", "tests.gpu", "--parts", parts]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert "walking is none of kernels, sampling" in done.stderr
