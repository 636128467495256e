"""Let a process note what no reader may do: write beside its folder, ask the network, start programs."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
import tempfile
from pathlib import Path
from typing import Any

_STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "webbrowser.open")
_NETWORK = ("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto")
_CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod",
            "sqlite3.connect", "shutil.rmtree")  # fmt: skip
SOCKET = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
"""By processor: its number in seccomp, and that of the call `socket`."""

noted: list[str] = []
"""What was done; whoever asks empties it."""


def confine(data: Path, outputs: tuple[Path, ...]) -> None:
    """Note from now on what Python does; code in C that opens a socket ends the process (SIGSYS).

    Only `outputs` may be written to, and SQLite may open what lies in `data`.
    """
    sys.dont_write_bytecode = True
    kernels = os.environ["NUMBA_CACHE_DIR"]
    places = tuple(os.path.realpath(path) + os.sep for path in (*outputs, tempfile.gettempdir(), kernels))
    databases = (*places, os.path.realpath(data) + os.sep)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _STARTS or event in _NETWORK:
            noted.append(f"{event} {arguments!r:.300}")
        elif event in ("os.remove", "os.rmdir") and arguments[1] != -1:
            return  # by an open folder, within shutil.rmtree
        elif event in _CHANGES or (event == "open" and _writes(arguments)):
            paths = [one for one in arguments if isinstance(one, str | bytes | os.PathLike)]
            allowed = databases if event == "sqlite3.connect" else places
            for path in map(os.fsdecode, paths[: 2 if event in ("os.rename", "os.link", "os.symlink") else 1]):
                if path not in (os.devnull, ":memory:") and not (os.path.realpath(path) + os.sep).startswith(allowed):
                    noted.append(f"{event} {path}")

    sys.addaudithook(hook)
    _end_at_sockets()


def _writes(arguments: tuple[Any, ...]) -> bool:
    path, _, flags = arguments
    return not isinstance(path, int) and bool((flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


def _end_at_sockets() -> None:
    """Have the kernel end the process at a socket of the internet (Linux): `seccomp(2)`, a filter of eight steps."""
    if sys.platform != "linux" or platform.machine() not in SOCKET:
        return
    processor, call = SOCKET[platform.machine()]
    load, equal, answer, allow, end = 0x20, 0x15, 0x06, 0x7FFF0000, 0x80000000
    steps = [
        (load, 0, 0, 4), (equal, 0, 5, processor),  # the processor's field of struct seccomp_data
        (load, 0, 0, 0), (equal, 0, 3, call),
        (load, 0, 0, 16), (equal, 2, 0, 2), (equal, 1, 0, 10),  # AF_INET, AF_INET6
        (answer, 0, 0, allow), (answer, 0, 0, end),
    ]  # fmt: skip
    code = b"".join(struct.pack("HBBI", *step) for step in steps)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(buffer)))
    libc = ctypes.CDLL(None, use_errno=True)
    no_new_rights, set_filter, by_program = 38, 22, 2
    assert libc.prctl(no_new_rights, 1, 0, 0, 0) == 0
    assert libc.prctl(set_filter, by_program, program, 0, 0) == 0, ctypes.get_errno()
