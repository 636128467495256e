"""Several machines on this one: network namespaces with memory limits and a network that can be slow, or cut.

Needs root, `ip` and control groups; nothing else of the system is touched, and all is taken away at the end.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from benchmarks.network_relay import address

ROOT = Path(__file__).resolve().parent.parent
_GROUPS = Path("/sys/fs/cgroup/memory")
_SHARED_MEMORY = Path("/dev/shm")
_SAMPLE_SECONDS = 0.1


def missing() -> str:
    """Why there can be no such machines here; empty: there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not (shutil.which("ip") and Path("/dev/net/tun").exists()):
        return "iproute2 or /dev/net/tun is missing"
    return "" if _GROUPS.is_dir() else "memory limits need control groups (version 1)"


@dataclass
class Machine:
    """A namespace and its memory."""

    number: int
    namespace: str
    group: Path
    shared_memory: Path
    """What its processes see as /dev/shm."""
    peak_bytes: int = 0
    """Most anonymous and shared memory of its processes so far, page cache left out."""
    processes: list[subprocess.Popen[Any]] = field(default_factory=list)

    def sample(self) -> None:
        found = {}
        for line in (self.group / "memory.stat").read_text().splitlines():
            name, value = line.split()
            found[name] = int(value)
        self.peak_bytes = max(self.peak_bytes, found.get("rss", 0) + found.get("shmem", 0))

    def running(self) -> dict[int, list[str]]:
        """Return the processes that run on it, with their arguments, by process id."""
        found = {}
        for pid in map(int, (self.group / "cgroup.procs").read_text().split()):
            with contextlib.suppress(OSError):
                found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        return found


class Machines:
    """So many machines; a context, which ends all that runs on them."""

    def __init__(self, count: int, memory_bytes: int | None = None) -> None:
        """`memory_bytes`: limit of each, page cache included, which the kernel takes back."""
        reason = missing()
        if reason:
            raise RuntimeError(reason)
        tag = f"gm{os.getpid()}"
        self.machines = [
            Machine(i, f"{tag}-{i}", _GROUPS / f"{tag}-{i}", _SHARED_MEMORY / f"{tag}-{i}") for i in range(count)
        ]
        self._ended = threading.Event()
        for machine in self.machines:
            subprocess.run(["ip", "netns", "add", machine.namespace], check=True)
            machine.group.mkdir()
            machine.shared_memory.mkdir()
            if memory_bytes is not None:
                (machine.group / "memory.limit_in_bytes").write_text(str(memory_bytes))
        command = [sys.executable, "-m", "benchmarks.network_relay", *(m.namespace for m in self.machines)]
        pipe = subprocess.PIPE
        self._relay = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
        assert self._relay.stdout is not None
        if self._relay.stdout.readline().strip() != "ready":
            self.close()
            raise RuntimeError("the network between the machines did not come up")
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._sampler.start()

    def tell_network(self, *lines: str) -> None:
        """Change the network, see `network_relay`."""
        assert self._relay.stdin is not None
        for line in lines:
            self._relay.stdin.write(line + "\n")
        self._relay.stdin.flush()

    def start(
        self, number: int, command: Sequence[str], environment: dict[str, str] | None = None, output: IO[Any] | int = -1
    ) -> subprocess.Popen[Any]:
        """Start a command on a machine, with the machine's own /dev/shm."""
        machine = self.machines[number]
        inside = 'mount --bind "$0" /dev/shm && exec "$@"'
        enter = ["ip", "netns", "exec", machine.namespace, "unshare", "-m", "sh", "-c", inside]
        enter.append(str(machine.shared_memory))
        process = subprocess.Popen(
            ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(machine.group), *enter, *command],
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        machine.processes.append(process)
        return process

    def kill(self, number: int) -> None:
        """Turn a machine off: all its processes end at once, and its memory is lost."""
        machine = self.machines[number]
        for _ in range(20):
            pids = (machine.group / "cgroup.procs").read_text().split()
            if not pids:
                break
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            time.sleep(0.05)
        for path in machine.shared_memory.iterdir():
            path.unlink()

    def address(self, number: int) -> str:
        """Return a machine's address."""
        return address(number)

    def close(self) -> None:
        """End everything."""
        self._ended.set()
        for machine in self.machines:
            with contextlib.suppress(OSError):
                self.kill(machine.number)
        self._relay.kill()
        self._relay.wait()
        for machine in self.machines:
            for process in machine.processes:
                process.wait()
            subprocess.run(["ip", "netns", "del", machine.namespace], check=False)
            with contextlib.suppress(OSError):
                machine.group.rmdir()
            shutil.rmtree(machine.shared_memory, ignore_errors=True)

    def _sample(self) -> None:
        while not self._ended.wait(_SAMPLE_SECONDS):
            for machine in self.machines:
                with contextlib.suppress(OSError, ValueError):
                    machine.sample()

    def __enter__(self) -> Machines:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
