"""Sides of a comparison, each in a process of its own, which do their jobs in turn.

What they are asked and what they answer stands in `embeddings_peers`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.embeddings_peers import Done
from benchmarks.gnn_children import ContenderError, LineProcess
from benchmarks.gnn_report import Head, Line
from tasks.processes.children import WORKER_ENVIRONMENT

ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS"), "1"
)
Side = tuple[str, str]
"""Names of a contender and of its job."""


class Child(LineProcess):
    """A side in a process of its own."""

    def __init__(self, name: str, command: list[str], threads: int = 1, *, keeps_memory: bool = True) -> None:
        """`keeps_memory`: malloc keeps what is free, as in graphmill's workers; else it does as usual."""
        environment = {**os.environ, **dict.fromkeys(ONE_THREAD, str(threads))}
        super().__init__(name, command, environment | (WORKER_ENVIRONMENT if keeps_memory else {}))

    def run(self, job: str, seconds: float) -> Done:
        return Done(**self.ask_for({"job": job, "seconds": seconds}))


def own_command(module: str, name: str, folder: Path, options: dict[str, Any]) -> list[str]:
    """Return what starts a side that a module of ours has: see `embeddings_peers.serve_side`."""
    return [sys.executable, "-m", module, name, str(folder), json.dumps(options)]


def start_side(
    stack: ExitStack, name: str, command: list[str], threads: int = 1, *, keeps_memory: bool = True
) -> Child | None:
    """Start a side, which ends with the stack; say why where it does not come up."""
    try:
        return stack.enter_context(Child(name, command, threads, keeps_memory=keeps_memory))
    except (ContenderError, OSError) as error:
        print(f"  left out: {error}", flush=True)
        return None


def start_sides(
    stack: ExitStack, commands: dict[str, list[str]], facts: dict[str, Any], *, keep: str = "", as_usual: str = ""
) -> dict[str, Any]:
    """Start sides by name; note their versions. malloc keeps memory but of `as_usual`, or of `keep` alone."""
    sides = {}
    for name, command in commands.items():
        side = start_side(stack, name, command, keeps_memory=name == keep if keep else name != as_usual)
        if side is not None:
            sides[name] = side
            facts["versions"].update(side.versions)
    return sides


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
            except ContenderError as error:
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


def side_lines(
    found: dict[Side, list[Done]], ours: Side, peer: Side, head: Head, unit: str, **details: Any
) -> Iterator[Line]:
    """Yield the line of two sides where both were measured: milliseconds of one (ms), or thousands a second (k/s)."""
    if ours in found and peer in found:
        scale = 1.0 if unit == "ms" else 1e3
        cpu, wall = ([rates(found[side], clock, scale) for side in (ours, peer)] for clock in ("cpu", "wall"))
        middle = [1000 / statistics.median(some) if unit == "ms" else statistics.median(some) for some in cpu]
        yield Line(head, ratio(*cpu), None, *middle, unit, {"wall_ratio": ratio(*wall), **details})


def raw_rounds(found: dict[Side, list[Done]]) -> dict[str, list[dict[str, float]]]:
    """Return all rounds as plain values."""
    return {f"{name}, {job}": [done._asdict() for done in timings] for (name, job), timings in found.items()}


def names_of(known: Iterable[str]) -> Callable[[str], list[str]]:
    """Return what reads an option such as `TransE,RotatE`."""

    def read(text: str) -> list[str]:
        if not set(text.split(",")) <= set(known):
            raise argparse.ArgumentTypeError(f"{text!r} are not of {','.join(known)}")
        return text.split(",")

    return read
