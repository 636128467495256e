"""Forked processes are what new interpreters would be."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.warm_python import forked_processes

COMMAND = [sys.executable, "-m", "tests.process_facts"]
ROOT = Path(__file__).resolve().parent.parent


def both(start: Callable[[], Any]) -> tuple[Any, Any]:
    with forked_processes():
        forked = start()
    return forked, start()


def test_all_that_it_sees_is_the_same(tmp_path: Path) -> None:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    variables |= {"PYTHONPATH": str(ROOT), "MARK": "ä=1"}

    def start(**more: str) -> tuple[int, dict[str, Any], str]:
        done = subprocess.run(
            [*COMMAND, "one", "two words"],
            cwd=tmp_path,
            env={**variables, **more},
            input="given",
            capture_output=True,
            text=True,
        )
        return done.returncode, json.loads(done.stdout), done.stderr

    forked, fresh = both(start)
    forked[1]["descriptors"].remove("socket")  # by which it has children forked
    assert forked == fresh
    assert fresh[0] == 7
    assert fresh[1]["parent"] == os.getpid()
    forked, fresh = both(lambda: start(PYTHONSAFEPATH="1", PYTHONUNBUFFERED="1"))
    forked[1]["descriptors"].remove("socket")
    assert forked == fresh
    assert str(tmp_path) not in fresh[1]["path"]


@pytest.mark.parametrize(("word", "code"), [("raise", 1), ("exit", 1)])
def test_it_ends_the_same(word: str, code: int) -> None:
    def start() -> tuple[int, str]:
        done = subprocess.run([*COMMAND, word], cwd=ROOT, capture_output=True, text=True)
        return done.returncode, done.stderr.splitlines()[-1]

    forked, fresh = both(start)
    assert forked == fresh
    assert fresh[0] == code


def test_it_is_a_process_that_can_be_killed_and_leaves_none() -> None:
    with (
        forked_processes(),
        subprocess.Popen([*COMMAND, "wait"], cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True) as it,
    ):
        assert int(it.stdout.readline()) == it.pid
        process = psutil.Process(it.pid)
        assert process.ppid() == os.getpid()
        assert os.getpgid(it.pid) == it.pid
        helpers = process.children(recursive=True)
        with pytest.raises(subprocess.TimeoutExpired):
            it.wait(0.05)
        it.kill()
        assert it.wait() == -signal.SIGKILL
    deadline = time.monotonic() + 10
    while any(helper.is_running() for helper in helpers) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(helper.is_running() for helper in helpers)


def test_who_is_forked() -> None:
    def has_imported(**variables: str) -> bool:
        environment = {**os.environ, **variables}
        done = subprocess.run([*COMMAND, "imports"], cwd=ROOT, env=environment, capture_output=True, text=True)
        return bool(json.loads(done.stdout))

    assert not has_imported()
    with forked_processes():
        assert has_imported()
        assert has_imported(PREFECT_HOME="/nowhere", OMP_NUM_THREADS="1")
        assert not has_imported(NUMBA_DISABLE_JIT="1"), "numba has read it long ago"
    assert not has_imported()


def test_prefect_reads_its_settings_in_the_fork() -> None:
    def read(**variables: str) -> Any:
        environment = {**os.environ, **variables}
        done = subprocess.run([*COMMAND, "prefect"], cwd=ROOT, env=environment, capture_output=True, text=True)
        return json.loads(done.stdout)

    forked, fresh = both(
        lambda: read(PREFECT_HOME="/tmp", PREFECT_LOGGING_LEVEL="ERROR", PREFECT_API_URL="http://x/api")
    )
    assert forked == fresh == ["/tmp", "http://x/api", "ERROR"]
