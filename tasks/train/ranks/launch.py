"""Run a training as supervised processes: one worker, or several under torchrun.

The stage's own process imports no torch, and a worker that runs out of memory takes nothing else with it. A job one of
whose ranks dies is stopped as a whole and started again from its last checkpoint. Nothing outlives the supervisor: its
children ask the kernel to be killed when it goes (tasks/processes/children.py), the ranks when torchrun goes.
"""

from __future__ import annotations

import json
import math
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from configs.errors import StageError, error_of
from configs.training import TrainBase
from configs.trust import for_children
from tasks.processes.children import ROOT, WORKER_ENVIRONMENT, describe_exit, end_group, has_children, tail
from tasks.stage import StageContext
from tasks.supervise import Launcher
from tasks.train.job import ERROR, LAST, LOGS, METRICS, PROGRESS, RESULT, AnyJob
from tasks.train.ranks.rank_logs import RankLogs
from tasks.train.worker import PARENT

_POLL_SECONDS = 0.1
_SUPERVISOR_LOG = "launch.log"
_MEETING_SECONDS, _MEETING_AGAIN_SECONDS = 600, 60
"""How long machines wait for each other at first, and once a training of theirs has ended."""
_LINGERING_SECONDS = 5.0
"""torchrun may wait for another machine's store long after its ranks have ended."""
# An NFS client may not see a new file for so long (acdirmax).
_NETWORK_FILE_SECONDS = 60.0


def run_job(job: AnyJob, context: StageContext) -> dict[str, Any]:
    """Run to the end; return what the worker wrote into result.json, and `restarts`.

    Raises:
        UserError, IntegrityError: what a rank raised.
        StageError: ranks died more often than train.max_restarts; the message ends with what they said last.
    """
    path = job.save()
    if (job.work / LAST).exists():
        context.message("goes on from the last checkpoint of a training that was interrupted")
    watcher = Watcher(job, context)
    for restarts in range(job.train.max_restarts + 1):
        for name in (ERROR, RESULT, PROGRESS):
            (job.work / name).unlink(missing_ok=True)
        code = _run_once(job, path, watcher, again=restarts > 0)
        if code == 0 and _has_result(job):
            return {**json.loads((job.work / RESULT).read_text()), "restarts": restarts}
        raise_final_error(job.work)
        if restarts and job.train.num_machines > 1 and not any((job.work / LOGS).glob("rank-*.log")):
            raise StageError(
                f"the {job.train.num_machines} machines did not come together again within {_MEETING_AGAIN_SECONDS} "
                "seconds: see which of them is gone; running again goes on from the last checkpoint"
            )
        if restarts < job.train.max_restarts:
            context.warn(f"a rank died ({describe_exit(code)}); starting again from the last checkpoint")
    raise StageError(
        f"training died {job.train.max_restarts + 1} times, last with {describe_exit(code)}; "
        f"running again continues from the last checkpoint. The ranks said last:\n{_tails(job.work / LOGS)}"
    )


def _has_result(job: AnyJob) -> bool:
    """Whether rank 0 has written its result; what another machine wrote may take a moment to be seen here."""
    network = job.train.num_machines > 1 and job.train.shared_home
    patience = time.monotonic() + (_NETWORK_FILE_SECONDS if network else 0.0)
    while not (job.work / RESULT).exists():
        if time.monotonic() >= patience:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _run_once(job: AnyJob, path: Path, watcher: Watcher, *, again: bool) -> int:
    """Start the processes, pass on what they report until they end, and leave none behind."""
    logs = job.work / LOGS
    logs.mkdir(exist_ok=True)
    for log in logs.glob("rank-*.log"):
        log.unlink()
    process = start_ranks(job, path, logs / _SUPERVISOR_LOG, again=again)
    code = wait_for_ranks(process, job, watcher.look)
    watcher.look()
    watcher.attempt_over()
    return code


def wait_for_ranks(process: subprocess.Popen[bytes], job: AnyJob, look: Callable[[], None] = lambda: None) -> int:
    """Return the exit code once the ranks have ended, and leave no process; `look` is called all the time."""
    ranks_seen, alone_since = False, math.inf
    lingers = job.train.num_machines > 1
    try:
        while process.poll() is None and time.monotonic() - alone_since < _LINGERING_SECONDS:
            time.sleep(_POLL_SECONDS)
            look()
            if not lingers or has_children(process.pid) or (job.work / RESULT).exists():
                ranks_seen, alone_since = True, math.inf
            elif ranks_seen:
                alone_since = min(alone_since, time.monotonic())
    finally:  # also where the run is cancelled or interrupted
        end_group(process)
    return process.returncode


def start_ranks(job: AnyJob, path: Path, log: Path, *, again: bool) -> subprocess.Popen[bytes]:
    """Start this machine's ranks of the job that is written at `path`; they lead a group of their own.

    `again`: the machines have met before, and do not wait long for each other.
    """
    with log.open("wb") as output:
        return subprocess.Popen(
            command(job.train, path, job.digest, again=again),
            cwd=ROOT,
            env=environment(job.train),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def command(train: TrainBase, job: Path, run_id: str, *, again: bool = False) -> list[str]:
    """Return the command of a job: a worker by itself, or torchrun for several ranks or machines."""
    worker = ["-m", "tasks.train.worker", str(job)]
    if train.num_ranks == 1 and train.num_machines == 1:
        return [sys.executable, *worker]
    return [sys.executable, *torchrun(train, run_id, again=again), *worker]


def launcher(train: TrainBase, run_id: str) -> Launcher:
    """Return what starts this machine's ranks of a program."""
    return Launcher(torchrun(train, run_id), environment(train))


def torchrun(train: TrainBase, run_id: str, *, again: bool = False) -> list[str]:
    """Return the arguments of Python that start this machine's ranks; the program's own follow."""
    # The supervisor starts the whole job again itself, so that it sees and counts every attempt.
    ranks = [f"--nproc-per-node={train.num_ranks}", "--max-restarts=0"]
    if train.num_machines == 1:
        place = ["--standalone"]
    else:
        waiting = _MEETING_AGAIN_SECONDS if again else _MEETING_SECONDS
        place = [
            f"--nnodes={train.num_machines}",
            f"--node-rank={train.machine_rank}",
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint={train.rendezvous}",
            # Given explicitly: torchrun would guess it from host names, and a Service's name is no host's.
            f"--rdzv-conf=is_host={'false' if train.machine_rank else 'true'},join_timeout={waiting}",
            f"--rdzv-id={run_id[:16]}",
            *([f"--local-addr={found[0]}"] if (found := own_address(train)) else []),
        ]
    return ["-m", "tasks.train.ranks.torchrun", *ranks, *place]


def own_address(train: TrainBase) -> tuple[str, str] | None:
    """Return this machine's address as machine 0 sees it, and the network interface that has it.

    Torch would take what the host's name resolves to, which on many machines is the loopback or nothing at all. None:
    one machine, or no way to machine 0 is known.
    """
    if train.num_machines == 1 or train.rendezvous is None:
        return None
    host, _, port = train.rendezvous.rpartition(":")
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(place)  # sends nothing: it only asks for the way
            address = str(probe.getsockname()[0])
    except OSError:
        return None
    for interface, found in psutil.net_if_addrs().items():
        if any(entry.address == address for entry in found):
            return address, interface
    return None


def environment(train: TrainBase) -> dict[str, str]:
    """Return the environment of the ranks' processes."""
    threads = str(train.threads)
    found = own_address(train)
    return {
        **WORKER_ENVIRONMENT,
        **({"GLOO_SOCKET_IFNAME": found[1]} if found else {}),
        **os.environ,
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


def raise_final_error(work: Path) -> None:
    """Raise what a rank raised on purpose: another attempt would end the same."""
    path = work / ERROR
    if not path.exists():
        return
    content = json.loads(path.read_text())
    raise error_of(content["kind"], content["message"])


def _tails(logs: Path) -> str:
    texts = [(log.stem, tail(log)) for log in sorted(logs.glob("*.log"))]
    return "\n".join(f"--- {name}\n{text}" for name, text in texts if text)
