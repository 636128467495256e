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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.errors import CheckpointError, StageError
from configs.training import TrainBase
from configs.trust import for_children
from tasks.processes.children import (
    PARENT,
    ROOT,
    WORKER_ENVIRONMENT,
    describe_exit,
    end_group,
    inherited_environment,
    killed_ranks,
    tail,
)
from tasks.stage import StageContext
from tasks.supervise import Launcher, read_error
from tasks.train.job import (
    BEST,
    DIGEST_LENGTH,
    ERROR,
    LAST,
    LOGS,
    METRICS,
    PROGRESS,
    RESULT,
    AnyJob,
    check_archive,
    set_aside,
)
from tasks.train.ranks.agreement import STAGE
from tasks.train.ranks.interface import LOOPBACK, own_interface
from tasks.train.ranks.meeting import MEETING, Meeting
from tasks.train.ranks.rank_logs import GIVEN_UP, SUPERVISOR_LOG, RankLogs

_POLL_SECONDS = 0.1
FIRST_SECONDS = 600
"""How long machines wait for each other at first."""
_AGAIN_SECONDS, _AFTER_SILENCE_SECONDS = 38, 20
"""And once ranks of theirs have ended: less after a machine's silence, which was waited for already. With torchrun's
own start and end nobody waits for longer than a minute for a machine that is gone."""
_NEXT_SECONDS, _NEXT_TIMES = 22, 2
"""At the next stage: so many, and so many times as long as this machine took until it had come there."""
_REACH_SECONDS = 30
"""For machine 0 to be reached, where its job is there to be seen."""
_JOINING_SECONDS = 60
"""For torchrun of all machines, once they are there."""
# An NFS client may not see a new file for so long (acdirmax).
_NETWORK_FILE_SECONDS = 60.0


def run_training(job: AnyJob, context: StageContext) -> dict[str, Any]:
    """Run to the end; return what the worker wrote into result.json, and `restarts`.

    A last checkpoint that is damaged is set aside, and the training begins anew.

    Raises:
        UserError, IntegrityError: what a rank raised, on whichever machine.
        OSError: a disk is full.
        StageError: ranks died more often than train.max_restarts (the message ends with what they said last), or the
            machines did not come together again.
    """
    path, last = job.save(), job.work / LAST
    if (job.work / RESULT).exists() and _is_whole(job.work / BEST):
        # All is written, and was not made an artifact yet when the run was killed. Other machines, with homes of their
        # own, may have theirs.
        context.message("was finished when the run was killed")
        return _result(job, 0)
    goes_on = last.exists()
    if goes_on:
        context.message("goes on from the last checkpoint of a training that was interrupted")
    watcher = Watcher(job, context)
    for restarts in range(job.train.max_restarts + 1):
        for name in (ERROR, RESULT, PROGRESS):
            (job.work / name).unlink(missing_ok=True)
        waiting = waiting_again(context) if restarts else FIRST_SECONDS
        code = _run_once(job, path, watcher, waiting)
        if _has_result(job, code):
            return _result(job, restarts)
        error = read_error(job.work / ERROR)
        if isinstance(error, CheckpointError):
            if not goes_on or job.train.num_machines > 1:
                raise CheckpointError(f"{error}; remove {last} to train anew")
            context.warn(f"{error}; {LAST} was set aside as {set_aside(last).name}, and the training begins anew")
            return run_training(job, context)
        if error is not None:
            raise _with_cause(error, watcher) if isinstance(error, StageError) else error
        if code == errno.ENOSPC:
            raise OSError(code, os.strerror(code))  # `disk_errors` says where
        if restarts < job.train.max_restarts:
            context.warn(f"a rank died ({describe_exit(code)}); starting again from the last checkpoint")
    said = _tails(job.work / LOGS)
    raise StageError(
        f"training died {job.train.max_restarts + 1} times, last with {describe_exit(code)}{killed_ranks(said)}; "
        f"running again continues from the last checkpoint. The ranks said last:\n{said}"
    )


def _is_whole(path: Path) -> bool:
    try:
        check_archive(path)
    except (OSError, ValueError, zipfile.BadZipFile):
        return False
    return True


def _result(job: AnyJob, restarts: int) -> dict[str, Any]:
    return {**json.loads((job.work / RESULT).read_text()), "restarts": restarts}


def _with_cause(error: StageError, watcher: Watcher) -> StageError:
    """Return the error with what ranks have said of a machine before, if anything."""
    return StageError(f"{error} ({watcher.cause})") if watcher.cause else error


def _has_result(job: AnyJob, code: int) -> bool:
    """Whether the training is done: all else is written when its result is, whatever becomes of ranks after that.

    What another machine wrote may take a moment to be seen here.
    """
    network = code == 0 and job.train.num_machines > 1 and job.train.shared_home
    patience = time.monotonic() + (_NETWORK_FILE_SECONDS if network else 0.0)
    while not (job.work / RESULT).exists():
        if time.monotonic() >= patience:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def waiting_again(context: StageContext) -> int:
    """Return how many seconds machines wait for each other after a failed attempt."""
    return _AFTER_SILENCE_SECONDS if any(GIVEN_UP in text for text in context.warnings) else _AGAIN_SECONDS


def waiting_after(last: Path) -> int:
    """Return how many seconds machines wait for each other at the next stage, once they have left `last` together.

    They were together a moment ago, or it is an artifact of long ago, and nobody knows when the others come.
    """
    seconds = max(0.0, time.time() - last.stat().st_mtime)
    return int(min(FIRST_SECONDS, _NEXT_SECONDS + _NEXT_TIMES * seconds))


def _run_once(job: AnyJob, path: Path, watcher: Watcher, waiting: int) -> int:
    """Start the processes, pass on what they report until they end, and leave none behind."""
    logs = job.work / LOGS
    logs.mkdir(exist_ok=True)
    for log in logs.glob("rank-*.log"):
        log.unlink()
    process = start_ranks(job, path, logs / SUPERVISOR_LOG, waiting)
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


def start_ranks(job: AnyJob, path: Path, log: Path, waiting: int = FIRST_SECONDS) -> subprocess.Popen[bytes]:
    """Start this machine's ranks of the job that is written at `path`; they lead a group of their own.

    `waiting`: seconds for all machines to be there.
    """
    stage = f"train{job.digest[DIGEST_LENGTH:]}"  # of several trainings that make up a job each has its own
    place = Place(job.digest, {**job.facts, STAGE: stage}, job.work / RESULT, job.work / ERROR)
    start = rank_launcher(job.train, place, waiting)
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, *start.arguments, "-m", "tasks.train.worker", str(path)],
            cwd=ROOT,
            env=start.environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


@dataclass(frozen=True)
class Place:
    """Where the ranks of a program meet, and what they leave."""

    name: str
    """By which they find each other."""
    facts: dict[str, Any]
    """What decides the outcome (`agreement.facts_of`)."""
    result: Path
    """File that is left on this machine."""
    error: Path
    """File with what a rank raised on purpose."""


def rank_launcher(train: TrainBase, place: Place, waiting: int = FIRST_SECONDS) -> Launcher:
    """Return what starts this machine's ranks of a program: torchrun where there are several machines.

    The supervisor starts the whole job again itself, so that it sees and counts every attempt.

    `waiting`: seconds for all machines to be there.
    """
    if train.num_machines == 1:
        starter = ("-m", "tasks.train.ranks.one_machine", str(train.num_ranks)) if train.num_ranks > 1 else ()
        return Launcher(starter, environment(train))
    assert train.rendezvous is not None
    host, _, port = train.rendezvous.rpartition(":")
    # Machine i has ranks i * num_ranks and on, as partition.machines and messages count: other rendezvous of torchrun
    # give ranks by the order of addresses as texts, and run pickles that whoever reaches the port has put there.
    arguments = [
        "-m",
        "tasks.train.ranks.torchrun",
        f"--nproc-per-node={train.num_ranks}",
        "--max-restarts=0",
        "--rdzv-backend=static",
        f"--nnodes={train.num_machines}",
        f"--node-rank={train.machine_rank}",
        f"--master-addr={host.strip('[]')}",
        f"--master-port={port}",
        f"--rdzv-conf=timeout={_JOINING_SECONDS}",
        f"--rdzv-id={place.name[:32]}",
    ]
    # Not on the command line, which other users see.
    told = {MEETING: _meeting(train, place, waiting).dump()}
    return Launcher(arguments, {**environment(train), **told})


def _meeting(train: TrainBase, place: Place, waiting: int) -> Meeting:
    # Where all see one home machine 0 has written the job before it starts its ranks.
    helps = train.machine_rank > 0 and train.shared_home
    return Meeting(
        machine=train.machine_rank,
        machines=train.num_machines,
        num_ranks=train.num_ranks,
        rendezvous=train.rendezvous or "",
        patience_seconds=waiting,
        reach_seconds=_REACH_SECONDS if helps else waiting,
        began=time.time(),
        facts=place.facts,
        result=str(place.result),
        error=str(place.error),
        own_home=not train.shared_home,
    )


def environment(train: TrainBase) -> dict[str, str]:
    """Return the environment of the ranks' processes."""
    threads = str(train.threads)
    interface = own_interface(train)
    return {
        **WORKER_ENVIRONMENT,
        **({"GLOO_SOCKET_IFNAME": interface} if interface else {}),
        **inherited_environment(),
        **(LOOPBACK if train.num_machines == 1 else {}),
        **for_children(),
        PARENT: str(os.getpid()),
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "NUMBA_NUM_THREADS": threads,
        # Without it a restart under gloo finds the store of the attempt before (seen with torch 2.13).
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }


class Watcher:
    """Reads what rank 0 writes and passes it on to the stage's listener."""

    def __init__(self, job: AnyJob, context: StageContext) -> None:
        """Records of an earlier run of this job were passed on by that one."""
        self.metrics, self.progress = job.work / METRICS, job.work / PROGRESS
        self.context = context
        self.passed_on = self.metrics.read_bytes().count(b"\n") if self.metrics.exists() else 0
        self._lines, self._offset, self._seen = 0, 0, ""
        self.cause = ""
        """What ranks have said last of a machine that is lost."""
        self._logs = RankLogs(job.work / LOGS, context.message, self._warn)

    def _warn(self, text: str) -> None:
        if GIVEN_UP in text:
            self.cause = text.partition(";")[0]
        self.context.warn(text)

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


def _tails(logs: Path) -> str:
    texts = [(log.stem, tail(log)) for log in sorted(logs.glob("*.log"))]
    return "\n".join(f"--- {name}\n{text}" for name, text in texts if text)
