"""Contenders as child processes, asked in turn so that a slow minute of the machine hits all alike."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from benchmarks.gnn_worker import Settings
from tasks.processes.children import WORKER_ENVIRONMENT

ROOT = Path(__file__).resolve().parent.parent

# Memory goes back to the next batch and not to the kernel: fresh pages cost about eight times a copy.
MALLOC_KEPT = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}


class ContenderError(Exception):
    """A contender could not be started, or failed."""


class LineProcess:
    """A process that answers each line of JSON with one; a context, which ends it."""

    def __init__(self, name: str, command: list[str], environment: dict[str, str], log: Path | None = None) -> None:
        """Raises ContenderError where it does not come up; what it says beside answers is in `log`."""
        self.name, self.log, pipe = name, log, subprocess.PIPE
        with log.open("wb") if log else contextlib.nullcontext() as errors:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, stderr=errors, text=True
            )
        try:
            self.started = self._read()
        except BaseException:
            self.close()
            raise
        self.versions: dict[str, str] = self.started["versions"]

    def ask_for(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # then there is no answer
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": f"it ended with {self.process.wait()}"}
        if "error" in answer:
            raise ContenderError(f"{self.name}: {answer['error']}" + (f" (see {self.log})" if self.log else ""))
        return answer

    def close(self) -> None:
        """End the process."""
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@dataclass(frozen=True)
class Entry:
    """One contender: what runs it, and with which environment."""

    name: str
    kind: str
    """MODULE:CLASS."""
    options: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)


class Child(LineProcess):
    """A running contender."""

    def __init__(self, entry: Entry, settings: Settings, log: Path) -> None:
        self.entry = entry
        environment = {
            **os.environ,
            **WORKER_ENVIRONMENT,
            **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), str(settings.threads)),
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
            **entry.environment,
        }
        command = [sys.executable, "-m", "benchmarks.gnn_worker", entry.kind, settings.dump()]
        super().__init__(entry.name, command, environment, log)
        self.jobs: list[str] = self.started["jobs"]

    def run(self, job: str, units: int) -> dict[str, float]:
        """Run units of a job; returns wall and CPU seconds a unit."""
        return self.ask_for({"job": job, "units": units})

    def ask(self, what: str, **values: Any) -> dict[str, Any]:
        """Call a method of the contender."""
        return self.ask_for({"ask": what, "values": values})


@dataclass
class Timing:
    """Seconds a unit in each round, of one contender's job."""

    units: int
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {"units_a_round": self.units, "wall_seconds": self.wall, "cpu_seconds": self.cpu}


Side = tuple[str, str]
"""Names of a contender and of its job."""


def interleave(
    sides: list[tuple[Child, str]], rounds: int, chunk_seconds: float, lead_in: dict[str, int] | None = None
) -> dict[Side, Timing]:
    """Run the jobs in turn, round after round: A B C, C B A, A B C, ...

    Args:
        sides: a child and its job each.
        rounds: how often.
        chunk_seconds: about how long each runs in a round.
        lead_in: by contender, units before each timed chunk that are not counted: caches hold the last one's data,
            and batches that were prepared while the others ran are used up.

    Returns:
        By side; a contender that fails under way (killed for its memory, as a rule) is said and left out.
    """
    timings: dict[Side, Timing] = {}
    lost: set[str] = set()

    def attempt(child: Child, job: str, units: int) -> dict[str, float] | None:
        if child.entry.name in lost:
            return None
        try:
            return child.run(job, units)
        except ContenderError as error:
            print(f"  left out: {error}", file=sys.stderr, flush=True)
            lost.add(child.entry.name)
            return None

    for child, job in sides:
        attempt(child, job, 2)  # compiles, allocates
        once = attempt(child, job, 1)
        units = round(chunk_seconds / max(once["wall"], 1e-6)) if once else 0
        timings[child.entry.name, job] = Timing(max(1, min(200, units)))
    for number in range(rounds):
        for child, job in sides if number % 2 == 0 else reversed(sides):
            timing = timings[child.entry.name, job]
            extra = (lead_in or {}).get(child.entry.name, 0)
            if extra:
                attempt(child, job, extra)
            found = attempt(child, job, timing.units)
            if found is not None:
                timing.wall.append(found["wall"])
                timing.cpu.append(found["cpu"])
    return {side: timing for side, timing in timings.items() if side[0] not in lost}


def ratio(peer: Timing, ours: Timing, clock: str) -> float:
    """Median over rounds of the peer's time over ours: above 1, ours is faster."""
    pairs = zip(getattr(peer, clock), getattr(ours, clock), strict=True)
    return statistics.median(theirs / mine for theirs, mine in pairs)
