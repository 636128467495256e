"""Which sockets the processes of a home listen on, looked at all the while."""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import re
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.flows.test_kills import processes_of

_LOOK_SECONDS = 0.02
_LISTENS = "0A"
_ACCEPTS = 0x10000


@dataclass(frozen=True)
class Listener:
    """A socket that others can connect to: of TCP, or a Unix socket whose name is in no file system."""

    program: str
    """Module or file that the process runs."""
    address: str
    """IP address, or `@` and a name."""

    @property
    def on_loopback(self) -> bool:
        return not self.address.startswith("@") and ipaddress.ip_address(self.address).is_loopback


class Watch:
    """Notes every listener of the processes that were started for a home; `seen` says what there was."""

    def __init__(self, home: Path) -> None:
        self.seen: set[Listener] = set()
        self._home = home
        self._over = threading.Event()
        self._others: set[str] = set()
        """Inodes of sockets that are not of this home, or noted."""
        self._thread = threading.Thread(target=self._look_on, daemon=True)

    def _look_on(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            self.look()

    def look(self) -> None:
        now = dict(_listening())
        new = now.keys() - self._others
        if not new:
            return
        for process in processes_of(self._home):
            with contextlib.suppress(psutil.Error, OSError):
                program = _program(process.cmdline())
                for inode in new & _sockets(process.pid):
                    self.seen.add(Listener(program, now[inode]))
        self._others |= new


@contextlib.contextmanager
def watching(home: Path) -> Iterator[Watch]:
    watch = Watch(home)
    watch._others |= {inode for inode, _ in _listening()}
    watch._thread.start()
    try:
        yield watch
    finally:
        watch._over.set()
        watch._thread.join()


def _listening() -> Iterator[tuple[str, str]]:
    """Yield inode and address of every socket of this network that listens."""
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(FileNotFoundError):  # no IPv6
            for line in Path("/proc/net", name).read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == _LISTENS:
                    yield words[9], _address(words[1].partition(":")[0])
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        words = line.split(maxsplit=7)
        if int(words[3], 16) & _ACCEPTS and len(words) == 8 and words[7].startswith("@"):
            yield words[6], words[7]


def _address(text: str) -> str:
    """Return an address that the kernel shows as numbers of this machine's byte order."""
    words = [struct.pack("=I", int(text[at : at + 8], 16)) for at in range(0, len(text), 8)]
    return socket.inet_ntop(socket.AF_INET if len(words) == 1 else socket.AF_INET6, b"".join(words))


def _sockets(pid: int) -> set[str]:
    links = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            links |= set(re.findall(r"^socket:\[(\d+)\]$", str(descriptor.readlink())))
    return links


def _program(words: list[str]) -> str:
    """Return the module that a command line names, or the one that `tasks.supervise` is to run."""
    modules = [word for before, word in itertools.pairwise(words) if before == "-m"]
    if modules[:1] == ["tasks.supervise"]:
        return words[words.index("tasks.supervise") + 1]
    return modules[0] if modules else " ".join(Path(word).name for word in words[:2])
