"""`graphmill down` signals the supervisor, and nobody who has got its number."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from configs.errors import StageError
from flows.services import operation
from flows.services.operation import bring_down
from flows.services.state import SupervisorState, born, lock_path, write_state
from tasks.storage.artifacts import file_lock
from tasks.storage.home import Home

SUPERVISOR = """
import sys, time
from flows.services.state import lock_path
from tasks.storage.artifacts import file_lock
from tasks.storage.home import Home
with file_lock(lock_path(Home.open(sys.argv[1]))):
    print("up", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize("mark", ["", "boot:1"])
def test_another_process_of_its_number_is_spared(
    home: Home, victim: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, mark: str
) -> None:
    write_state(home, SupervisorState(process=victim.pid, born=mark))
    monkeypatch.setattr(operation, "_DOWN_SECONDS", 1.0)
    with file_lock(lock_path(home)), pytest.raises(StageError, match="does not say which process it is"):
        bring_down(home)  # the lock is that of a supervisor that has not written its state yet
    assert victim.poll() is None


def test_one_that_says_who_it_is_a_little_later_is_ended(home: Home, victim: subprocess.Popen[bytes]) -> None:
    write_state(home, SupervisorState(process=victim.pid, born="boot:1"))
    command = [sys.executable, "-c", SUPERVISOR, str(home.root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as supervisor:
        assert supervisor.stdout is not None
        assert supervisor.stdout.readline() == b"up\n"
        down = threading.Thread(target=bring_down, args=(home,))
        down.start()
        time.sleep(0.5)
        assert supervisor.poll() is None
        write_state(home, SupervisorState(process=supervisor.pid, born=born(supervisor.pid)))
        down.join(30)
        assert not down.is_alive()
        assert supervisor.wait(10) < 0
    assert victim.poll() is None
