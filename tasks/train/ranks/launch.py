"""Run a training as supervised processes: one worker, or several under what starts a machine's ranks.

The stage's own process imports no torch, and a worker that runs out of memory takes nothing else with it. A job one of
whose ranks dies is stopped as a whole and started again from its last checkpoint. Nothing outlives the supervisor: its
children ask the kernel to be killed when it goes (tasks/processes/children.py), the ranks when their starter goes.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from configs.errors import CheckpointError, StageError
from configs.schema import Recipe
from configs.trust import for_children
from tasks.processes.children import (
    PARENT,
    ROOT,
    WORKER_ENVIRONMENT,
    describe_exit,
    end_group,
    inherited_environment,
    tail,
)
from tasks.stage import StageContext
from tasks.storage.home import Home
from tasks.supervise import LOST_CODE, MACHINES_FILE, Launcher, machines_used, read_error
from tasks.train.job import (
    BEST,
    ERROR,
    LAST,
    LOGS,
    METRICS,
    PROGRESS,
    RESULT,
    AnyJob,
    check_archive,
    device_kind,
    set_aside,
    threads_per_rank,
)
from tasks.train.ranks.rank_logs import SUPERVISOR_LOG, RankLogs

LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
"""Variables by which ranks of one machine cannot be reached from another, and need no name that resolves."""
_POLL_SECONDS = 0.1


def run_training(job: AnyJob, context: StageContext, launcher: Launcher) -> dict[str, Any]:
    """Run to the end; return what the worker wrote into result.json, `restarts` and what a cluster's `machines` did.

    A last checkpoint that is damaged is set aside, and the training begins anew.

    Args:
        job: the training.
        context: of its stage.
        launcher: what starts its ranks.

    Raises:
        UserError, IntegrityError: what a rank raised, on whichever machine.
        OSError: a disk is full.
        StageError: ranks died more often than train.max_restarts (the message ends with what they said last), or a
            cluster had no room for them.
    """
    path, last = job.save(), job.work / LAST
    if (job.work / RESULT).exists() and _is_whole(job.work / BEST):
        # All is written, and was not made an artifact yet when the run was killed.
        context.message("was finished when the run was killed")
        return _result(job, 0)
    goes_on = last.exists()
    if goes_on:
        context.message("goes on from the last checkpoint of a training that was interrupted")
    watcher = Watcher(job, context)
    for restarts in range(job.train.max_restarts + 1):
        for name in (ERROR, RESULT, PROGRESS, MACHINES_FILE):
            (job.work / name).unlink(missing_ok=True)
        code = _run_once(job, path, watcher, launcher)
        if (job.work / RESULT).exists():  # it is the last that is written, whatever becomes of ranks after that
            return _result(job, restarts)
        error = read_error(job.work / ERROR)
        if isinstance(error, CheckpointError):
            if not goes_on:
                raise CheckpointError(f"{error}; remove {last} to train anew")
            context.warn(f"{error}; {LAST} was set aside as {set_aside(last).name}, and the training begins anew")
            return run_training(job, context, launcher)
        if error is not None:
            raise error
        if code == errno.ENOSPC:
            raise OSError(code, os.strerror(code))  # `disk_errors` says where
        if restarts < job.train.max_restarts:
            why = "a machine was lost" if code == LOST_CODE else f"a rank died ({describe_exit(code)})"
            context.warn(f"{why}; starting again from the last checkpoint")
    texts = [(log.stem, tail(log)) for log in sorted((job.work / LOGS).glob("*.log"))]
    tails = "\n".join(f"--- {name}\n{text}" for name, text in texts if text)
    raise StageError(
        f"training died {job.train.max_restarts + 1} times, last with {describe_exit(code)}; "
        f"running again continues from the last checkpoint. The ranks said last:\n{tails}"
    )


def _is_whole(path: Path) -> bool:
    try:
        check_archive(path)
    except (OSError, ValueError, zipfile.BadZipFile):
        return False
    return True


def _result(job: AnyJob, restarts: int) -> dict[str, Any]:
    result = json.loads((job.work / RESULT).read_text())
    return {**result, "restarts": restarts, "machines": machines_used(job.work)}


def _run_once(job: AnyJob, path: Path, watcher: Watcher, launcher: Launcher) -> int:
    """Start the processes, pass on what they report until they end, and leave none behind."""
    logs = job.work / LOGS
    logs.mkdir(exist_ok=True)
    for log in logs.glob("*.log"):
        log.unlink()
    with (logs / SUPERVISOR_LOG).open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *launcher.arguments, "-m", "tasks.train.worker", str(path)],
            cwd=ROOT,
            env={**launcher.environment, PARENT: str(os.getpid())},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    code = wait_for_ranks(process, watcher.look)
    watcher.look()
    watcher.attempt_over()
    return code


def wait_for_ranks(process: subprocess.Popen[bytes], look: Callable[[], None] = lambda: None) -> int:
    """Return the exit code once the ranks have ended, and leave no process; `look` is called all the time."""
    try:
        while process.poll() is None:
            time.sleep(_POLL_SECONDS)
            look()
    finally:  # also where the run is cancelled or interrupted
        end_group(process)
    return process.returncode


def launcher_of(recipe: Recipe, home: Home, work: Path, memory_bytes: float = 0) -> Launcher:
    """Return what starts the ranks of a program that writes into `work`, and ends with them.

    `memory_bytes`: that a rank takes, where that is known.
    """
    train = recipe.train
    threads = threads_per_rank(train)
    variables = {
        **WORKER_ENVIRONMENT,
        **for_children(),
        **{f"{name}_NUM_THREADS": str(threads) for name in ("OMP", "MKL", "NUMBA")},
    }
    if train.num_ranks > 1 and recipe.cluster.address is not None:
        from tasks.cluster.machines import Need
        from tasks.cluster.order import ordered

        need = Need(threads, int(device_kind(train) == "cuda"), memory_bytes)
        return ordered(recipe, home, work, variables, need)
    starter = ("-m", "tasks.train.ranks.one_machine", str(train.num_ranks)) if train.num_ranks > 1 else ()
    return Launcher(starter, {**inherited_environment(), **LOOPBACK, **variables})


class Watcher:
    """Reads what rank 0 writes and passes it on to the stage's listener."""

    def __init__(self, job: AnyJob, context: StageContext) -> None:
        """Records of an earlier run of this job were passed on by that one."""
        self.metrics, self.progress = job.work / METRICS, job.work / PROGRESS
        self.context = context
        self.passed_on = self.metrics.read_bytes().count(b"\n") if self.metrics.exists() else 0
        self._lines, self._offset, self._seen = 0, 0, ""
        self._logs = RankLogs(job.work / LOGS, context.message, context.warn)

    def look(self) -> None:
        """Pass on what is new."""
        self._logs.look()
        self._look_at_metrics()
        try:
            text = self.progress.read_text()
        except FileNotFoundError:
            return
        if text and text != self._seen:
            self._seen = text
            state = json.loads(text)
            self.context.progress(state["done"], state["total"], "steps", describe_progress(state))

    def attempt_over(self) -> None:
        """The next attempt cuts the file back and writes the same records again: count from the start."""
        self._lines = self._offset = 0
        self._logs.start_again()

    def _look_at_metrics(self) -> None:
        if not self.metrics.exists():
            return
        with self.metrics.open("rb") as file:
            if file.seek(0, os.SEEK_END) < self._offset:
                self._lines = self._offset = 0  # cut back to the checkpoint
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    break  # still being written
                self._offset += len(line)
                self._lines += 1
                if self._lines > self.passed_on:
                    self.passed_on = self._lines
                    self.context.metrics(json.loads(line))


def describe_progress(state: dict[str, Any]) -> str:
    """Say in a line where a training stands."""
    parts = [f"epoch {state['epoch']}/{state['epochs']}"] if state["epochs"] > 1 or state["unit"] == "seeds" else []
    if state["loss"] is not None:
        parts.append(f"loss {state['loss']:.4f}")
    if state["rate"]:
        parts.append(f"{state['rate']:,.0f} {state['unit']}/s")
    if state.get("eta_seconds") is not None:
        minutes, seconds = divmod(int(state["eta_seconds"]), 60)
        parts.append(f"{minutes}:{seconds:02d} left")
    return ", ".join(parts + ([state["note"]] if state["note"] else []))
