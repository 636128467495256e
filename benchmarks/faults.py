"""Random faults in jobs over several machines: what becomes of the job, of its metrics, and of what it leaves.

    python -m benchmarks.faults [--count 20] [--seed 1] [--only 3,7]

Machines are network namespaces of this one (root, `ip` and control groups are needed), with one rank of one thread
each, and one home that all see, or one each. Every fault falls on a job of its own, `graphmill run` on each machine, at
a random moment of a random phase: a rank, what starts the ranks, or the command itself is killed (SIGKILL); a whole
machine is turned off, and its command started again after some seconds, or never (one that comes too late for the
others waits for these to be started again); a machine's network is cut for five seconds, or for ever.

What must hold: the job ends with the metrics of an undisturbed one, or all commands that live end with one line that
says why, within a minute of the fault; nothing runs on or lies about after that; and the same commands, started again,
come to the same metrics. Where each machine has a home of its own, `joining` begins when they have heard of each other:
who waits for a machine that it has never heard of waits for ten minutes. Metrics are equal to the last bit with two
machines, and to `--tolerance` with three, where sums over ranks may be taken in another order.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.faults_job import EPOCHS, PHASES, Job, Kind
from benchmarks.gnn_report import keep, machine, print_machine

RESULTS = Path(__file__).parent / "results"
ACTS = ("kill rank", "kill launcher", "kill command", "turn off", "turn off and on", "cut 5 s", "cut")
KINDS = (Kind(2, True, False), Kind(2, True, True), Kind(2, False, True), Kind(3, True, True), Kind(2, False, False))
_WORDS = {
    "kill rank": ("tasks.train.worker", "tasks.supervise"),
    "kill launcher": ("tasks.train.ranks.one_machine", "tasks.train.ranks.torchrun"),
    "kill command": ("flows.cli",),
}
_LAST_SECONDS = 60.0
"""After the fault, for commands that cannot go on."""
_WHOLE_SECONDS = 400.0
"""For a job that goes on."""


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
    back_seconds: float
    """Until a machine is turned on again."""


@dataclass
class Outcome:
    """What became of a job."""

    fault: Fault
    phase: str = ""
    """That the job was in."""
    at_seconds: float = 0.0
    end_seconds: float = 0.0
    """From the fault to the end of the last command."""
    what: str = ""
    equal: bool | None = None
    again_equal: bool | None = None
    resumed_from: int = 0
    troubles: tuple[str, ...] = ()


def draw(count: int, seed: int) -> list[Fault]:
    """Draw faults: every act and phase comes up about equally often."""
    rng = random.Random(seed)

    def shuffled(values: Any) -> list[Any]:
        rounds = -(-count // len(values))
        return [value for _ in range(rounds) for value in rng.sample(list(values), len(values))][:count]

    columns = zip(shuffled(ACTS), shuffled(PHASES), shuffled(KINDS), strict=True)
    return [
        Fault(
            number,
            kind,
            act,
            rng.randrange(kind.machines),
            phase,
            rng.randint(1, EPOCHS - 2),
            rng.random() * (4.0 if phase in ("joining", "evaluation") else 0.3),
            rng.uniform(2.0, 8.0),
        )
        for number, (act, phase, kind) in enumerate(columns)
    ]


def victims(job: Job, fault: Fault) -> list[int]:
    """Return the processes that are to be killed."""
    words = _WORDS[fault.act]
    found = []
    for pid, arguments in job.machines.machines[fault.machine].running().items():
        module = arguments[arguments.index("-m") + 1] if "-m" in arguments else ""
        if Path(arguments[0]).name.startswith("python") and module in words:
            found.append(pid)
    return found


def strike(job: Job, fault: Fault) -> None:
    """Let the fault happen."""
    machines = job.machines
    if fault.act.startswith("kill"):
        until = time.monotonic() + 10
        while not (found := victims(job, fault)) and time.monotonic() < until:
            time.sleep(0.01)
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    elif fault.act.startswith("turn off"):
        machines.kill(fault.machine)
    else:
        machines.tell_network(f"cut {fault.machine}")


def after(job: Job, fault: Fault) -> None:
    """What comes some seconds later."""
    if fault.act == "turn off and on":
        time.sleep(fault.back_seconds)
        job.start(fault.machine)
    elif fault.act == "cut 5 s":
        time.sleep(5.0)
        job.machines.tell_network(f"mend {fault.machine}")


def equal(found: list[Any], wanted: Any, kind: Kind, tolerance: float) -> bool:
    """Whether each home has the metrics of an undisturbed job."""
    if len(found) != (1 if kind.shared_home else kind.machines):
        return False
    if kind.machines == 2:
        return all(one == wanted for one in found)
    return all(
        abs(one[split][name] - value) <= tolerance
        for one in found
        for split, values in wanted.items()
        for name, value in values.items()
    )


def causes(job: Job, number: int) -> list[str]:
    """Return the lines that say why a machine's command ended."""
    return [line for line in job.said(number) if line.startswith(("error:", "terminated", "interrupted"))]


def run(job: Job, fault: Fault, wanted: Any, tolerance: float) -> Outcome:
    """Start a job, let the fault happen, look at what comes of it, and start it again where it failed."""
    outcome, troubles = Outcome(fault), []
    began = time.monotonic()
    job.start_all()
    while not job.reached(fault.phase, fault.epoch):
        if job.wait(time.monotonic() + 0.002) or time.monotonic() - began > _WHOLE_SECONDS:
            return Outcome(fault, what="it ended before the fault", troubles=tuple(map(str, job.codes())))
    time.sleep(fault.wait_seconds)
    outcome.phase, outcome.at_seconds = job.phase(), time.monotonic() - began
    struck = time.monotonic()
    strike(job, fault)
    after(job, fault)
    returned = fault.machine if fault.act == "turn off and on" else None
    ended = job.wait(struck + _WHOLE_SECONDS, returned)
    outcome.end_seconds = time.monotonic() - struck
    if not ended:
        troubles.append(f"still running: {job.left_running(0.1)}")
        for number in range(fault.kind.machines):
            job.machines.kill(number)
    codes = job.codes()
    killed = {fault.machine} if fault.act in ("turn off", "kill command") else set()
    if returned is not None and codes[returned] is None:
        killed = {returned}  # it came too late, and waits for the others, which a scheduler starts again
    done = codes[0] == 0 and not [code for number, code in enumerate(codes) if code and number not in killed]
    if done:
        outcome.what = "went on" if not job.restarted() else "went on, restarted"
        outcome.equal = equal(job.metrics(), wanted, fault.kind, tolerance) if not killed else None
    else:
        outcome.what = "; ".join(f"{n}: {' '.join(causes(job, n))[:150]}" for n in range(len(codes)) if n not in killed)
        troubles += [
            f"machine {number} ended with {code} and said {causes(job, number)}"
            for number, code in enumerate(codes)
            if number not in killed and (not code or len(causes(job, number)) != 1)
        ]
        if outcome.end_seconds > _LAST_SECONDS:
            troubles.append(f"ended {outcome.end_seconds:.0f} s after the fault")
    if None not in codes:
        troubles += job.left_running()
        troubles += job.left_behind(finished=done and not killed and fault.act != "turn off and on")
    if not done or killed:
        outcome.again_equal = start_again(job, fault, wanted, tolerance, outcome, troubles)
    outcome.troubles = tuple(troubles)
    return outcome


def start_again(job: Job, fault: Fault, wanted: Any, tolerance: float, outcome: Outcome, troubles: list[str]) -> bool:
    """Start the same commands again, on machines that are well; return whether the metrics are the same."""
    had = job.has_checkpoint()
    job.machines.tell_network(f"mend {fault.machine}")
    job.start_all()
    if not job.wait(time.monotonic() + _WHOLE_SECONDS):
        troubles.append("the job that was started again does not end")
        return False
    if any(job.codes()):
        troubles.append(
            f"the job that was started again failed: {[causes(job, n) for n in range(fault.kind.machines)]}"
        )
    outcome.resumed_from = job.resumed_from()
    if had and not outcome.resumed_from and not job.took_finished():
        troubles.append("the job that was started again began afresh")
    troubles += job.left_running() + job.left_behind(finished=True)
    return equal(job.metrics(), wanted, fault.kind, tolerance)


def show(outcome: Outcome) -> None:
    fault = outcome.fault
    good = {None: "-", True: "yes", False: "NO"}
    same = f"{good[outcome.equal]:4s} {good[outcome.again_equal]:4s}"
    print(
        f"{fault.number:2d} {fault.kind!s:36s} {fault.act:16s} {fault.machine} {outcome.phase:11s} "
        f"{outcome.at_seconds:5.1f} {outcome.end_seconds:6.1f}  {same} "
        f"{outcome.resumed_from:3d}  {outcome.what}",
        flush=True,
    )
    for trouble in outcome.troubles:
        print(f"   TROUBLE {trouble}", flush=True)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="numbers of faults")
    parser.add_argument("--tolerance", type=float, default=0.01)
    parser.add_argument("--work", type=Path, help="folder for homes and logs, kept; default: a temporary one")
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
        undisturbed: dict[tuple[int, bool], tuple[Path, Any]] = {}
        for kind in {fault.kind.trained: fault.kind for fault in faults}.values():
            undisturbed[kind.trained] = run_undisturbed(kind, folder)
        print(
            " # job                                  fault     machine phase      second    end  equal again from  what"
        )
        for fault in faults:
            home, wanted = undisturbed[fault.kind.trained]
            with Job(fault.kind, folder / f"fault-{fault.number}", home) as job:
                outcomes.append(run(job, fault, wanted, args.tolerance))
            show(outcomes[-1])
    keep(args, "faults", facts, results=[asdict(outcome) for outcome in outcomes])
    bad = [one for one in outcomes if one.troubles or one.equal is False or one.again_equal is False]
    print(f"{len(outcomes)} faults, {len(bad)} of them with trouble")
    return 1 if bad else 0


def run_undisturbed(kind: Kind, folder: Path) -> tuple[Path, Any]:
    """Run a job without a fault, unless one was run in this folder before; return its home, and what it measured."""
    one = Kind(kind.machines, True, kind.sparse)
    place = folder / f"undisturbed-{kind.machines}-{kind.sparse}"
    if not (place / "metrics.json").exists():
        with Job(one, place) as job:
            began = time.monotonic()
            job.start_all()
            if not job.wait(time.monotonic() + _WHOLE_SECONDS) or any(job.codes()):
                raise RuntimeError(f"the undisturbed job failed: {job.codes()}; see {job.log(0)}")
            print(f"undisturbed, {one}: {time.monotonic() - began:.0f} s", flush=True)
            (place / "metrics.json").write_text(json.dumps(job.metrics()[0]))
    metrics = json.loads((place / "metrics.json").read_text())
    print(f"undisturbed, {one}: {metrics['test']}", flush=True)
    return place / "home-0", metrics


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
