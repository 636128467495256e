"""Connections between ranks of one machine: who else is there, and who comes later."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from tasks.processes.children import MEETING_FILE
from tasks.processes.doors import closing_doors, may_be_ours

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
