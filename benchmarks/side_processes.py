"""Sides of a comparison, each in a process of its own, which do their jobs in turn.

What they are asked and what they answer stands in `embeddings_peers`.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.embeddings_peers import Done
from tasks.processes.children import WORKER_ENVIRONMENT

ROOT = Path(__file__).resolve().parent.parent
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS"), "1"
)
Side = tuple[str, str]
"""Names of a contender and of its job."""


class LeftOutError(Exception):
    """A contender is not there, or failed."""


class Child:
    """A contender in a process of its own."""

    def __init__(self, name: str, command: list[str], threads: int = 1, *, keeps_memory: bool = True) -> None:
        """`keeps_memory`: malloc keeps what is free, as in graphmill's workers; else it does as usual."""
        environment = {**os.environ, **dict.fromkeys(ONE_THREAD, str(threads))}
        environment |= WORKER_ENVIRONMENT if keeps_memory else {}
        pipe = subprocess.PIPE
        self.name = name
        self.process = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, text=True)
        try:
            self.versions: dict[str, str] = self._read()["versions"]
        except BaseException:
            self.close()
            raise

    def run(self, job: str, seconds: float) -> Done:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps({"job": job, "seconds": seconds}) + "\n")
            self.process.stdin.flush()
        return Done(**self._read())

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        answer = json.loads(line) if line else {"error": f"it ended with {self.process.wait()}"}
        if "error" in answer:
            raise LeftOutError(f"{self.name}: {answer['error']}")
        return answer

    def close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def own_command(module: str, name: str, folder: Path, options: dict[str, Any]) -> list[str]:
    """Return what starts a side that a module of ours has: see `embeddings_peers.serve_side`."""
    return [sys.executable, "-m", module, name, str(folder), json.dumps(options)]


def start_side(
    stack: ExitStack, name: str, command: list[str], threads: int = 1, *, keeps_memory: bool = True
) -> Child | None:
    """Start a side, which ends with the stack; say why where it does not come up."""
    try:
        return stack.enter_context(Child(name, command, threads, keeps_memory=keeps_memory))
    except (LeftOutError, OSError) as error:
        print(f"  left out: {error}", flush=True)
        return None


def measure(contenders: dict[str, Any], sides: list[Side], rounds: int, seconds: float) -> dict[Side, list[Done]]:
    """Have each do its job in turn; one that fails is left out."""
    found: dict[Side, list[Done]] = {side: [] for side in sides}
    for number in range(-1, rounds):
        for side in sides if number % 2 else reversed(sides):
            if side not in found or (number < 0 and side[0] == "LINE"):
                continue
            try:
                # The first time is not counted: it compiles, and brings memory.
                done = contenders[side[0]].run(side[1], seconds if number >= 0 else seconds / 8)
            except LeftOutError as error:
                print(f"  left out: {error}", flush=True)
                del found[side]
                continue
            if number >= 0:
                found[side].append(done)
    return found


def rates(timings: list[Done], clock: str = "cpu", unit: float = 1e6) -> list[float]:
    """Millions, or other units, a second, by round."""
    return [timing.done / max(getattr(timing, clock), 1e-9) / unit for timing in timings]


def ratio(mine: list[float], theirs: list[float]) -> float:
    """The median over rounds."""
    return statistics.median(a / b for a, b in zip(mine, theirs, strict=True))
