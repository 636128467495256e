"""Libraries that do not let a process end are called apart from it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

import numpy as np
import pytest

from tasks.processes.children import call_in_child, killed_ranks, shared_array
from tasks.processes.memory import descendants
from tests.partition.test_partitioners import grid, make


class ToldError(BaseException):
    pass


# Python drops what a handler raises in a hook of os.fork, and says so; see tasks/processes/ending.py.
drops_errors = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def is_ended_by_a_signal(function: Callable[[], object]) -> None:
    """Send this process SIGTERM after a while, and again where Python dropped what the handler raised."""
    left = threading.Event()

    def tell() -> None:
        while not left.wait(0.5):
            os.kill(os.getpid(), signal.SIGTERM)

    def end(number: int, frame: FrameType | None) -> None:
        raise ToldError

    before = signal.signal(signal.SIGTERM, end)
    threading.Thread(target=tell).start()
    try:
        with pytest.raises(ToldError):
            function()
    finally:
        left.set()
        signal.signal(signal.SIGTERM, before)


def test_what_a_child_leaves_is_seen_here() -> None:
    numbers = shared_array(5, np.int32)

    def fill() -> None:
        numbers[:] = np.arange(5)

    assert call_in_child(fill) == 0
    assert numbers.tolist() == [0, 1, 2, 3, 4]
    assert len(shared_array(0, np.int64)) == 0


def test_how_a_child_ends_is_known(capfd: pytest.CaptureFixture[str]) -> None:
    assert call_in_child(lambda: 1 / 0) == 1
    assert "ZeroDivisionError" in capfd.readouterr().err
    assert call_in_child(lambda: os.kill(os.getpid(), signal.SIGKILL)) == -signal.SIGKILL
    assert call_in_child(lambda: os.kill(os.getpid(), signal.SIGTERM)) == 0, "its parent ends it, nobody else"


@drops_errors
def test_a_child_goes_with_the_call() -> None:
    before = set(descendants())
    is_ended_by_a_signal(lambda: call_in_child(lambda: time.sleep(600)))
    assert set(descendants()) <= before


@drops_errors
def test_metis_at_work_is_ended_by_a_signal() -> None:
    """It takes SIGTERM for an error of its own, and would go on with half a partition."""
    graph = grid(300)

    def partition_on() -> None:
        for _ in range(200):
            make("metis", num_parts=64).partition(graph, 64)

    is_ended_by_a_signal(partition_on)


def test_memory_that_a_child_shares_is_counted_once() -> None:
    """In a fresh interpreter: what other tests left behind is given back at any moment."""
    ended = subprocess.run([sys.executable, "-c", _SHARED_MEMORY], capture_output=True, text=True, check=True)
    before, peak, held, taken = map(int, ended.stdout.split())
    assert before + 0.8 * taken < peak < before + 0.5 * held


_SHARED_MEMORY = """
import time
import numpy as np
from tasks.processes.children import call_in_child
from tasks.processes.memory import PeakMemory

held, taken = np.ones(30_000_000), 5_000_000  # 240 MB

def work():
    more = np.ones(taken)
    time.sleep(0.5)
    assert more.sum() + held[0] > 0

with PeakMemory() as memory:
    before = memory.peak_bytes
    call_in_child(work)
print(before, memory.peak_bytes, held.nbytes, 8 * taken)
"""


def test_a_killed_rank_is_told_from_what_torchrun_says() -> None:
    assert "SIGKILL" in killed_ranks(
        "  exitcode  : -9 (pid: 31770)\n  traceback : Signal 9 (SIGKILL) received by PID 31770"
    )
    assert not killed_ranks("  exitcode  : 1 (pid: 31770)\n  traceback : To enable traceback see: https://pytorch.org")
