"""Two ranks as two processes, without a launcher: a module of tests is the program of both."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

from tasks.train.job import Job
from tasks.train.strategies.base import Ranks
from tests.ports import free_port

ROOT = Path(__file__).parents[2]


def run_two_ranks(module: str, *jobs: Job) -> None:
    """Run `module` as ranks 0 and 1 over the jobs, one after the other; what they print shows when one fails."""
    run_ranks(module, 2, *jobs)


def run_ranks(module: str, count: int, *jobs: Job) -> None:
    """Run `module` as so many ranks over the jobs, one after the other."""
    run_program(module, count, *(str(job.save()) for job in jobs))


def run_program(module: str, count: int, *arguments: str) -> None:
    """Run `module` as so many ranks with these arguments."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])  # packages may lie in folders that it names
    environment = {**os.environ, "PYTHONPATH": path, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    command = [sys.executable, "-m", module, *arguments]
    ranks = [
        subprocess.Popen(
            command,
            cwd=ROOT,
            env={**environment, "RANK": str(rank), "WORLD_SIZE": str(count)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(count)
    ]
    try:
        said = [rank.communicate(timeout=300)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
    assert [rank.returncode for rank in ranks] == [0] * count, "\n".join(said)


def on_machines(rank: int, world_size: int, each: int) -> Ranks:
    """Which rank this one is where so many are on a machine; on the last as many as are left."""
    machine, machines = rank // each, -(-world_size // each)
    return Ranks(rank, world_size, rank % each, min(each, world_size - machine * each), machine, machines)


def end() -> NoReturn:
    """End a rank as workers end: threads of gloo may abort the interpreter's own way out."""
    sys.stdout.flush()
    os._exit(0)
