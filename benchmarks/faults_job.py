"""A job over several machines for benchmarks/faults.py: its commands, how far it is, what it left."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.machines import Machines
from configs.errors import IntegrityError
from configs.schema import STAGES
from tasks.calls import load_stage
from tasks.storage.artifacts import ArtifactStore, is_locked
from tasks.storage.home import Home
from tasks.storage.home_files.temporary import PREFIX, lock_path

PHASES = ("joining", "rehearsal", "batches", "validation", "checkpoint", "end", "evaluation")
_UNTIL_EVALUATE = STAGES[: STAGES.index("evaluate") + 1]
_PORT = 29400
EPOCHS = 15
_RECIPE: dict[str, Any] = {
    "name": "faults",
    "dataset": {"name": "synthetic", "num_nodes": 6000, "num_edges": 40000, "num_classes": 8, "feature_dim": 16},
    "components": {"keep": "all"},
    "train": {
        "strategy": "partitioned",
        "loader": {"name": "neighbor", "fanout": [5, 5], "batch_size": 256},
        "epochs": EPOCHS,
        "threads": 1,
        "device": "cpu",
    },
    "evaluate": {"predictions": False},
    "model": {"name": "graphsage", "hidden_dim": 32, "num_layers": 2},
    "tracking": {"system_metrics": False},
}


@dataclass(frozen=True)
class Kind:
    """What a job is like."""

    machines: int
    shared_home: bool
    sparse: bool
    """Whether rows of embeddings are learnt, whose checkpoints all ranks write together."""

    @property
    def trained(self) -> tuple[int, bool]:
        """What its metrics depend on."""
        return self.machines, self.sparse

    def __str__(self) -> str:
        home, what = ("one home" if self.shared_home else "own homes"), ("embeddings" if self.sparse else "features")
        return f"{self.machines} machines, {home}, {what}"


class Job:
    """One job on its machines; a context, at whose end nothing of it runs any more."""

    def __init__(self, kind: Kind, folder: Path, prepared: Path | None = None) -> None:
        """`prepared`: a home in which such a job was run before; its graph is used, not its training."""
        self.kind, self.folder = kind, folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.homes = [folder / f"home-{number if not kind.shared_home else 0}" for number in range(kind.machines)]
        for home in set(self.homes) if prepared else ():
            shutil.copytree(prepared, home, ignore=_of_a_run)  # type: ignore[arg-type]
        self.recipe = folder / "faults.yaml"
        self.recipe.write_text(yaml.safe_dump(self._content()))
        self.machines = Machines(kind.machines)
        self.processes: list[subprocess.Popen[Any] | None] = [None] * kind.machines
        self._starts = 0

    def _content(self) -> dict[str, Any]:
        parts = {"name": "metis", "num_parts": 4 if self.kind.machines == 2 else 6, "machines": self.kind.machines}
        train = dict(_RECIPE["train"])
        dataset = dict(_RECIPE["dataset"])
        if self.kind.sparse:
            train["embeddings"], dataset["feature_dim"] = "sparse", 0
        return {**_RECIPE, "dataset": dataset, "train": train, "partition": parts}

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *error: object) -> None:
        self.machines.close()

    def start(self, number: int) -> None:
        """Start a machine's command, as its scheduler does."""
        count = self.kind.machines
        command = [sys.executable, "-m", "flows.cli", "--home", str(self.homes[number]), "run", str(self.recipe)]
        command += [f"train.num_machines={count}", f"train.rendezvous={self.machines.address(0)}:{_PORT}"]
        command += [f"train.machine_rank={number}", f"train.shared_home={str(self.kind.shared_home).lower()}"]
        self._starts += 1
        with self.log(number).open("a") as log:
            log.write(f"--- start {self._starts}\n")
            log.flush()
            only = ["--only", ",".join(_UNTIL_EVALUATE)]
            self.processes[number] = self.machines.start(number, [*command, *only], {"COLUMNS": "200"}, log)

    def start_all(self) -> None:
        """Start the commands of all machines where none runs, the last one first."""
        for number in reversed(range(self.kind.machines)):
            process = self.processes[number]
            if process is None or process.poll() is not None:
                self.start(number)

    def log(self, number: int) -> Path:
        """What a machine's commands said."""
        return self.folder / f"machine-{number}.log"

    def said(self, number: int) -> list[str]:
        """Return the lines of a machine's last command."""
        return self.log(number).read_text(errors="replace").rpartition("--- start ")[2].splitlines()[1:]

    def wait(self, deadline: float, besides: int | None = None) -> bool:
        """Wait until all commands have ended; False: some had not at the deadline (of `time.monotonic`).

        `besides`: a machine that need not have ended where another one's command has failed.
        """
        while any(code is None for code in self.codes()):
            others = [code for number, code in enumerate(self.codes()) if number != besides]
            if besides is not None and all(others):
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def codes(self) -> list[int | None]:
        """Return the commands' exit codes."""
        return [None if process is None else process.poll() for process in self.processes]

    # ---- how far it is

    def reached(self, phase: str, epoch: int) -> bool:
        """Whether the job is in a phase now; of the training's phases at an epoch or later."""
        if phase == "evaluation":
            running = self.machines.machines[0].running().values()
            return any("-m" in words and words[words.index("-m") + 1] == "tasks.supervise" for words in running)
        logs = list(self._work("train-*/logs/*.log"))
        if phase == "joining":
            return bool(logs) and (self.kind.shared_home or any("are there" in _text(path) for path in logs))
        if phase == "rehearsal":
            return any(path.name.startswith("rank-") for path in logs)
        if phase == "end":
            return self.epochs() >= EPOCHS
        if self.epochs() < epoch:
            return False
        if phase == "validation":
            return any("validating" in _text(path) for path in self._work("train-*/progress.json"))
        if phase == "checkpoint":
            return any(True for _ in self._work("train-*/*.pt.*"))
        return True

    def phase(self) -> str:
        """Return the phase that the job is in."""
        passed = [phase for phase in ("joining", "rehearsal", "batches", "end", "evaluation") if self.reached(phase, 1)]
        now = [phase for phase in ("validation", "checkpoint") if passed[-1:] == ["batches"] and self.reached(phase, 1)]
        return (now or passed or ["before"])[-1]

    def epochs(self) -> int:
        """Return how many epochs the training has recorded."""
        lines = [_text(path).count("train/loss") for path in self._work("train-*/metrics.jsonl")]
        return max(lines, default=0)

    def _work(self, pattern: str) -> Iterator[Path]:
        return (self.homes[0] / "work").glob(pattern)

    # ---- what came of it

    def metrics(self) -> list[dict[str, Any]]:
        """Return what each home's evaluation measured."""
        manifests = [path for home in self.own_homes() for path in home.glob("artifacts/evaluate/*/manifest.json")]
        return [json.loads(path.read_text())["metrics"] for path in manifests]

    def own_homes(self) -> list[Path]:
        """Return the homes, each once."""
        return sorted(set(self.homes))

    def resumed_from(self) -> int:
        """Return the epoch that the training has last gone on from."""
        manifests = self.homes[0].glob("artifacts/train/*/manifest.json")
        return max((json.loads(path.read_text())["resumed_from_epoch"] for path in manifests), default=0)

    def restarted(self) -> bool:
        """Whether ranks were started again within the job."""
        return any("starting again" in line or "starts again" in line for line in self.said(0))

    def took_finished(self) -> bool:
        """Whether the training had ended when the fault came, and was taken as it was."""
        return any("was finished when the run was killed" in line for line in self.said(0))

    def has_checkpoint(self) -> bool:
        """Whether there is a training to go on with."""
        return any(True for _ in self._work("train-*/last.pt"))

    def left_running(self, seconds: float = 5.0) -> list[str]:
        """Return what still runs on the machines so many seconds after the commands have ended."""
        until = time.monotonic() + seconds
        found: list[list[str]] = []
        while time.monotonic() < until:
            found = [words for machine in self.machines.machines for words in machine.running().values()]
            if not found:
                break
            time.sleep(0.1)
        return [" ".join(words)[:120] for words in found]

    def left_behind(self, *, finished: bool) -> list[str]:
        """Return what lies where nothing should; `finished`: the job is done, so that nothing waits to be resumed."""
        found = [str(path) for machine in self.machines.machines for path in machine.shared_memory.iterdir()]
        for home in map(Home.open, self.own_homes()):
            for path in home.work.iterdir() if home.work.exists() else ():
                temporary = path.name.startswith(PREFIX)
                if finished if not temporary else (finished or is_locked(lock_path(path))):
                    found.append(str(path))
            store = ArtifactStore(home)
            for folder in home.artifacts.glob("*/*"):
                stage = load_stage(folder.parent.name)
                try:
                    store.load(stage.name, folder.name, stage.manifest, deep=True)
                except IntegrityError as error:
                    found.append(str(error))
        return found


def _of_a_run(folder: str, names: list[str]) -> set[str]:
    """Return what of a home's folders is no part of the graph."""
    unwanted = {"train", "evaluate"} if Path(folder).name == "artifacts" else {"work", "runs", "prefect", "locks"}
    return unwanted & set(names)


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace")
    return ""
