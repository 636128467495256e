"""Whether a run can begin at all: a home that can be written to, a disk with room, address space for its libraries."""

from __future__ import annotations

import os
import resource
import shutil
import tempfile

from configs.errors import RecipeError, StageError
from tasks.storage.home import Home
from tasks.storage.home_files.trouble import WAY_OUT

# The databases of Prefect and MLflow, their journals, and what a run of a few hundred nodes leaves: 20 MB (2026-11).
_LEAST_FREE_BYTES = 50_000_000
_LEAST_FREE_FILES = 500
# A small run went well with 4.0 GB and ended in the middle with 2.5 GB: torch, numba and DGL map most of that before
# they see any data (2026-11).
_ADDRESS_SPACE_BYTES = 4_000_000_000


def check_address_space() -> None:
    """Raise RecipeError where `ulimit -v` leaves less than the libraries map: they would end in ways of their own."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < _ADDRESS_SPACE_BYTES:
        raise RecipeError(
            f"this shell lets a process have {limit / 1e9:.1f} GB of address space (ulimit -v), and graphmill's "
            f"libraries alone map {_ADDRESS_SPACE_BYTES / 1e9:.1f} GB; say ulimit -v unlimited, and bound memory by a "
            "container or systemd-run --property MemoryMax=8G"
        )


def check_home(home: Home) -> None:
    """Refuse a home that a run cannot write to, or whose disk has no room for the run's records.

    Raises RecipeError: it cannot be written to; StageError: the disk is all but full.
    """
    disk = os.statvfs(home.root)
    if disk.f_files and disk.f_favail < _LEAST_FREE_FILES:  # some file systems do not count
        raise StageError(f"the disk that holds {home.root} has room for {disk.f_favail} more files only; {WAY_OUT}")
    free = shutil.disk_usage(home.root).free
    if free < _LEAST_FREE_BYTES:
        raise StageError(
            f"the disk that holds {home.root} has {free / 1e6:.1f} MB free, and a run's records alone take up to "
            f"{_LEAST_FREE_BYTES / 1e6:.0f} MB; {WAY_OUT}"
        )
    try:
        with tempfile.TemporaryFile(dir=home.root) as probe:  # without a name that a killed process could leave
            probe.write(b"x")
    except OSError as error:
        raise RecipeError(
            f"the home {home.root} cannot be written to ({error.strerror}); choose another with --home DIR"
        ) from error
