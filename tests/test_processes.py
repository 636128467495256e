"""Processes of a run: libraries that are called apart, connections between ranks, peak memory."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import numpy as np
import psutil
import pytest

from tasks.processes.children import MEETING_FILE, call_in_child, shared_array
from tasks.processes.doors import closing_doors, may_be_ours
from tasks.processes.memory import PeakMemory, descendants
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
    time.sleep(2)  # until the parent has looked, also on a machine that others use
    assert more.sum() + held[0] > 0

with PeakMemory() as memory:
    before = memory.peak_bytes
    call_in_child(work)
print(before, memory.peak_bytes, held.nbytes, 8 * taken)
"""


_NOBODY = 65534


@pytest.fixture(autouse=True)
def one_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MEETING_FILE, str(tmp_path / "meeting"))


def test_who_is_connected_stays_and_nobody_comes_later() -> None:
    earlier = socket.create_server(("127.0.0.1", 0))
    with closing_doors():
        listener = socket.create_server(("127.0.0.1", 0))
        peer = socket.create_connection(listener.getsockname())
        own, _ = listener.accept()
    with earlier, listener, peer, own:
        for here, there in ((own, peer), (peer, own)):
            here.sendall(b"x" * 1000)
            assert there.recv(1000)
        with pytest.raises(TimeoutError):
            socket.create_connection(listener.getsockname(), timeout=0.5)
        socket.create_connection(earlier.getsockname(), timeout=5).close()  # what was there before is not a rank's


def test_with_nccl_connections_may_come_later() -> None:
    with closing_doors(deaf=False):
        listener = socket.create_server(("127.0.0.1", 0))
    with listener:
        socket.create_connection(listener.getsockname(), timeout=5).close()


def test_another_user_is_told_from_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    with listener, socket.create_connection(listener.getsockname()), listener.accept()[0]:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        with pytest.raises(ConnectionError, match=f"user {os.getuid()} of this machine"), closing_doors():
            pass


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_whose_the_other_end_of_a_connection_is(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.create_server((address, 0), family=family)
    client = socket.create_connection(listener.getsockname()[:2])
    with listener, client, listener.accept()[0] as server:
        ends = server.getpeername()[:2], server.getsockname()[:2]
        assert may_be_ours(*ends)
        assert not may_be_ours((address, ends[0][1] ^ 1), ends[1])
        client.close()
        assert not may_be_ours(*ends), "who has gone is nobody"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_a_real_other_user_is_told_from_a_rank() -> None:
    shell = shutil.which("bash")
    assert shell is not None
    with socket.create_server(("127.0.0.1", 0)) as listener:
        program = f"exec 3<>/dev/tcp/127.0.0.1/{listener.getsockname()[1]} && echo >&3 && read -r line <&3"
        stranger = subprocess.Popen([shell, "-c", program], user=_NOBODY, group=_NOBODY, extra_groups=[], cwd="/")
        try:
            with listener.accept()[0] as connection:
                assert connection.recv(1)
                with pytest.raises(ConnectionError, match=f"user {_NOBODY} of this machine"), closing_doors():
                    pass
        finally:
            stranger.kill()
            stranger.wait()


MEGABYTES = 200
HOLD = f"import sys; x = b'x' * ({MEGABYTES} * 10**6); print('here', flush=True); sys.stdin.read()"
NEST = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {HOLD!r}])"


@contextmanager
def holding(code: str) -> Iterator[subprocess.Popen[str]]:
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
