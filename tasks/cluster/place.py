"""The ranks of one machine: an actor of Ray's starts them as processes of its own, which end with it.

A machine sees the home where it can read what the run has just written there; else its ranks read what is fetched.
Ranks of any other machine than the home's write into a folder of their own, which is mirrored: an attempt that was cut
off, and does not know it, has nobody who takes what it writes.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from configs.errors import GraphmillError, StageError
from tasks.cluster.files import FetchedFiles, Mirror, rerooted
from tasks.cluster.machines import end_with_raylet
from tasks.cluster.order import Order
from tasks.cluster.settings import LOOK_SECONDS
from tasks.processes.children import MACHINE, PARENT, ROOT, inherited_environment
from tasks.processes.code_version import code_digest
from tasks.processes.memory import process_bytes
from tasks.storage.artifacts import is_full_disk
from tasks.storage.home import Home
from tasks.storage.home_files.fetched import FETCHER, short_path
from tasks.storage.home_files.temporary import own_folder

_SEEN_FILE = "logs/.seen"
_SMALL_BYTES = 1 << 20
"""Files of the work folder that every machine gets; larger ones the machine of rank 0 alone."""
_COMPARED = ("torch", "numpy", "ray", "pyarrow", "numba")


def versions() -> dict[str, str]:
    """Return what has to be the same on all machines."""
    found = {"graphmill's code": code_digest(), "Python": sys.version.split()[0]}
    return {**found, **{name: version(name).partition("+")[0] for name in _COMPARED}}


def compare(name: str, found: dict[str, str]) -> None:
    """Raise StageError where a machine's versions are not those of this one."""
    own = versions()
    unlike = [f"{what} is {other} there and {own[what]} here" for what, other in found.items() if own[what] != other]
    if unlike:
        raise StageError(f"{name} does not run what this machine runs: {'; '.join(unlike)}. Install the same on both")


def cache_folder() -> Path:
    """Return the folder of what this machine has fetched, which may not be there."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "graphmill" / "cluster"


def own_cache() -> Home:
    """Return where this machine keeps what it has fetched, and what goes with a process. Raises StageError."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if folder.stat().st_uid != os.geteuid():
        raise StageError(f"{folder}, for what is fetched, is another user's; remove it, or set XDG_CACHE_HOME")
    folder.chmod(0o700)
    return Home(folder)


def mark_home(work: Path, text: str) -> None:
    """Leave a text by which machines notice that they see this home."""
    (work / _SEEN_FILE).parent.mkdir(exist_ok=True)
    (work / _SEEN_FILE).write_text(text, encoding="utf-8")


def sees_home(work: str, text: str) -> bool:
    """Whether this machine reads what `mark_home` has left."""
    try:
        return (Path(work) / _SEEN_FILE).read_text(encoding="utf-8") == text
    except OSError:
        return False


class Place:
    """Ranks on this machine. Ray calls its methods from threads."""

    def __init__(self, order: Order, seen_text: str, files: Any, *, is_own: bool, has_main: bool) -> None:
        """`is_own`: this is the machine of the home; `has_main`: rank 0 is here; `files`: a HomeFiles' handle."""
        end_with_raylet()
        self._order, self._files, self._has_main = order, files, has_main
        self._is_own, self._sees = is_own, is_own or sees_home(order.work, seen_text)
        self._writes_itself = is_own or (self._sees and order.shares_files)
        self._ranks: list[subprocess.Popen[bytes]] = []
        self._ended = threading.Event()

    def facts(self) -> dict[str, Any]:
        """Return versions, whether this machine sees the home, and where ranks may meet here."""
        address = _own_address()
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as free:
            free.bind((address, 0))
            port = free.getsockname()[1]
        return {"versions": versions(), "sees": self._sees, "address": address, "port": port}

    def run(
        self, arguments: list[str], first: int, count: int, machine: str, meeting: tuple[str, int]
    ) -> dict[str, Any]:
        """Run ranks until all have ended or one has failed; return its number, its code and what was used.

        An error that no rank has raised is returned as `error`, with `full_disk`.
        """
        outcome: dict[str, Any] = {"rank": -1, "code": 0}
        with contextlib.ExitStack() as stack:
            try:
                work, fetched = self._prepare(stack)
                mirror = None if self._writes_itself else Mirror(self._files, work)
                address = meeting[0] if first == 0 else _own_address()
                # By itself gloo would take the interface of the host's name, often the loopback.
                ends = ((name, end) for name, ends in psutil.net_if_addrs().items() for end in ends)
                interface = next((name for name, end in ends if end.address.partition("%")[0] == address), None)
                common = self._environment(interface, machine, meeting, count)
                roots = {self._order.work: str(work)}
                arguments = rerooted(arguments, roots)
                self._ranks = [_start(arguments, work, first + i, i, common) for i in range(count)]
                outcome |= self._watch(first, mirror)
                outcome["fetched_bytes"] = fetched.fetched_bytes if fetched else 0
            except Exception as error:
                full, expected = is_full_disk(error), isinstance(error, GraphmillError)
                text = str(error) if full or expected else f"{type(error).__name__}: {error}"
                if full:
                    text += f" (ranks there write into {self._order.work if self._writes_itself else cache_folder()})"
                outcome |= {"error": text, "full_disk": full}
            finally:
                self._kill()
        return outcome

    def end(self) -> None:
        """End the ranks now."""
        self._ended.set()
        self._kill()

    def _kill(self) -> None:
        for process in self._ranks:
            process.kill()  # what it writes is whole or absent
        for process in self._ranks:
            process.wait()

    def _watch(self, first: int, mirror: Mirror | None) -> dict[str, Any]:
        began, sent = time.monotonic(), psutil.net_io_counters().bytes_sent
        peak, codes = 0, list[int | None]()
        while not any(codes := [rank.poll() for rank in self._ranks]) and None in codes and not self._ended.is_set():
            self._ended.wait(LOOK_SECONDS)
            peak = max(peak, sum(process_bytes(rank.pid) for rank in self._ranks))
            if mirror is not None:
                mirror.look()
        self._kill()
        if mirror is not None and not self._ended.is_set():
            mirror.look(last=True)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        failures: dict[int, int] = {first + number: code for number, code in enumerate(codes) if code}
        rank = min(failures, key=lambda number: (failures[number] > 0, number), default=-1)
        return {
            "rank": rank,
            "code": failures.get(rank, 0),
            "peak_bytes": peak,
            "cpu_percent": 100 * (used.ru_utime + used.ru_stime) / max(time.monotonic() - began, 1e-9),
            "sent_bytes": psutil.net_io_counters().bytes_sent - sent,
        }

    def _prepare(self, stack: contextlib.ExitStack) -> tuple[Path, FetchedFiles | None]:
        """Return the folder that ranks write into, and what fetches files where this machine does not see the home."""
        if self._writes_itself:
            return Path(self._order.work), None
        scratch = stack.enter_context(own_folder(own_cache()))
        work, order = scratch / "work", self._order
        work.mkdir()
        limit = order.config.cache_gb * 1e9
        fetched = FetchedFiles(self._files, order.home, own_cache().artifacts, scratch / "home", limit)
        roots = {order.work: str(work)} | ({} if self._sees else fetched.roots)
        import ray

        for name, size in ray.get(self._files.in_work.remote()):
            if self._has_main or size <= _SMALL_BYTES:
                source = scratch / "home" / name
                fetched.fetch(source)
                source.replace(work / Path(name).name)
        for job in work.glob("job.json"):
            job.write_text(json.dumps(rerooted(json.loads(job.read_bytes()), roots)), encoding="utf-8")
        (work / "logs").mkdir()
        if not self._sees:
            self._serve(fetched, scratch / "fetcher", stack)
        return work, fetched

    def _serve(self, fetched: FetchedFiles, path: Path, stack: contextlib.ExitStack) -> None:
        listening = stack.enter_context(socket.socket(socket.AF_UNIX))
        with short_path(path) as name:
            listening.bind(name)
        listening.listen()

        def answer(asking: socket.socket) -> None:
            with asking, asking.makefile("rw", encoding="utf-8") as lines:
                asked = json.loads(lines.readline())
                said: dict[str, Any] = {}
                try:
                    fetched.fetch(Path(asked["path"]), asked["start"], asked["stop"])
                except Exception as error:
                    said = {"error": f"{asked['path']} could not be fetched on {socket.gethostname()}: {error}"}
                lines.write(json.dumps(said) + "\n")

        def accept() -> None:
            with contextlib.suppress(OSError):  # closed
                while True:
                    threading.Thread(target=answer, args=(listening.accept()[0],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        self._fetcher = str(path)

    def _environment(self, interface: str | None, machine: str, meeting: tuple[str, int], count: int) -> dict[str, str]:
        own = {name: value for name, value in inherited_environment().items() if not name.startswith("RAY_")}
        by_interface = {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface} if interface else {}
        return {
            "TORCH_CPP_LOG_LEVEL": "ERROR",  # it warns of every address without a name
            **by_interface,
            **own,
            **self._order.variables,
            PARENT: str(os.getpid()),
            MACHINE: machine,
            "WORLD_SIZE": str(self._order.ranks),
            "LOCAL_WORLD_SIZE": str(count),
            "MASTER_ADDR": meeting[0],
            "MASTER_PORT": str(meeting[1]),
            **({FETCHER: self._fetcher} if hasattr(self, "_fetcher") else {}),
        }


def _own_address() -> str:
    import ray

    return str(ray.util.get_node_ip_address())


def _start(arguments: list[str], work: Path, rank: int, local: int, common: dict[str, str]) -> subprocess.Popen[bytes]:
    logs = work / "logs"
    logs.mkdir(exist_ok=True)
    with (logs / f"said-{rank}.log").open("wb") as output:
        return subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env={**common, "RANK": str(rank), "LOCAL_RANK": str(local)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
