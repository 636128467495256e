"""One side of `benchmarks.distributed`: a trainer on each of some machines, which take batches when they are asked to.

The parent and its trainers talk by JSON lines over a socket in the file system, which namespaces of networks share. CPU
time is that of each machine's control group: of all its processes, servers and samplers among them.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from benchmarks.machines import Machines

SOCKET = "GRAPHMILL_BENCHMARK_SOCKET"
"""Variable that says where a trainer finds the parent."""
_START_SECONDS = 600.0
_ANSWER_SECONDS = 1800.0
_STILL_SECONDS = 0.25
_STILL_CPU_SECONDS = 0.003  # so much the threads that wait and look at the clock may take in that time


@dataclass(frozen=True)
class Order:
    """What trainers are asked for."""

    stage: str
    """`check`, `batches` or `steps`."""
    batches: int
    """Of each trainer."""
    unclocked: int = 0
    """The first so many, which may have been made ahead, do not count for the wall-clock time."""


class Pace:
    """A trainer's end: lets a loop go on for as long as batches of its stage are asked for."""

    def __init__(self, rank: int) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(os.environ[SOCKET])
        self._file = self._socket.makefile("rw")
        self._say({"rank": rank})
        self._order: Order | None = None
        self._taken, self._began = 0, 0.0
        self._totals: dict[str, float] = {}

    def wants(self, stage: str) -> bool:
        """Wait until another batch is asked for; return whether it is of this stage. At the end none is."""
        if self._order is None:
            line = self._file.readline()  # empty once the parent has ended
            self._order = Order(**json.loads(line)) if line else Order("end", 0)
            if not line:
                self._file.close()
                self._socket.close()
            self._taken, self._totals = 0, {}
            self._began = time.perf_counter()
        return self._order.stage == stage

    def took(self, **facts: float) -> None:
        """Count a batch; of what is known of it the parent gets means."""
        assert self._order is not None
        for name, value in facts.items():
            self._totals[name] = self._totals.get(name, 0.0) + value
        self._taken += 1
        if self._taken == self._order.unclocked:
            self._began = time.perf_counter()
        if self._taken == self._order.batches:
            wall = (time.perf_counter() - self._began) / (self._taken - self._order.unclocked)
            means = {name: total / self._taken for name, total in self._totals.items()}
            self._order = None
            self._say({"wall_ms": 1e3 * wall, **means})

    def _say(self, content: dict[str, Any]) -> None:
        self._file.write(json.dumps(content) + "\n")
        self._file.flush()


class Side:
    """The parent's end; a context, which ends the machines with all that runs there."""

    def __init__(self, name: str, count: int, start: Callable[[Machines, int, dict[str, str], Any], None]) -> None:
        """Bring up so many machines and wait until the trainer of each is ready.

        `start(machines, number, environment, log)` starts what runs on a machine: with these variables besides its
        own, and this file for what it prints.
        """
        self.name = name
        self._scratch = tempfile.TemporaryDirectory(prefix="graphmill-benchmark-", ignore_cleanup_errors=True)
        folder = Path(self._scratch.name)
        self._logs = [folder / f"{number}.log" for number in range(count)]
        self.machines = Machines(count, name=f"-{name}")
        self._trainers: list[tuple[socket.socket, IO[str]]] = []
        try:
            with socket.socket(socket.AF_UNIX) as door:
                door.bind(str(folder / "door"))
                door.listen(count)
                for number, log in enumerate(self._logs):
                    with log.open("w") as file:
                        start(self.machines, number, {SOCKET: str(folder / "door")}, file)
                self._let_in(door, count)
        except BaseException:
            self.close()
            raise

    def _let_in(self, door: socket.socket, count: int) -> None:
        found: dict[int, tuple[socket.socket, IO[str]]] = {}
        while len(found) < count:
            self._wait_for(door, _START_SECONDS)
            line, _ = door.accept()
            file = line.makefile("rw")
            found[json.loads(file.readline())["rank"]] = line, file
        self._trainers = [found[rank] for rank in sorted(found)]

    def ask(self, order: Order) -> dict[str, float]:
        """Return the trainers' means once all have done it."""
        for _, file in self._trainers:
            try:
                file.write(json.dumps(asdict(order)) + "\n")
                file.flush()
            except BrokenPipeError:
                self._fail("a trainer has ended")
        answers = []
        for line, file in self._trainers:
            self._wait_for(line, _ANSWER_SECONDS)
            answers.append(json.loads(file.readline() or self._fail("a trainer ended")))
        return {name: statistics.mean(answer[name] for answer in answers) for name in answers[0]}

    def measure(self, order: Order) -> dict[str, float]:
        """Return the trainers' means, and CPU time and bytes sent of a machine for a batch.

        As many batches are ready ahead before as after: what works ahead has come to rest at both times.
        """
        self._rest()
        before = self._counters()
        found = self.ask(order)
        self._rest()
        used = [after - start for after, start in zip(self._counters(), before, strict=True)]
        batches = order.batches * len(self.machines.machines)
        return {**found, "cpu_ms": 1e3 * used[0] / batches, "sent_mb": used[1] / 1e6 / batches}

    def _counters(self) -> tuple[float, float]:
        """CPU seconds and bytes sent so far, of all machines."""
        machines = self.machines.machines
        return sum(machine.cpu_seconds() for machine in machines), sum(machine.sent_bytes() for machine in machines)

    def _rest(self) -> None:
        cpu = self._counters()[0]
        while True:
            time.sleep(_STILL_SECONDS)
            last, cpu = cpu, self._counters()[0]
            if cpu - last < _STILL_CPU_SECONDS * len(self.machines.machines):
                return

    def memory(self) -> dict[str, float]:
        """MB of the largest machine: its peak without mapped files, and what its processes hold now, with them."""
        held = []
        for machine in self.machines.machines:
            pids = (machine.group / "cgroup.procs").read_text().split()
            held.append(sum(map(_proportional_bytes, pids)))
        peak = max(machine.peak_bytes for machine in self.machines.machines)
        return {"peak_mb": peak / 1e6, "resident_mb": max(held) / 1e6}

    def _wait_for(self, line: socket.socket, seconds: float) -> None:
        """Wait until there is something to read."""
        until = time.monotonic() + seconds
        while not select.select([line], [], [], 1.0)[0]:
            ended = [process.returncode for m in self.machines.machines for process in m.processes if process.poll()]
            if ended or time.monotonic() > until:
                self._fail(f"a machine ended with {ended[0]}" if ended else f"no answer in {seconds:.0f} seconds")

    def _fail(self, reason: str) -> str:
        tails = ["\n".join(log.read_text(errors="replace").splitlines()[-30:]) for log in self._logs]
        raise RuntimeError("\n".join([f"{self.name}: {reason}", *tails]))

    def close(self) -> None:
        """End everything."""
        for line, file in self._trainers:
            with contextlib.suppress(BrokenPipeError):
                file.close()
            line.close()
        self.machines.close()
        self._scratch.cleanup()

    def __enter__(self) -> Side:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _proportional_bytes(pid: str) -> int:
    """Resident memory of a process; what several map is shared out among them."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
