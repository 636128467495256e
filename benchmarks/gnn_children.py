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
from types import TracebackType
from typing import Any

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


@dataclass(frozen=True)
class Entry:
    """One contender: what runs it, and with which environment."""

    name: str
    kind: str
    """MODULE:CLASS."""
    options: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)


class Child:
    """A running contender."""

    def __init__(self, entry: Entry, settings: Settings, log: Path) -> None:
        """Raises ContenderError where it does not come up; its last words are in `log`."""
        self.entry, self.settings, self.log = entry, settings, log
        threads = str(settings.threads)
        environment = {
            **os.environ,
            **WORKER_ENVIRONMENT,
            **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), threads),
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
            **entry.environment,
        }
        command = [sys.executable, "-m", "benchmarks.gnn_worker", entry.kind, settings.dump()]
        with log.open("wb") as errors:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        try:
            started = self._read()
        except BaseException:
            self.close()
            raise
        self.jobs: list[str] = started["jobs"]
        self.versions: dict[str, str] = started["versions"]

    def run(self, job: str, units: int) -> dict[str, float]:
        """Run units of a job; returns wall and CPU seconds a unit."""
        return self._ask({"job": job, "units": units})

    def ask(self, what: str, **values: Any) -> dict[str, Any]:
        """Call a method of the contender."""
        return self._ask({"ask": what, "values": values})

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise ContenderError(f"{self.entry.name} is gone; see {self.log}") from None
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise ContenderError(f"{self.entry.name} ended with {self.process.wait()}; see {self.log}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ContenderError(f"{self.entry.name}: {answer['error']} (see {self.log})")
        return answer


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
