"""What a machine other than the first does in a run over several machines: it lends its ranks.

Machine 0 runs the pipeline and looks after the training as always. The others wait until it has come to the training,
start torchrun on the job that it has written, and do so again whenever a job is begun anew. Where the graph lies in
parts they lend them for the evaluation too. They build, publish and report nothing. All machines see one home under one
path.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection
from pathlib import Path

from configs.errors import IntegrityError, RecipeError, StageError
from configs.schema import STAGES, Recipe
from tasks.calls import ParentGoneError, expected_key, find_stage
from tasks.processes.children import ROOT, describe_exit
from tasks.storage.artifacts import ArtifactStore, is_locked
from tasks.storage.home import Home
from tasks.supervise import JOB_FILE, RESULT_FILE, read_error
from tasks.train.job import ERROR, JOB, LOGS, RESULT, Job
from tasks.train.ranks.agreement import evaluates_together
from tasks.train.ranks.evaluation import launcher
from tasks.train.ranks.launch import start_ranks, wait_for_ranks
from tasks.train.ranks.meeting import UNREACHED_CODE
from tasks.train.ranks.presence import FirstMachine, present

_LOOK_SECONDS = 1.0
_MESSAGE_SECONDS = 60.0
_GONE_SECONDS = 60.0
_UNSEEN_SECONDS = 10.0
"""For commands that are typed one after the other."""
_NEVER_SEEN_SECONDS = 1800.0
"""For a machine 0 that a scheduler starts later; in another home it is never seen."""
_LINES_SAID = 15
"""Of an evaluation's ranks that failed."""


def join_training(
    recipe: Recipe,
    home: Home,
    *,
    force: Collection[str] = (),
    evaluates: bool = True,
    message: Callable[[str], None] = lambda text: None,
) -> Path:
    """Take part in the training of `recipe` until machine 0 has finished it; return the training's artifact's folder.

    Args:
        recipe: the same as machine 0's but for `train.machine_rank`.
        home: the home that machine 0 works in.
        force: stages that machine 0 was told to do again: an earlier artifact does not count.
        evaluates: whether machine 0 evaluates what it has trained.
        message: called with what is waited for and what ends.

    Raises:
        RecipeError: this is machine 0, or machine 0 runs another job.
        StageError: machine 0 ended without a result.
        UserError, IntegrityError: what a rank raised, or what machine 0 ended with.
    """
    if recipe.train.machine_rank == 0:
        raise RecipeError("machine 0 runs the pipeline; only machines with train.machine_rank above 0 join it")
    with present(home, recipe) as here:
        first = FirstMachine(here)
        folder = _Training(recipe, home, "train" in force, message, first).run()
        if evaluates and evaluates_together(recipe):
            _Evaluation(recipe, home, "evaluate" in force, message, first).run()
    return folder


class _Helper:
    """Lends ranks for one stage."""

    stage: str
    result: str
    """File that the stage's job leaves when it is done."""

    def __init__(
        self, recipe: Recipe, home: Home, force: bool, message: Callable[[str], None], first: FirstMachine
    ) -> None:
        self._recipe = recipe
        self._first = first
        self.keys: dict[str, str] = {}
        """Of stages, as far as machine 0 has come."""
        self._home = home
        self._store = ArtifactStore(home)
        self._began = _file_time(home) if force else 0.0
        self._message = message
        self._last_message = ""
        self._message_at = 0.0
        self._done: set[tuple[Path, int]] = set()
        self._lent_at: float | None = None
        """When ranks that were lent last ended."""
        self._looked_at = 0.0

    def run(self) -> Path:
        while True:
            key = self._key()
            self._first.check(self.keys)
            if key is None:
                self._wait("waiting for machine 0 to prepare the graph")
                continue
            job = self._next_job(key)
            if job is not None:
                self._lend(job)
            elif (folder := self._finished(key)) is not None:
                return folder
            else:
                self._give_up_late(key)
                self._wait(f"waiting for machine 0 to begin {self.stage}")

    # ---- what differs by stage

    def jobs(self, work: Path) -> list[Path]:
        """Return the files of the jobs that machine 0 may be at."""
        raise NotImplementedError

    def run_ranks(self, path: Path) -> int:
        """Run this machine's ranks of a job to the end; return the exit code. Raises OSError: it is gone."""
        raise NotImplementedError

    # ----

    def _key(self) -> str | None:
        """Return the stage's key, or None as long as a stage before it has not run."""
        keys: dict[str, str] = {}
        self.keys = keys
        try:
            for name in STAGES[: STAGES.index(self.stage) + 1]:
                key = expected_key(name, self._recipe, keys, self._home)
                if name == self.stage:
                    return key
                keys[name] = key
                if find_stage(name, self._recipe, keys, self._home) is None:
                    break
            return None
        except (ParentGoneError, IntegrityError):  # machine 0 makes it again
            return None

    def _next_job(self, key: str) -> Path | None:
        """Return the job that machine 0 works on, unless it is done."""
        if not is_locked(self._store.lock_path(self.stage, key)):
            return None  # what lies there is of a run that was killed
        for path in self.jobs(self._store.work_folder(self.stage, key)):
            try:
                if not (path.parent / self.result).exists() and _version(path) not in self._done:
                    return path
            except FileNotFoundError:  # it has just been removed
                continue
        return None

    def _lend(self, path: Path) -> None:
        train = self._recipe.train
        self._message(f"machine {train.machine_rank} lends {train.num_ranks} rank(s) for {self.stage}")
        try:
            version = _version(path)
            code = self.run_ranks(path)
        except OSError:  # it has just been removed
            return
        self._lent_at = time.monotonic()
        if code == 0:
            self._done.add(version)
        else:
            error = read_error(path.parent / ERROR)
            if error is not None:
                raise error
            self._first.check(self.keys)
            if code == UNREACHED_CODE and self._first.alive:
                raise StageError(
                    f"machine 0 is at work, but machine {train.machine_rank} cannot reach it at {train.rendezvous}: "
                    "see to the network between them; running again goes on from the last checkpoint"
                )
            self._wait(f"the ranks ended with {describe_exit(code)}; trying again as long as machine 0 does")

    def look(self) -> None:
        """Look from time to time whether machine 0 is still there; its ranks may not have come yet."""
        if time.monotonic() - self._looked_at > _LOOK_SECONDS:
            self._first.check(self.keys)
            self._looked_at = time.monotonic()

    def _give_up_late(self, key: str) -> None:
        """Raise StageError where machine 0 works on the stage no more and nothing has come of it."""
        if self._lent_at is None or is_locked(self._store.lock_path(self.stage, key)):
            return
        if time.monotonic() - self._lent_at > _GONE_SECONDS:
            raise StageError(
                f"machine 0 has ended without a result, {_GONE_SECONDS:.0f} seconds ago or more; its own output says "
                "why. Running both again goes on from the last checkpoint"
            )

    def _finished(self, key: str) -> Path | None:
        folder = self._store.folder(self.stage, key)
        manifest = folder / "manifest.json"
        if is_locked(self._store.lock_path(self.stage, key)) or not manifest.exists():
            return None
        return folder if manifest.stat().st_mtime >= self._began else None

    def _wait(self, what: str) -> None:
        unseen = self._first.unseen_seconds()
        if unseen > _UNSEEN_SECONDS:
            what = self._unseen()
        if unseen > _NEVER_SEEN_SECONDS:
            raise StageError(f"gave up after {unseen / 60:.0f} minutes: {what}")
        if what != self._last_message or time.monotonic() - self._message_at > _MESSAGE_SECONDS:
            self._message(what)
            self._last_message, self._message_at = what, time.monotonic()
        time.sleep(_LOOK_SECONDS)

    def _unseen(self) -> str:
        return (
            f"no command of machine 0 is seen in the home {self._home.root} for {self._recipe.train.rendezvous}; it "
            "has to be started with the same recipe and machines, and the same home (--home, GRAPHMILL_HOME) under a "
            "path that all machines share, or with train.shared_home=false"
        )


class _Training(_Helper):
    stage = "train"
    result = RESULT

    def jobs(self, work: Path) -> list[Path]:
        """Several with self-training: those of its first rounds lie deeper."""
        return sorted(work.rglob(JOB), key=lambda path: -len(path.parts))

    def run_ranks(self, path: Path) -> int:
        job = dataclasses.replace(Job.load(path), train=self._recipe.train)
        logs = path.parent / LOGS
        logs.mkdir(exist_ok=True)
        process = start_ranks(job, path, logs / f"launch-{job.train.machine_rank}.log")
        return wait_for_ranks(process, self.look)


class _Evaluation(_Helper):
    stage = "evaluate"
    result = RESULT_FILE

    def jobs(self, work: Path) -> list[Path]:
        """One."""
        return list(work.glob(JOB_FILE))

    def run_ranks(self, path: Path) -> int:
        start = launcher(self._recipe, path.parent, self.keys["train"])
        command = [sys.executable, *start.arguments, "-m", "tasks.supervise", "tasks.evaluate.worker", str(path)]
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=start.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            code = wait_for_ranks(process, self.look)
            output.seek(0)
            said = output.read().decode(errors="replace").splitlines()
        for line in said[-_LINES_SAID:] if code else ():
            self._message(f"the ranks said: {line}")
        return code


def _file_time(home: Home) -> float:
    """Return the time by the clock that files of the home are dated by, which is not this machine's."""
    home.locks.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=home.locks) as file:
        return os.fstat(file.fileno()).st_mtime


def _version(path: Path) -> tuple[Path, int]:
    """Identify a job as it is written now: a run that begins anew writes it again."""
    return path, path.stat().st_mtime_ns
