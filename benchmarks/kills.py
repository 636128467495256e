"""Kill jobs of the newer families at random moments: results equal to the bit, and nothing left behind.

    unshare -m bash -c 'mount -t tmpfs none /dev/shm; python -m benchmarks.kills [--count 60] [--seed 1] [--jobs ...]'

Each job runs undisturbed once. Then it is killed up to three times, each at a random moment of what an undisturbed run
takes: SIGKILL to the command or to a random one of its processes, SIGTERM or SIGINT to the command. After that the same
command is given and has to end well. Equal are the sha256 of all files of all artifacts and of all outputs, the weights
and the metrics. What is left is what an undisturbed run does not leave: processes, files and folders of other names
(numbers and digests apart) in the home, beside outputs, among temporary files and in /dev/shm, locks that are held, and
records, flow runs and MLflow runs that still run. Processes are forks of one that has imported the libraries, so that
moments fall upon the work. `unshare` (root) gives a /dev/shm of the benchmark's own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.gnn_report import keep, machine, print_machine
from flows.records.run_record import all_runs
from tasks.storage.artifacts import file_digest, is_locked
from tasks.storage.home import Home
from tasks.train.job import LAST, METRICS
from tests.flows.conftest import command, environment
from tests.flows.test_crashes import weights_digest
from tests.flows.test_kills import GONE_SECONDS, processes_of
from tests.flows.test_recipes_run import write_people
from tests.warm_python import forked_processes

ACTS = ("SIGKILL",) * 4 + ("SIGKILL of a process",) * 3 + ("SIGTERM", "SIGINT")
_SMALL = ("train.device=cpu", "train.threads=1", "tracking.system_metrics=false")
_OFTEN = "train.checkpoint_minutes=0.005"
_MODEL = ("-m", "people@1")
JOBS: dict[str, tuple[str, ...]] = {
    "relational": (
        *("run", "shop", "dataset.num_customers=200", "dataset.num_products=40", "dataset.reviews_a_quarter=150"),
        *("train.epochs=4", "train.checkpoint_every=1", "train.loader.fanout=[4,4,4]", "model.hidden_dim=16", *_SMALL),
    ),
    "knowledge": (  # the memory is less than the blocks take, so they lie in files
        *("run", "knowledge-graph", "dataset.num_entities=1500", "dataset.num_triples=20000", "model.dim=32"),
        *("train.epochs=40", "train.strategy.blocks=4", "train.strategy.memory=120000", *_SMALL, _OFTEN),
    ),
    "layout": (
        *("layout", "largevis", "dataset.num_rows=3000", *_SMALL, _OFTEN),
        *("-o", "map.html", "-o", "points.parquet"),
    ),
    "keep-layers": (
        *("predict", *_MODEL, "people.yaml", "snapshot.as_of=2024", "--keep-layers", "-o", "predictions.parquet"),
    ),
    "embeddings": ("export", "embeddings", *_MODEL, "-o", "vectors.npy"),
    "model": ("export", "model", *_MODEL, "-o", "model"),
    "safetensors": ("export", "model", *_MODEL, "-o", "model.safetensors"),
    "graph": ("export", "graph", "people.yaml", "snapshot.as_of=2024", "--format", "pyg", "-o", "graph.pt"),
}
PREPARING = (
    ("run", "people.yaml", "snapshot.as_of=2023-06", "train.threads=1"),
    ("predict", *_MODEL, "people.yaml", "snapshot.as_of=2023-06", "--keep-layers", "-o", "first.parquet"),
)
"""What a home has been given before jobs that use a model: a registered one, and its graph's layers."""
_TOLD = {
    "prefect/prefect.db": "select name from flow_run where state_type in ('RUNNING', 'PENDING')",
    "mlflow/mlflow.db": "select name from runs where status = 'RUNNING' union "
    "select 'version ' || version || ' of ' || name from model_versions",
}
_NUMBERS = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{5,}|\d+")
_WAIT_SECONDS = 900


@dataclass(frozen=True)
class Place:
    """The folder of a job, of the same name each time: records and MLflow's store hold it."""

    folder: Path

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def begin(self, prepared: Path | None) -> None:
        """Empty it, or make it what was prepared."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if prepared is not None:
            shutil.copytree(prepared, self.folder, symlinks=True)
        (self.folder / "temporary").mkdir(parents=True, exist_ok=True)

    def start(self, arguments: tuple[str, ...]) -> subprocess.Popen[bytes]:
        """Start a command; what it says is in said.txt."""
        with (self.folder.parent / "said.txt").open("ab") as said:
            said.write(f"\n--- {' '.join(arguments)}\n".encode())
            said.flush()
            return subprocess.Popen(
                command(self.home, *arguments),
                env={**environment(), "TMPDIR": str(self.folder / "temporary")},
                cwd=self.folder, stdout=said, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def finish(self, arguments: tuple[str, ...]) -> float:
        """Run a command to its end, which has to be a good one; returns seconds."""
        began = time.monotonic()
        if code := self.start(arguments).wait(_WAIT_SECONDS):
            raise RuntimeError(f"graphmill {' '.join(arguments)} ended with {code}; see {self.folder.parent}/said.txt")
        return time.monotonic() - began

    def results(self) -> dict[str, Any]:
        """Digests, weights and metrics of all artifacts and outputs; not what tells times, as a report does."""
        results: dict[str, Any] = {}
        for path in self.home.glob("artifacts/*/*/manifest.json"):
            manifest, stage = json.loads(path.read_text()), path.parent.parent.name
            if stage == "publish":
                continue
            # An evaluation's key follows from its training's journal, which tells seconds.
            name = stage if stage == "evaluate" else f"{stage}/{path.parent.name}"
            for file, entry in manifest["files"].items():
                digest = file_digest(path.parent / file)
                if digest != entry["sha256"]:
                    results[f"{name}/{file} is damaged"] = digest
                if file not in (METRICS, LAST):
                    results[f"{name}/{file}"] = digest
                elif file == LAST:
                    results[f"{name}/{file}"] = weights_digest(path.parent / file)
            results[f"{name} metrics"] = manifest.get("metrics") or manifest.get("best_metric")
        outputs = [path for path in self.folder.rglob("*") if path.is_file() and self.home not in path.parents]
        return results | {str(path.relative_to(self.folder)): file_digest(path) for path in outputs}

    def left(self) -> set[str]:
        """What lies here, by names without their numbers and digests, and what still runs."""
        names = {_NUMBERS.sub("#", str(path.relative_to(self.folder))) for path in self.folder.rglob("*")}
        # A rerun may have looked at what the killed run registered: a copy as after any comparison.
        names = {name for name in names if not name.startswith(("home/downloads", "home/locks/model-"))}
        names |= {str(path) for path in Path("/dev/shm").iterdir()}
        names |= {f"{lock.name} is held" for lock in self.home.glob("locks/*.lock") if is_locked(lock)}
        names |= {f"a record of {run.recipe} runs" for run in all_runs(Home(self.home)) if run.status == "running"}
        for database, query in _TOLD.items():
            with contextlib.closing(sqlite3.connect(self.home / database)) as opened:
                names |= {f"{name} in {database}" for (name,) in opened.execute(query)}
        return names

    def processes_left(self) -> set[str]:
        """Wait a little, and return the processes that are still there."""
        until = time.monotonic() + GONE_SECONDS
        while (left := processes_of(self.folder)) and time.monotonic() < until:
            time.sleep(0.2)
        return {" ".join(one.cmdline()) for one in left}


def kill(place: Place, arguments: tuple[str, ...], seconds: float, rng: random.Random) -> tuple[str, bool]:
    """Give the command and kill it; returns what was done, empty if nothing, and whether the command ended well."""
    act, delay = rng.choice(ACTS), rng.uniform(0.05, seconds)
    process = place.start(arguments)
    with contextlib.suppress(subprocess.TimeoutExpired):
        return "", process.wait(delay) == 0
    others = [one for one in processes_of(place.folder) if one.pid != process.pid]
    if act.endswith("process") and others:
        victim = rng.choice(others)
        with contextlib.suppress(psutil.NoSuchProcess):
            victim.kill()
    else:
        process.send_signal(signal.Signals[act.split()[0]])
    return f"{act} at {delay:.1f} s", process.wait(_WAIT_SECONDS) == 0


def killed(name: str, place: Place, prepared: Path | None, count: int, rng: random.Random) -> list[dict[str, Any]]:
    """Kill a job `count` times; returns what became of it, three kills at most in a row."""
    arguments, outcomes = JOBS[name], []
    place.begin(prepared)
    seconds = place.finish(arguments)
    calm, calm_left = place.results(), place.left()
    print(f"{name}: undisturbed in {seconds:.0f} s, {len(calm)} digests and metrics", flush=True)
    while count > 0:
        place.begin(prepared)
        kills, left, ended = [], set[str](), False
        while len(kills) < min(3, count) and not ended:
            done, ended = kill(place, arguments, seconds, rng)
            kills += [done] if done else []
            left |= place.processes_left()
        count -= len(kills)
        if not kills:
            seconds *= 0.8  # the machine is less busy now
            continue
        place.finish(arguments)
        results = place.results()
        unequal = sorted(key for key in calm.keys() | results.keys() if calm.get(key) != results.get(key))
        left |= place.processes_left() | (place.left() - calm_left)
        outcomes.append({"job": name, "kills": kills, "unequal": unequal, "left": sorted(left)})
        print(f"{name}: {', '.join(kills)}: {unequal or 'equal'}, {sorted(left) or 'nothing left'}", flush=True)
    return outcomes


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60, help="kills of all jobs together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", default=",".join(JOBS), help="names of jobs")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args(arguments)
    names, facts, outcomes = args.jobs.split(","), machine(), []
    print_machine(facts)
    with tempfile.TemporaryDirectory(prefix="graphmill-kills-") as scratch, forked_processes():
        place, prepared = Place(Path(scratch) / "place"), Path(scratch) / "prepared"
        place.begin(None)
        place.finish(("recipes",))  # now the libraries are imported
        if any("run" != JOBS[name][0] != "layout" for name in names):
            write_people(place.folder)
            for step in PREPARING:
                place.finish(step)
            shutil.copytree(place.folder, prepared, symlinks=True)
        for number, name in enumerate(names):
            share, base = (args.count + number) // len(names), None if JOBS[name][0] in ("run", "layout") else prepared
            outcomes += killed(name, place, base, share, random.Random(f"{args.seed} {name}"))
    print(f"{'job':12s} kills  equal  not equal  left behind")
    for name in names:
        rows = [one for one in outcomes if one["job"] == name]
        kills = sum(len(one["kills"]) for one in rows)
        unequal, left = (sum(len(one["kills"]) for one in rows if one[what]) for what in ("unequal", "left"))
        print(f"{name:12s} {kills:5d} {kills - unequal:6d} {unequal:10d} {left:12d}")
    keep(args, "kills", facts, results=outcomes)
    return 1 if any(one["unequal"] or one["left"] for one in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
