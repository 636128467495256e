"""Random faults in jobs on a Ray cluster: what becomes of the job, of its metrics, and of what it leaves.

    python -m benchmarks.faults [--count 60] [--seed 1] [--only 3,7] [--work FOLDER]

Machines are network namespaces of this one (root, `ip` and control groups are needed) that lend two CPUs each, for one
rank of one thread: where one is lost, there is room for its ranks on another. In some jobs the others do not see the
home. Every fault falls on a job of its own, at a random moment of a random phase: a rank, the place of ranks, Ray's own
process of a machine, what starts the ranks, or the command is killed (SIGKILL); a machine is turned off, for ever or
for some seconds; its network is cut, for ever or for five seconds; its disk is full; the cluster's head is killed.

What must hold: the command ends well with the metrics of an undisturbed job, to the bit, or with one line that says
why; then the same command, once the machines are well, comes to the same metrics. No process of graphmill is left on
any machine, nothing in the home's `work`, and no artifact is damaged.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter

from benchmarks.gnn_report import keep, machine, print_machine
from benchmarks.machines import Cluster, Machines
from configs.errors import IntegrityError
from tasks.calls import load_stage
from tasks.storage.artifacts import ArtifactStore
from tasks.storage.home import Home

RESULTS = Path(__file__).parent / "results"
PHASES = ("preprocess", "joining", "rehearsal", "batches", "validation", "checkpoint", "end", "evaluation")
EPOCHS = 15
_WORDS = {
    "kill rank": ("tasks.train.worker", "tasks.supervise"),
    "kill place": ("ray::Place",),
    "kill raylet": ("raylet/raylet",),
    "kill launcher": ("tasks.cluster.launch", "tasks.cluster.shards"),
    "kill command": ("flows.cli",),
    "kill head": ("gcs/gcs_server",),
}
ACTS = (*_WORDS, "turn off", "turn off and on", "cut", "cut 5 s", "full disk")
_RUNS = {"joining": "tasks.cluster.launch", "evaluation": "tasks.evaluate.worker"}
_FILES = {"preprocess": "preprocess-*", "rehearsal": "train-*/logs/rank-*.log", "checkpoint": "train-*/.*.pt.*"}
"""What runs, or lies in the home's `work`, in a phase."""
_OURS = ("tasks.train.worker", "tasks.supervise", "tasks.cluster", "flows.cli", "ray::Place", "ray::HomeFiles")
_OF_MACHINE_0 = ("kill head", "kill launcher", "kill command")
_OF_OTHERS = ("kill raylet", "turn off", "turn off and on", "cut", "cut 5 s", "full disk")
_LONGEST_SECONDS = 300.0
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
    "cluster": {"address": "auto", "wait_minutes": 0.5},
    "evaluate": {"predictions": False},
    "model": {"name": "graphsage", "hidden_dim": 32, "num_layers": 2},
    "tracking": {"system_metrics": False},
}


@dataclass(frozen=True)
class Kind:
    """What a job is like."""

    machines: int
    apart: bool
    """Whether the machines after the first do not see the home."""
    sparse: bool
    """Whether rows of embeddings are learnt, whose checkpoints all ranks write together."""

    def __str__(self) -> str:
        home, learnt = "apart" if self.apart else "one home", "embeddings" if self.sparse else "features"
        return f"{self.machines} machines, {home}, {learnt}"


KINDS = (Kind(2, True, False), Kind(2, True, True), Kind(2, False, True), Kind(3, True, True), Kind(3, False, False))


@dataclass(frozen=True)
class Fault:
    """What happens to which job, and when."""

    number: int
    kind: Kind
    act: str
    machine: int
    phase: str
    epoch: int
    """Of the training, for phases of an epoch."""
    wait_seconds: float
    """After the phase has begun."""


@dataclass
class Outcome:
    """What became of a job."""

    fault: Fault
    at_seconds: float = 0.0
    goes_on_seconds: float = 0.0
    """From the fault to the next step of the training, where its ranks were started again; else 0."""
    end_seconds: float = 0.0
    """From the fault to the end of the command."""
    what: str = ""
    equal: bool | None = None
    troubles: tuple[str, ...] = ()


def draw(count: int, seed: int) -> list[Fault]:
    """Draw faults: every act and phase comes up about equally often."""
    rng = random.Random(seed)

    def shuffled(values: Any) -> list[Any]:
        rounds = -(-count // len(values))
        return [value for _ in range(rounds) for value in rng.sample(list(values), len(values))][:count]

    faults = []
    for number, (act, phase, kind) in enumerate(zip(shuffled(ACTS), shuffled(PHASES), shuffled(KINDS), strict=True)):
        first = 1 if act in _OF_OTHERS else 0
        hit = 0 if act in _OF_MACHINE_0 else rng.randrange(first, kind.machines)
        wait = rng.random() * (4.0 if phase in ("joining", "evaluation") else 0.3)
        faults.append(Fault(number, kind, act, hit, phase, rng.randint(1, EPOCHS - 2), wait))
    return faults


class Job(contextlib.AbstractContextManager["Job"]):
    """One job on its cluster; a context, at whose end nothing of it runs any more."""

    def __init__(self, kind: Kind, folder: Path) -> None:
        self.kind, self.log = kind, folder / "said.log"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        parts = {"name": "metis", "num_parts": 4 if kind.machines == 2 else 6, "machines": kind.machines}
        train = {**_RECIPE["train"], "num_ranks": kind.machines, **({"embeddings": "sparse"} if kind.sparse else {})}
        dataset = {**_RECIPE["dataset"], **({"feature_dim": 0} if kind.sparse else {})}
        self.recipe = folder / "faults.yaml"
        self.recipe.write_text(yaml.safe_dump({**_RECIPE, "dataset": dataset, "train": train, "partition": parts}))
        self.folder = folder
        self.machines = Machines(kind.machines)
        try:
            self.cluster = Cluster(self.machines, folder, apart=kind.apart, cpus=2)
        except BaseException:
            self.machines.close()
            raise
        self.home = self.cluster.home
        self.process: subprocess.Popen[Any]

    def __exit__(self, *error: object) -> None:
        self.machines.close()
        self.cluster.close()

    def start(self) -> None:
        """Start the command."""
        with self.log.open("a") as log:
            log.write("--- start\n")
            log.flush()
            until = "ingest,preprocess,components,partition,train,evaluate"
            self.process = self.cluster.run(["run", str(self.recipe), "--only", until], log)

    def said(self) -> list[str]:
        """Return the lines of the last command."""
        return self.log.read_text(errors="replace").rpartition("--- start")[2].splitlines()

    def wait(self, seconds: float) -> bool:
        """Return whether the command ends within so many seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        return self.process.poll() is not None

    def reached(self, phase: str, epoch: int) -> bool:
        """Whether the job is in a phase now; of the training's phases at an epoch or later."""
        if phase in _RUNS:
            return any(_RUNS[phase] in " ".join(words) for words in self.machines.machines[0].running().values())
        is_early = phase in ("preprocess", "rehearsal")
        if not is_early and self.epochs() < (EPOCHS if phase == "end" else epoch):
            return False
        if phase == "validation":
            return "validating" in self.steps()
        return phase not in _FILES or any(True for _ in self._work(_FILES[phase]))

    def epochs(self) -> int:
        """Return how many epochs the training has recorded."""
        return max((_text(path).count("train/loss") for path in self._work("train-*/metrics.jsonl")), default=0)

    def steps(self) -> str:
        """Return what the training says of how far it is."""
        return "".join(_text(path) for path in self._work("train-*/progress.json"))

    def restarted(self) -> bool:
        """Whether ranks of the training were started again."""
        return any("starting again" in line for line in self.said())

    def _work(self, pattern: str) -> Iterator[Path]:
        return (self.home / "work").glob(pattern)

    def metrics(self) -> Any:
        """Return what the evaluation measured; None: there is none."""
        manifests = [json.loads(path.read_text()) for path in self.home.glob("artifacts/evaluate/*/manifest.json")]
        return manifests[0]["metrics"] if len(manifests) == 1 else None

    def left(self) -> list[str]:
        """Return what runs or lies about some seconds after the command has ended."""
        until = time.monotonic() + 10
        while (found := [" ".join(words)[:100] for words in self._running()]) and time.monotonic() < until:
            time.sleep(0.1)
        found += [str(path) for path in (self.home / "work").glob("*")] if self.process.returncode == 0 else []
        store = ArtifactStore(Home.open(self.home))
        for folder in self.home.glob("artifacts/*/*"):
            stage = load_stage(folder.parent.name)
            try:
                store.load(stage.name, folder.name, stage.manifest, deep=True)
            except IntegrityError as error:
                found.append(str(error))
        return found

    def _running(self) -> list[list[str]]:
        return [
            words
            for machine in self.machines.machines
            for words in machine.running().values()
            if any(ours in " ".join(words) for ours in _OURS) and " cluster " not in " ".join(words)
        ]


def strike(job: Job, fault: Fault) -> None:
    """Let the fault happen."""
    if fault.act.startswith("kill"):
        until, pids = time.monotonic() + 10, list[int]()
        while not pids and time.monotonic() < until:
            running = job.machines.machines[fault.machine].running()
            pids = [pid for pid, words in running.items() if any(one in " ".join(words) for one in _WORDS[fault.act])]
            if fault.act == "kill command":
                pids = [job.process.pid, *pids]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    elif fault.act.startswith("turn off"):
        job.machines.kill(fault.machine)
        if fault.act == "turn off and on":
            time.sleep(3.0)
            job.cluster.begin(fault.machine)
    elif fault.act == "full disk":
        cache = job.folder / f"cache-{fault.machine}"
        cache.mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", str(cache)], check=True)
    else:
        job.machines.tell_network(f"cut {fault.machine}")
        if fault.act == "cut 5 s":
            time.sleep(5.0)
            job.machines.tell_network(f"mend {fault.machine}")


def mend(job: Job, fault: Fault) -> None:
    """Have all machines well again."""
    job.machines.tell_network(f"mend {fault.machine}")
    subprocess.run(["umount", str(job.folder / f"cache-{fault.machine}")], check=False, capture_output=True)
    if fault.act in ("kill head", "kill raylet", "turn off", "cut"):
        lost = range(fault.kind.machines) if fault.act == "kill head" else [fault.machine]
        for number in lost:
            job.machines.kill(number)
        for number in lost:
            job.cluster.begin(number)


def run(job: Job, fault: Fault, undisturbed: Any) -> Outcome:
    """Start a job, let the fault happen, look at what comes of it, and start it again where it failed."""
    outcome, troubles, began = Outcome(fault), list[str](), time.monotonic()
    job.start()
    while not job.reached(fault.phase, fault.epoch):
        if job.process.poll() is not None or time.monotonic() - began > _LONGEST_SECONDS:
            return Outcome(fault, what="it ended before the fault", troubles=tuple(job.said()[-5:]))
        time.sleep(0.002)
    time.sleep(fault.wait_seconds)
    outcome.at_seconds, struck = time.monotonic() - began, time.monotonic()
    strike(job, fault)
    before = ""
    while job.process.poll() is None and time.monotonic() - struck < _LONGEST_SECONDS:
        if not outcome.goes_on_seconds and job.restarted():
            before = before or job.steps() or " "
            if job.steps() not in ("", before):
                outcome.goes_on_seconds = time.monotonic() - struck
        time.sleep(0.05)
    if not job.wait(0):
        troubles.append("the command does not end")
        os.killpg(job.process.pid, signal.SIGKILL)
        job.wait(10)
    outcome.end_seconds = time.monotonic() - struck
    causes = [line for line in job.said() if line.startswith("error:")]
    outcome.what = "done" if job.process.returncode == 0 else " ".join(causes)[:200]
    if job.process.returncode and fault.act != "kill command" and len(causes) != 1:
        troubles.append(f"it said {causes or job.said()[-3:]}")
    if fault.act != "cut":  # whose machine cannot be told to end anything, and is given up
        troubles += job.left()
    if job.process.returncode:
        mend(job, fault)
        job.start()
        if not job.wait(_LONGEST_SECONDS) or job.process.returncode:
            troubles.append(f"the job that was started again failed: {job.said()[-3:]}")
        troubles += job.left()
    outcome.equal, outcome.troubles = job.metrics() == undisturbed, tuple(troubles)
    subprocess.run(["umount", str(job.folder / f"cache-{fault.machine}")], check=False, capture_output=True)
    return outcome


def show(outcome: Outcome) -> None:
    fault = outcome.fault
    print(
        f"{fault.number:2d} {fault.kind!s:34s} {fault.act:16s} {fault.machine} {fault.phase:11s} "
        f"{outcome.at_seconds:5.1f} {outcome.goes_on_seconds:6.1f} {outcome.end_seconds:6.1f}  "
        f"{'yes' if outcome.equal else 'NO':4s} {outcome.what}",
        flush=True,
    )
    for trouble in outcome.troubles:
        print(f"   TROUBLE {trouble}", flush=True)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="numbers of faults")
    parser.add_argument(
        "--work", type=Path, help="folder for homes and logs, kept: a call again goes on; default: a temporary one"
    )
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the machines go with it
    only = {int(number) for number in args.only.split(",") if number}
    faults = [fault for fault in draw(args.count, args.seed) if not only or fault.number in only]
    facts = machine()
    print_machine(facts)
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="graphmill-faults-") as scratch:
        folder = args.work or Path(scratch)
        undisturbed: dict[tuple[int, bool], Any] = {}
        print(" # job                                act        machine phase    second  on     end  equal what")
        for fault in faults:
            kind = fault.kind.machines, fault.kind.sparse
            if kind not in undisturbed:
                undisturbed[kind] = run_undisturbed(Kind(kind[0], True, kind[1]), folder)
            kept = folder / f"fault-{fault.number}.json"
            if kept.exists():
                outcomes.append(TypeAdapter(Outcome).validate_json(kept.read_bytes()))
            else:
                with Job(fault.kind, folder / f"fault-{fault.number}") as job:
                    outcomes.append(run(job, fault, undisturbed[kind]))
                kept.write_bytes(TypeAdapter(Outcome).dump_json(outcomes[-1]))
            show(outcomes[-1])
    keep(args, "faults", facts, results=[asdict(outcome) for outcome in outcomes])
    bad = [one for one in outcomes if one.troubles or not one.equal]
    print(f"{len(outcomes)} faults, {len(bad)} of them with trouble")
    return 1 if bad else 0


def run_undisturbed(kind: Kind, folder: Path) -> Any:
    """Return what a job without a fault measures, of an earlier call with this folder where there was one."""
    kept = folder / f"undisturbed-{kind.machines}-{kind.sparse}.json"
    if not kept.exists():
        with Job(kind, folder / "undisturbed") as job:
            job.start()
            if not job.wait(_LONGEST_SECONDS) or job.process.returncode:
                raise RuntimeError(f"the undisturbed job failed; see {job.log}")
            kept.write_text(json.dumps(job.metrics()))
    metrics = json.loads(kept.read_text())
    print(f"undisturbed, {kind}: {metrics['test']}", flush=True)
    return metrics


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace")
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
