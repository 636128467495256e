"""A machine that has no room for a run says so at once: a full disk, a home that nobody may write to, `ulimit -v`."""

from __future__ import annotations

import os
import resource
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from configs.errors import RecipeError, StageError
from configs.load import build_recipe
from flows.terminal.room import check_home
from tasks.processes.memory import available_bytes
from tasks.sizes import need_disk
from tasks.stage import run_stage
from tasks.storage.home import Home
from tasks.storage.trouble import trouble_of_the_machine
from tests.flows.conftest import TINY, command, environment, write_recipe


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[None]:
    """A file system of its own in memory; the test is skipped where nobody may mount one."""
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(folder)], capture_output=True)
    if done.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ("size=4m", StageError, r"has 4\.\d MB free, and a run's records alone take up to 50 MB; free some"),
        ("size=90m,nr_inodes=100", StageError, "has room for .* more files only"),
        ("size=90m,ro", RecipeError, r"cannot be written to \(Read-only file system\); choose another with --home"),
    ],
)
def test_a_home_without_room_is_refused(tmp_path: Path, options: str, kind: type[Exception], message: str) -> None:
    with mounted(tmp_path / "home", options), pytest.raises(kind, match=message):
        check_home(Home(tmp_path / "home"))


def test_a_home_with_room_is_left_as_it_was(home: Home) -> None:
    check_home(home)
    assert not list(home.root.iterdir())


def test_a_run_in_a_full_home_ends_before_anything_starts(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    with mounted(tmp_path / "home", "size=1m"):
        done = subprocess.run(
            command(tmp_path / "home", "run", str(recipe)), capture_output=True, text=True, env=environment()
        )
        assert not (tmp_path / "home" / "prefect").exists()
    assert done.returncode == 1
    assert done.stderr.startswith("error: the disk that holds")
    assert len(done.stderr.splitlines()) == 1


def test_too_little_address_space_is_told_at_once(tmp_path: Path) -> None:
    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (1_500_000_000, resource.RLIM_INFINITY))

    done = subprocess.run(
        command(tmp_path / "home", "run", str(write_recipe(tmp_path))),
        capture_output=True,
        text=True,
        env=environment(),
        preexec_fn=bound,
    )
    assert done.returncode == 2
    assert "1.5 GB of address space (ulimit -v)" in done.stderr


def test_available_memory_heeds_the_limit_of_the_process() -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    assert 0 < available_bytes() < 2**60
    try:
        resource.setrlimit(resource.RLIMIT_AS, (1_000_000, before[1]))
        assert available_bytes() == 0
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_data_that_cannot_fit_is_refused_before_it_is_written(home: Home) -> None:
    from tasks.ingest.stage import STAGE

    need_disk(home.root, 1, "a byte")
    huge = {**TINY["dataset"], "num_nodes": 2_000_000_000, "feature_dim": 65_536}
    with pytest.raises(StageError, match=r"the data set takes about 524,\d+\.\d GB, and the disk that holds .* has"):
        run_stage(STAGE, build_recipe({**TINY, "dataset": huge}), {}, home)


def test_what_the_machine_refused_is_found_in_what_libraries_wrap() -> None:
    def wrapped(cause: Exception) -> Exception:
        error = RuntimeError("a task failed")
        error.__cause__ = cause
        return error

    full = OSError(28, os.strerror(28), "/home/x")
    assert "a disk is full" in (trouble_of_the_machine(wrapped(full)) or "")
    assert "a disk is full" in (
        trouble_of_the_machine(wrapped(sqlite3.OperationalError("database or disk is full"))) or ""
    )
    assert "memory ran out" in (trouble_of_the_machine(wrapped(MemoryError())) or "")
    assert trouble_of_the_machine(PermissionError(13, "Permission denied", "/x")) == "Permission denied: /x"
    assert trouble_of_the_machine(wrapped(KeyError("a bug"))) is None
    assert trouble_of_the_machine(ConnectionRefusedError(111, "refused")) is None
