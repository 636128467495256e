"""Tell other users of a machine at a loopback's connections, and keep them out of those between its ranks.

gloo listens on the loopback as long as a rank lives and asks for no password: whoever is there first with a small
number is taken for the peer of that number.
"""

from __future__ import annotations

import contextlib
import ctypes
import ipaddress
import os
import re
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tasks.processes.children import MEETING_FILE

_ESTABLISHED, _LISTENS = "01", "0A"
_SO_ATTACH_FILTER = 26
_DROP_ALL = struct.pack("HBBI", 6, 0, 0, 0)
"""A filter of one instruction: return 0, the length of a packet that is let in."""


@dataclass(frozen=True)
class _Connection:
    local: str
    remote: str
    state: str
    user: int
    inode: int


@contextlib.contextmanager
def closing_doors(*, deaf: bool = True) -> Iterator[None]:
    """Connect ranks during the block; after it nobody else can connect to what this process began to listen on.

    Does nothing where ranks of several machines connect: theirs may be different users, and kernels.

    `deaf`: with False more connections may come, as NCCL makes them when it needs them; it asks for a secret. Raises
    ConnectionError: a process of another user is connected. Another attempt may go well.
    """
    if MEETING_FILE not in os.environ:
        yield
        return
    before = {one.inode for one in _connections() if one.state == _LISTENS}
    yield
    sockets, connections = _sockets(), _connections()
    ends = {(one.local, one.remote): one for one in connections}
    for one in connections:
        peer = ends.get((one.remote, one.local))
        if one.state != _ESTABLISHED or one.inode not in sockets or peer is None or not peer.inode:
            continue  # without an inode it is accepted later, by who listens there
        if peer.user != os.geteuid():
            raise ConnectionError(
                f"a process of user {peer.user} of this machine has connected to this rank, which only ranks may use"
            )
    for one in connections:
        if deaf and one.state == _LISTENS and one.inode in sockets.keys() - before:
            _stop_accepting(sockets[one.inode])


def may_be_ours(client: tuple[str, int], server: tuple[str, int]) -> bool:
    """Whether a process of this user, or root's, still has the client's end of a connection within this machine."""
    file = "/proc/net/tcp6" if ":" in client[0] else "/proc/net/tcp"
    ends = tuple(map(_kernel_address, (client, server)))
    return any(
        (one.local, one.remote) == ends and one.inode and one.user in (os.geteuid(), 0) for one in _connections(file)
    )


def _kernel_address(address: tuple[str, int]) -> str:
    """Return an address as the kernel's tables write it: words of four bytes in the machine's order."""
    packed = ipaddress.ip_address(address[0]).packed
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{address[1]:04X}"


def _connections(file: str = "/proc/net/tcp") -> list[_Connection]:
    """Return the TCP connections and listeners of this network, by default IPv4's: the loopback's first address is."""
    lines = [line.split() for line in Path(file).read_text().splitlines()[1:]]
    return [_Connection(words[1], words[2], words[3], int(words[7]), int(words[9])) for words in lines]


def _sockets() -> dict[int, int]:
    sockets = {}
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the folder's own
            if match := re.fullmatch(r"socket:\[(\d+)\]", str(path.readlink())):
                sockets[int(match[1])] = int(path.name)
    return sockets


def _stop_accepting(descriptor: int) -> None:
    """Have the kernel drop what arrives for a listening socket, where it has filters; closing it would end gloo."""
    code = ctypes.create_string_buffer(_DROP_ALL, len(_DROP_ALL))
    with socket.socket(fileno=os.dup(descriptor)) as listener, contextlib.suppress(OSError):
        listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HP", 1, ctypes.addressof(code)))
