"""Child processes that never outlive their parent, and what to say when one ends badly."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import signal
import subprocess
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.processes.memory import process_bytes, sharing

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

PARENT = "GRAPHMILL_PARENT_PID"
"""Variable with the process that a worker ends with."""
MACHINE = "GRAPHMILL_MACHINE"
"""Variable with `number/count`: which of the machines of its job a rank is on."""
MEETING_FILE = "GRAPHMILL_MEETING_FILE"
"""Variable with the file in which the ranks of one machine meet; those of several machines do at rank 0's."""
_PR_SET_PDEATHSIG = 1
ROOT = Path(__file__).resolve().parents[2]
"""Folder that the packages are imported from; children run there."""

# torch and DGL each bring an OpenMP runtime whose idle threads spin. As soon as anything else wants a core, the spin
# of one holds up the other: ten times the time a step on two cores with one other busy process (2026-11, AMD EPYC).
# A short spin, then sleep.
#
# glibc gives freed memory back to the kernel, and fresh pages cost about eight times a copy. So it is kept for the next
# batch, in huge pages. CPU time of a training step (GraphSAGE 3 x 256 on debdeps, batch 1024, two threads, 2026-11, AMD
# EPYC, medians of three): as it comes 193 ms and 2,800 page faults, kept 185, kept and huge 174 ms and 22 faults; in
# bfloat16 123, 111 and 108 ms. One arena for all threads and a larger step of the heap were no faster. Memory is a
# tenth more and hardly grows: a heap of 852 MB after the fifth epoch and the 16th, 900 MB after the 20th.
WORKER_ENVIRONMENT = {
    "PYTHONUNBUFFERED": "1",
    "GOMP_SPINCOUNT": "1000",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
_OF_A_RANK = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID", MACHINE)


def inherited_environment() -> dict[str, str]:
    """Return this process's environment without what makes a rank: a command in a pod of Kubernetes' PyTorchJob, or
    under a torchrun, has it, and its workers would wait for ranks that nobody starts.
    """
    return {name: value for name, value in os.environ.items() if name not in _OF_A_RANK}


def die_with_parent(expected: int | None = None) -> None:
    """Ask for SIGKILL when the parent's thread (of the process `expected`) ends; end now if it did already."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = os.getppid()
    if parent == 1 if expected is None else parent != expected:
        os._exit(1)


def end_group(process: subprocess.Popen[bytes], grace_seconds: float = 1.0) -> None:
    """End a process that leads its own group, and all that are in the group: SIGTERM, then SIGKILL."""
    for number, wait in ((signal.SIGTERM, grace_seconds), (signal.SIGKILL, grace_seconds)):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        deadline = time.monotonic() + wait
        while time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.02)
        if process.poll() is not None and number == signal.SIGKILL:
            break
    process.wait()


def call_in_child(function: Callable[[], object]) -> int:
    """Call a library in a forked child; return its exit code (0: `function` returned), negative for a signal.

    For a library that does not let a process end (METIS takes SIGTERM for an error of its own). What `function` is to
    leave goes into `shared_array`; it must not wait for locks, which other threads may hold.
    """
    parent, began_with = os.getpid(), process_bytes()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            die_with_parent(parent)
            signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
            function()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    try:
        with sharing(pid, began_with):
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except BaseException:
        with contextlib.suppress(OSError):  # it has just been waited for
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        raise


def shared_array(length: int, dtype: DTypeLike) -> NDArray[Any]:
    """Return zeros, (length,), that a forked child and this process both see."""
    import numpy as np

    memory = mmap.mmap(-1, max(1, length) * np.dtype(dtype).itemsize)
    return np.frombuffer(memory, dtype)[:length]


def describe_exit(code: int) -> str:
    """Say how a process ended: `exit code 1`, `signal SIGKILL (out of memory?)`."""
    if code >= 0:
        return f"exit code {code}"
    hint = " (out of memory?)" if -code == signal.SIGKILL else ""
    return f"signal {signal.Signals(-code).name}{hint}"


def tail(path: Path, lines: int = 15) -> str:
    """Return the last lines of a log, or an empty string."""
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    except FileNotFoundError:
        return ""
