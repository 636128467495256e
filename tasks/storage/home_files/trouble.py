"""What a machine refuses while a run goes on: a full disk, memory, threads. Said in a line, whoever ran into it."""

from __future__ import annotations

import errno
import os

from configs.errors import GraphmillError, StageError, UserError
from tasks.storage.artifacts import is_full_disk
from tasks.storage.home import Home

WAY_OUT = "free some (graphmill clean), or put the home elsewhere (--home DIR)"
_FULL_BYTES = 5_000_000
"""What is left of a disk that is full: drafts that could not be finished have been removed again."""


def full_disk(home: Home) -> str | None:
    """Say that the home's disk is full, where it is: whatever fails meanwhile, a server's answer say, fails of that."""
    try:
        disk = os.statvfs(home.root)
    except OSError:
        return None
    free = disk.f_bavail * disk.f_frsize
    if free >= _FULL_BYTES and (not disk.f_files or disk.f_favail):
        return None
    return f"the disk that holds {home.root} is full ({free / 1e6:.1f} MB free); {WAY_OUT}, then run again: it goes on"


def trouble_of_the_machine(error: BaseException) -> str | None:
    """Return in a line what the machine refused, also where libraries wrap it; None: the error is of something else."""
    from tasks.processes.memory import out_of_memory

    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        short = out_of_memory(cause)
        if short is not None:
            return f"memory ran out: {short}"
        if is_full_disk(cause) or (isinstance(cause, OSError) and cause.errno == errno.EFBIG):
            return f"a disk is full ({cause}); {WAY_OUT}"
        if isinstance(cause, OSError) and cause.errno is not None and not isinstance(cause, ConnectionError):
            return f"{cause.strerror or cause}: {cause.filename}" if cause.filename else str(cause)
        if "can't start new thread" in str(cause):
            return "no further thread can be started; look at ulimit -u and ulimit -v, and at the container's pids.max"
        cause = cause.__cause__ or cause.__context__
    return None


def as_trouble(error: Exception, home: Home) -> Exception:
    """Return what the machine refused as an error of one line; `error` where it is the user's or says so itself."""
    if isinstance(error, UserError) or (isinstance(error, GraphmillError) and is_full_disk(error)):
        return error
    trouble = full_disk(home)
    if trouble is None and not isinstance(error, GraphmillError):
        trouble = trouble_of_the_machine(error)
    return error if trouble is None else StageError(trouble)
