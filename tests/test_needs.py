"""Tests that are skipped for want of a program are told of at the end, and fail where nothing may be lacking."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TESTS = """
import pytest
from tests.needs import needs, skip_without

@needs("Hammer", False)
def test_with_a_mark(): ...

def test_within():
    skip_without("Anvil", None)

@pytest.mark.skip(reason="it rains")
def test_of_other_reasons(): ...

def test_that_passes(): ...
"""


@pytest.mark.parametrize("lack_nothing", [False, True])
def test_what_is_lacking_is_told_and_fails_where_all_is_asked_for(tmp_path: Path, lack_nothing: bool) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    options = "-m pytest -c pyproject.toml -p tests.conftest -p no:cacheprovider"
    done = subprocess.run(
        [sys.executable, *options.split(), str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "GRAPHMILL_LACK_NOTHING": str(int(lack_nothing))},
        capture_output=True,
        text=True,
    )
    assert done.returncode == int(lack_nothing), done.stdout + done.stderr
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    for line in ("1 lacks Hammer: make developer", "1 lacks Anvil: make developer", "1 it rains"):
        assert line in lines
    assert ("FAILED: here no test may be skipped because something is lacking" in lines) is lack_nothing


def test_every_skip_for_want_of_a_program_is_one_that_fails_there() -> None:
    by_hand = re.compile(r"importorskip|skip.*(which\(|not installed|no \w+ here)")
    lines = [
        f"{path.name}: {line}"
        for path in (ROOT / "tests").rglob("*.py")
        if path.name not in ("needs.py", "test_needs.py")
        for line in path.read_text().splitlines()
        if by_hand.search(line)
    ]
    assert lines == []
