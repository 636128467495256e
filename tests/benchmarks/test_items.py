"""Benchmarks that go on after an item that fails, crashes or hangs, and keep what they know."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flows.conftest import ROOT

BENCHMARK = """
import argparse, os, sys, time
from pathlib import Path
from benchmarks.items import add_options, check_parts, run_items

def fail():
    raise RuntimeError("an illegal memory access was encountered")

def main(arguments):
    parser = argparse.ArgumentParser()
    add_options(parser, ("fast", "slow"), limit=10)
    args = parser.parse_args(arguments)
    check_parts(parser, args, ("fast", "slow"))
    items = {
        ("fast", "before"): os.getpid,
        ("fast", "too"): os.getpid,
        ("fast", "fails"): fail,
        ("fast", "after"): os.getpid,
        ("fast", "crashes"): os.abort,
        ("fast", "absent"): lambda: __import__("no_such_module"),
        ("slow", "hangs"): lambda: time.sleep(1000),
        ("slow", "last"): lambda: {"ms": 1.5},
    }
    return run_items("toy", arguments, args, items, Path("toy.json"), {"machine": "mine"})

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "toy.py").write_text(BENCHMARK)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    command = [sys.executable, "-m", "toy", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=250)


def test_an_item_costs_itself_only(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 1, done.stderr
    found = json.loads((tmp_path / "toy.json").read_text())
    fast = found["fast"]
    assert fast["before"] == fast["too"] != fast["after"], "one process until one fails"
    assert fast["fails"] == {"failed": "RuntimeError: an illegal memory access was encountered"}
    assert fast["crashes"] == {"failed": "its process ended with -6"}
    assert fast["absent"] == {"left out": "No module named 'no_such_module'"}
    assert found["slow"] == {"hangs": {"failed": "took longer than 10 s"}, "last": {"ms": 1.5}}
    assert found["machine"] == "mine"
    assert "slow: last: ms 1.500" in done.stdout


@pytest.mark.parametrize(("parts", "code", "words"), [("slow,quick", 2, "quick is none of"), ("slow", 1, "")])
def test_parts_have_names(tmp_path: Path, parts: str, code: int, words: str) -> None:
    done = run(tmp_path, "--parts", parts, "--limit", "1")
    assert (done.returncode, words in done.stderr) == (code, True)
    assert (tmp_path / "toy.json").exists() == (code == 1)
    if code == 1:
        assert "fast" not in json.loads((tmp_path / "toy.json").read_text())
