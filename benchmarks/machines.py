"""Several machines on this one: network namespaces with memory limits and a network that can be slow, or cut.

Needs root, `ip` and control groups; nothing else of the system is touched, and all is taken away at the end.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from benchmarks.network_relay import DEVICE, address

ROOT = Path(__file__).resolve().parent.parent
_GROUPS = Path("/sys/fs/cgroup/memory")
_CPU_GROUPS = Path("/sys/fs/cgroup/cpuacct")
_SHARED_MEMORY = Path("/dev/shm")
# A namespace comes with a /sys of its own, where a program would not find the limit of its memory.
_MOUNTS = (
    'mount --bind "$0" /dev/shm && mount -t tmpfs tmpfs /sys/fs/cgroup && mkdir /sys/fs/cgroup/memory'
    " && mount -t cgroup -o memory cgroup /sys/fs/cgroup/memory"
)
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

    @property
    def cpu_group(self) -> Path:
        """The control group that counts CPU time."""
        return _CPU_GROUPS / self.group.name

    def cpu_seconds(self) -> float:
        """CPU time of all its processes so far, user and system, of those that have ended too."""
        if not self.cpu_group.is_dir():
            raise RuntimeError(f"CPU time of a machine needs {_CPU_GROUPS}, a control group of version 1")
        return int((self.cpu_group / "cpuacct.usage").read_text()) / 1e9

    def sent_bytes(self) -> int:
        """Bytes of the packets that it has sent so far, by the counter of its network device."""
        command = ["ip", "netns", "exec", self.namespace, "cat", "/proc/net/dev"]
        for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines():
            name, _, counters = line.partition(":")
            if name.strip() == DEVICE:
                return int(counters.split()[8])  # eight of what was received come first
        raise RuntimeError(f"{self.namespace} has no device {DEVICE}")

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

    def __init__(self, count: int, memory_bytes: int | None = None, name: str = "") -> None:
        """Bring them up.

        Args:
            count: how many.
            memory_bytes: limit of each, page cache included, which the kernel takes back.
            name: tells them from others of this process, with which they share no network.
        """
        reason = missing()
        if reason:
            raise RuntimeError(reason)
        tag = f"gm{os.getpid()}{name}"
        self.machines = [
            Machine(i, f"{tag}-{i}", _GROUPS / f"{tag}-{i}", _SHARED_MEMORY / f"{tag}-{i}") for i in range(count)
        ]
        self._ended = threading.Event()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that this context ends
        for machine in self.machines:
            subprocess.run(["ip", "netns", "add", machine.namespace], check=True)
            machine.group.mkdir()
            machine.shared_memory.mkdir()
            if _CPU_GROUPS.is_dir():
                machine.cpu_group.mkdir()
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
        self,
        number: int,
        command: Sequence[str],
        environment: dict[str, str] | None = None,
        output: IO[Any] | int = -1,
        hidden: Path | None = None,
    ) -> subprocess.Popen[Any]:
        """Start a command on a machine, with the machine's own /dev/shm; `hidden`: a folder that it does not see."""
        machine = self.machines[number]
        hide = "" if hidden is None else f" && mount -t tmpfs tmpfs {shlex.quote(str(hidden))}"
        inside = f'{_MOUNTS}{hide} && exec "$@"'
        groups = [machine.group, *([machine.cpu_group] if machine.cpu_group.is_dir() else [])]
        # Where the real machine's memory runs out, these are the first to go.
        first = ["echo 1000 > /proc/self/oom_score_adj", *(f'echo $$ > "{group}/cgroup.procs"' for group in groups)]
        join = " && ".join([*first, 'exec "$@"'])
        enter = ["ip", "netns", "exec", machine.namespace, "unshare", "-m", "sh", "-c", inside]
        enter.append(str(machine.shared_memory))
        process = subprocess.Popen(
            ["sh", "-c", join, "sh", *enter, *command],
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
            for group in (machine.group, machine.cpu_group):
                with contextlib.suppress(OSError):
                    group.rmdir()
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


class Cluster:
    """Ray on such machines, begun by graphmill's own commands; the first is its head, and has the home."""

    def __init__(
        self, machines: Machines, folder: Path, *, apart: bool, cpus: int = 1, head_cpus: int | None = None
    ) -> None:
        """`apart`: the other machines do not see the home; `cpus`: that each lends (`head_cpus`: the first). Homes lie
        in `folder`."""
        self.machines, self._folder, self._apart = machines, folder, apart
        self._cpus = [cpus if head_cpus is None else head_cpus, *[cpus] * (len(machines.machines) - 1)]
        self.home = folder / "home"
        self._temp = Path(tempfile.mkdtemp(prefix="gm-"))  # short: sockets lie there
        self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        for number in range(len(machines.machines)):
            self.begin(number)

    def begin(self, number: int) -> None:
        """Have a machine begin the cluster, or join it. Raises RuntimeError."""
        cpus, temp = str(self._cpus[number]), str(self._temp / str(number))
        options = ["--cpus", cpus, "--node-ip", address(number), "--temp-dir", temp]
        home, words = self.home, ["start"]
        if number:
            home, token = self._folder / f"node-{number}", self._folder / f"token-{number}"
            shutil.copy(self.home / "cluster" / "token", token)
            words = ["join", f"{address(0)}:6379", "--token-file", str(token)]
        command = [sys.executable, "-m", "flows.cli", "cluster", *words, *options, "--home", str(home)]
        hidden = self.home if number and self._apart else None
        process = self.machines.start(number, command, self.environment(number), subprocess.PIPE, hidden)
        said = process.communicate(timeout=120)[0]
        if process.returncode:
            raise RuntimeError(f"machine {number} has no Ray: {said}")

    def environment(self, number: int) -> dict[str, str]:
        """Return variables of a machine's processes."""
        return {"COLUMNS": "200", "XDG_CACHE_HOME": str(self._folder / f"cache-{number}"), "PYTHONPATH": str(ROOT)}

    def run(self, arguments: Sequence[str], output: IO[Any]) -> subprocess.Popen[Any]:
        """Start `graphmill ARGUMENTS` on the first machine."""
        command = [sys.executable, "-m", "flows.cli", "--home", str(self.home), *arguments]
        return self.machines.start(0, command, self.environment(0), output)

    def close(self) -> None:
        """Remove what Ray left; the processes end with the machines."""
        shutil.rmtree(self._temp, ignore_errors=True)
