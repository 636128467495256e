"""A machine that has no room for a run says so at once: a full disk, a home that nobody may write to, `ulimit -v`."""

from __future__ import annotations

import os
import resource
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

from configs.errors import RecipeError, StageError
from configs.load import build_recipe
from flows.records.run_record import RunRecord, all_runs, now_text, recorded
from flows.terminal.room import check_home
from flows.web.temporary_server import EmbeddedServer
from tasks.processes.memory import available_bytes
from tasks.sizes import need_disk
from tasks.stage import run_stage
from tasks.storage.artifacts import output_errors
from tasks.storage.home import Home
from tasks.storage.home_files.trouble import full_disk, trouble_of_the_machine
from tests.flows.conftest import TINY, called, command, environment, write_recipe


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[None]:
    """A file system of its own in memory; the test is skipped where nobody may mount one."""
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"{options},mode=700", "none", str(folder)], capture_output=True
    )
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
        done = called(command(tmp_path / "home", "run", str(recipe)))
        assert not (tmp_path / "home" / "prefect").exists()
    assert done.returncode == 1
    assert done.stderr.startswith("error: the disk that holds")
    assert len(done.stderr.splitlines()) == 1


def test_too_little_address_space_is_told_at_once(tmp_path: Path) -> None:
    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (1_500_000_000, resource.RLIM_INFINITY))

    done = called(command(tmp_path / "home", "run", str(write_recipe(tmp_path))), preexec_fn=bound)
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

    full = OSError(28, os.strerror(28), "/home/x"), sqlite3.OperationalError("database or disk is full")
    for error, words in (*((one, "a disk is full") for one in full), (MemoryError(), "memory ran out")):
        assert words in (trouble_of_the_machine(wrapped(error)) or "")
    assert trouble_of_the_machine(PermissionError(13, "Permission denied", "/x")) == "Permission denied: /x"
    assert trouble_of_the_machine(wrapped(KeyError("a bug"))) is None
    assert trouble_of_the_machine(ConnectionRefusedError(111, "refused")) is None


def fill(folder: Path) -> None:
    with suppress(OSError), (folder / "fill").open("wb") as file:
        while True:
            file.write(b"x" * 4096)
            file.flush()


def test_a_record_has_room_for_saying_that_the_disk_is_full(tmp_path: Path) -> None:
    with mounted(tmp_path / "home", "size=1m"):
        home = Home(tmp_path / "home")
        record = RunRecord(id="1", recipe="tiny", started_at=now_text(), config={"long": "x" * 20_000})
        with suppress(RuntimeError), recorded(home, record):
            fill(home.root)
            raise RuntimeError("Server error '500 Internal Server Error'")
        (kept,) = all_runs(home)
    assert kept.status == "failed"
    assert kept.error.startswith(f"StageError: the disk that holds {home.root} is full (0.")
    assert "\n" not in kept.error


def fill_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("create table t as select randomblob(400000)")


def test_whatever_a_library_says_of_a_full_disk_is_told_as_one(tmp_path: Path) -> None:
    values = torch.rand(100_000)
    writers: dict[str, Callable[[Path], object]] = {
        "pt": lambda path: torch.save({"x": values}, path),
        "npy": lambda path: np.save(path, values.numpy()),
        "parquet": lambda path: pq.write_table(pa.table({"x": values.numpy()}), path),
        "safetensors": lambda path: save_file({"x": values}, path),
        "db": fill_database,
    }
    with mounted(tmp_path / "small", "size=100k"):
        for ending, write in writers.items():
            path = tmp_path / "small" / f"x.{ending}"
            with pytest.raises(StageError, match=r"^--output .* is not written: .* is full"), output_errors(path):
                write(path)
            path.unlink(missing_ok=True)


def test_a_server_that_fails_of_a_full_disk_is_not_at_fault(tmp_path: Path) -> None:
    with mounted(tmp_path / "home", "size=1m"):
        server = EmbeddedServer(Home(tmp_path / "home"))
        assert server.trouble("did not start") == full_disk(server.home)
    assert full_disk(Home(tmp_path)) is None


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_disk_that_fills_while_a_run_trains_is_told_in_a_line(tmp_path: Path) -> None:
    with mounted(tmp_path / "home", "size=80m"):
        home = Home(tmp_path / "home")
        arguments = ["run", str(write_recipe(tmp_path)), "train.epochs=100000", "train.checkpoint_every=1"]
        run = subprocess.Popen(
            command(home.root, *arguments),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        while run.poll() is None and not any(home.work.glob("train-*/last.pt")):
            time.sleep(0.1)
        fill(home.root)
        lines = run.communicate()[1].splitlines()
        assert run.returncode == 1
        (record,) = all_runs(home)
    assert lines[-1].startswith(f"error: the disk that holds {home.root} is full (")
    assert not [line for line in lines if line.startswith(("Traceback", "---", "  File"))]
    assert record.status == "failed"
    assert f"the disk that holds {home.root} is full" in record.error
