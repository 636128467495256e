"""Peak memory of a process and what it starts."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from tasks.processes.memory import PeakMemory, descendants

MEGABYTES = 200
HOLD = f"import sys; x = b'x' * ({MEGABYTES} * 10**6); print('here', flush=True); sys.stdin.read()"
NEST = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {HOLD!r}])"


@contextmanager
def holding(code: str) -> Iterator[subprocess.Popen[str]]:
    """A process that holds memory until the block ends."""
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "here\n"
        yield process
        process.stdin.close()


def test_children_of_children_and_of_threads_are_found() -> None:
    found: list[list[int]] = []

    def start() -> None:
        with holding(NEST) as process:
            expected = [child.pid for child in psutil.Process().children(recursive=True)]
            found.extend([descendants(), expected, descendants(process.pid)])

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    ours, expected, below = found
    assert sorted(ours) == sorted(expected)
    assert len(below) == 1
    assert descendants(below[0]) == []


def test_the_peak_counts_what_was_started_within() -> None:
    with holding(HOLD), PeakMemory() as memory:  # the first was there before, as the run's own server is
        before = memory.peak_bytes
        with holding(NEST):
            time.sleep(0.5)  # many looks long
    assert MEGABYTES * 10**6 < memory.peak_bytes - before < 1.6 * MEGABYTES * 10**6
