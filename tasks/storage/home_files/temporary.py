"""Temporary files of a run (`TMPDIR`): below its home, gone with the run, or with the next one where it was killed."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tasks.processes import ending
from tasks.storage.artifacts import disk_errors, file_lock, try_lock
from tasks.storage.home import Home

PREFIX = ".tmp-"
"""What the folders' names begin with, below `work/`; a lock of the same name says that somebody uses one."""
_VARIABLE = "TMPDIR"


@contextlib.contextmanager
def temporary_folder(home: Home) -> Iterator[None]:
    """Have temporary files of this process and its children in a folder of the home that goes; so do killed ones'."""
    before = os.environ.get(_VARIABLE)
    if before is not None and Path(before).parent == home.work and Path(before).is_dir():
        yield
        return
    with own_folder(home) as folder:
        _use(str(folder))
        try:
            yield
        finally:
            _use(before)


@contextlib.contextmanager
def own_folder(home: Home) -> Iterator[Path]:
    """Make a folder below the home's `work` for as long as the block runs; those of killed processes are removed."""
    remove_left(home)
    folder = home.work / f"{PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
    with disk_errors(home.root), file_lock(lock_path(folder)):
        folder.mkdir(parents=True, mode=0o700)
        with ending.closing(lambda: _remove(folder)):
            try:
                yield folder
            finally:
                _remove(folder)


def _use(folder: str | None) -> None:
    if folder is None:
        os.environ.pop(_VARIABLE, None)
    else:
        os.environ[_VARIABLE] = folder
    tempfile.tempdir = None  # it is looked up once, and kept


def lock_path(folder: Path) -> Path:
    """Lock that the process holds to which a temporary folder belongs."""
    return folder.parent.parent / "locks" / f"{folder.name}.lock"


def remove_left(home: Home) -> None:
    """Remove the folders of processes that were killed, and what they or others are about to remove."""
    for folder in (*home.work.glob(".trash-*"), *home.work.glob(".*.gone")):
        shutil.rmtree(folder, ignore_errors=True)
    for folder in home.work.glob(f"{PREFIX}*"):
        with try_lock(lock_path(folder)) as held:
            if held:
                _remove(folder)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    lock_path(folder).unlink(missing_ok=True)
