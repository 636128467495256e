"""A real sshd on the loopback, whose users, keys and known hosts are a folder's."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.flows.conftest import environment
from tests.needs import skip_without
from tests.ports import free_port

SECOND, UNKNOWN, AWAY = "second", "unknown", "away"
"""Names that ssh takes for this machine, for one whose key nobody knows, and for one where nobody listens."""
_PRIVILEGE_FOLDER = Path("/run/sshd")


@dataclass(frozen=True)
class Ssh:
    """An sshd, and a `ssh` first on PATH that knows it: the real one, told to read another configuration."""

    folder: Path
    binaries: Path

    def environment(self) -> dict[str, str]:
        base = environment()
        return {**base, "PATH": f"{self.binaries}{os.pathsep}{base['PATH']}"}


def _tool(name: str) -> str:
    found = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"]))
    skip_without(name, found)
    return str(found)


@pytest.fixture
def ssh(tmp_path: Path) -> Iterator[Ssh]:
    sshd, client, keygen = _tool("sshd"), _tool("ssh"), _tool("ssh-keygen")
    if os.geteuid() == 0 and not _PRIVILEGE_FOLDER.exists():
        _PRIVILEGE_FOLDER.mkdir(mode=0o755)  # as its service does before it starts
    folder, port = tmp_path / "ssh", free_port()
    binaries = folder / "bin"
    binaries.mkdir(parents=True)
    for key in ("host", "user"):
        subprocess.run([keygen, "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)], check=True)
    kind, key = (folder / "host.pub").read_text().split()[:2]
    (folder / "known").write_text(f"{SECOND} {kind} {key}\n")
    (folder / "sshd.conf").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/user.pub\n"
        f"StrictModes no\nPasswordAuthentication no\nUsePAM no\nPidFile {folder}/pid\n"
    )
    aliases = "".join(f"Host {host}\n  HostKeyAlias {host}\n" for host in (SECOND, UNKNOWN))
    (folder / "ssh.conf").write_text(
        f"Host {AWAY}\n  Port {free_port()}\n{aliases}"
        f"Host *\n  HostName 127.0.0.1\n  Port {port}\n  IdentityFile {folder}/user\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {folder}/known\n  GlobalKnownHostsFile none\n"
    )
    (binaries / "ssh").write_text(f'#!/bin/sh\nexec {client} -F {folder}/ssh.conf "$@"\n')
    (binaries / "ssh").chmod(0o755)
    process = subprocess.Popen([sshd, "-D", "-f", str(folder / "sshd.conf"), "-E", str(folder / "sshd.log")])
    try:
        _wait_for(client, folder, process)
        yield Ssh(folder, binaries)
    finally:
        process.terminate()
        process.wait()


def _wait_for(client: str, folder: Path, process: subprocess.Popen[bytes]) -> None:
    command = [client, "-F", str(folder / "ssh.conf"), "-o", "BatchMode=yes", SECOND, "true"]
    deadline = time.monotonic() + 20
    while (done := subprocess.run(command, capture_output=True, text=True)).returncode != 0:
        if process.poll() is not None or time.monotonic() > deadline:
            print((folder / "sshd.log").read_text(), done.stderr)
            skip_without("an sshd that works", False)
        time.sleep(0.1)
