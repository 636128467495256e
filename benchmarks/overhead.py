"""What the daily commands cost, and what graphmill and Prefect add to the stages' own work.

    python -m benchmarks.overhead [--recipe quickstart] [--rounds 5] [--without-services] [--commands-only]

Commands are told in CPU seconds of all their processes, as multiples of what `import torch` takes on the same machine
in the same round, and with the seconds until the first of their output: so another machine, or one that is shared,
tells the same. Each round calls every command once.

Then each round runs the recipe in a new home, once more under another seed (databases are there, all stages but the
first do their work), and once more as it was (all is cached). Then, with `graphmill up` in that home, the last two
again from the command line and through the worker, where a run begins when it is due. As a floor, the time that Python
takes to import Prefect. These are wall-clock seconds less the sum of the stages', and want an idle machine. Medians go
to benchmarks/results/overhead.json too.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import requests

from benchmarks.gnn_report import machine, print_machine

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).parent / "results"
NEW, AGAIN, CACHED = "new home", "another seed", "all cached"
FLOOR = "python -c 'import prefect'"


COMMANDS = {
    "recipes": 0.3,
    "datasets": 0.3,
    "models": 0.3,
    "show {recipe}": 0.3,
    "runs": 0.3,
    "versions": 0.3,
    "plan {recipe}": 0.5,
    "plan {recipe} train.learning_rate=0.0123": 0.5,
    "run {recipe}": 2.0,
    "predict --model {recipe}@champion --output {home}/predictions.parquet": 4.0,
    "export embeddings --model {recipe}@champion --output {home}/vectors.npy": 4.0,
}
"""Command to its goal, in multiples of `import torch`; the home has run the recipe."""
WITH_SERVICES = {"run {recipe}": 1.2, "versions": 0.3}
"""The same with `graphmill up` in the home."""


class Call(NamedTuple):
    """One call of a command."""

    cpu: float
    """Seconds of user and system time, child processes included."""
    wall: float
    first: float
    """Seconds until the first output; of a command without any, until its end."""


class Took(NamedTuple):
    """One run."""

    wall: float
    stages: float
    """Sum of what its stages took, seconds."""

    @property
    def added(self) -> float:
        """What came on top."""
        return self.wall - self.stages


def graphmill(home: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "flows.cli", *arguments, "--home", str(home)]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    return done.stdout


def call(command: list[str]) -> Call:
    """Call a command to its end."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with subprocess.Popen(
        command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout is not None
        said = process.stdout.read(1)
        first = time.perf_counter() - began
        said += process.stdout.read()
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}:\n{said.decode()}")
    return Call(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall, first)


def measure_commands(home: Path, recipe: str, rounds: int, commands: dict[str, float]) -> list[dict[str, Any]]:
    """Call each command once a round, `import torch` first of all; returns medians and what they are multiples of."""
    calls: dict[str, list[Call]] = {}
    torch = []
    for _ in range(rounds):
        torch.append(call([sys.executable, "-c", "import torch"]).cpu)
        for text in commands:
            words = text.format(recipe=recipe, home=home).split()
            at_home = [] if words[0] in ("recipes", "datasets", "models", "show") else ["--home", str(home)]
            calls.setdefault(text, []).append(call([sys.executable, "-m", "flows.cli", *words, *at_home]))
    unit = statistics.median(torch)
    records = []
    for text, goal in commands.items():
        cpu, wall, first = (statistics.median(values) for values in zip(*calls[text], strict=True))
        records.append({"command": text, "cpu": cpu, "torch": cpu / unit, "goal": goal, "wall": wall, "first": first})
    return [{"command": "import torch", "cpu": unit, "torch": 1.0}, *records]


def commands_table(records: list[dict[str, Any]]) -> str:
    """Return the commands as a table."""
    rows = ["| command | CPU | of import torch | goal | first output | wall |", "|---|--:|--:|--:|--:|--:|"]
    for one in records:
        goal, first, wall = (f"{one[key]:.2f}" if key in one else "" for key in ("goal", "first", "wall"))
        rows.append(f"| {one['command']} | {one['cpu']:.2f} s | {one['torch']:.2f} | {goal} | {first} | {wall} |")
    return "\n".join(rows)


def all_commands(recipe: str, rounds: int, with_services: bool) -> dict[str, list[dict[str, Any]]]:
    """Measure the commands in a home that has run the recipe, without services and with them."""
    with tempfile.TemporaryDirectory(prefix="graphmill-overhead-") as folder:
        home = Path(folder) / "home"
        graphmill(home, "run", recipe)
        found = {"commands": measure_commands(home, recipe, rounds, COMMANDS)}
        if with_services:
            with services(home):
                found["commands, services up"] = measure_commands(home, recipe, rounds, WITH_SERVICES)
    return found


def environment() -> dict[str, str]:
    """The user's own servers are not asked."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "MLFLOW_"))}
    return {**own, "PYTHONPATH": str(ROOT)}


def run(home: Path, recipe: str, seed: int) -> Took:
    """Run from the command line."""
    began = time.perf_counter()
    found = json.loads(graphmill(home, "run", recipe, f"seed={seed}", "--json").splitlines()[-1])
    return Took(time.perf_counter() - began, sum(stage["seconds"] for stage in found["stages"]))


def run_deployed(home: Path, prefect: str, name: str, seed: int) -> Took:
    """Run through the worker; seconds from when the run is due to when the server knows its end."""
    deployment = requests.post(
        f"{prefect}/api/deployments/filter", json={"deployments": {"name": {"any_": [name]}}}, timeout=30
    ).json()[0]
    asked = requests.post(
        f"{prefect}/api/deployments/{deployment['id']}/create_flow_run",
        json={"state": {"type": "SCHEDULED"}, "parameters": {"overrides": [f"seed={seed}"]}},
        timeout=30,
    )
    asked.raise_for_status()
    identity = asked.json()["id"]
    while True:
        found = requests.get(f"{prefect}/api/flow_runs/{identity}", timeout=30).json()
        if found["state_type"] in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED"):
            break
        time.sleep(0.5)
    if found["state_type"] != "COMPLETED":
        raise SystemExit(f"{found['name']} ended as {found['state_type']}: {found['state']['message']}")
    times = [datetime.datetime.fromisoformat(found[key]) for key in ("expected_start_time", "end_time")]
    record = json.loads((home / "runs" / f"{identity}.json").read_text())
    stages = sum(stage["seconds"] for stage in record["stages"].values())
    return Took((times[1] - times[0]).total_seconds(), stages)


@contextmanager
def services(home: Path) -> Iterator[str]:
    """Bring the services up; yields the address of Prefect's server."""
    try:
        graphmill(home, "up")
        yield json.loads(graphmill(home, "status", "--json"))["prefect_url"]
    finally:
        graphmill(home, "down")


def measure(recipe: str, rounds: int, with_services: bool) -> dict[str, list[Took]]:
    """Return what the runs of each case took."""
    took: dict[str, list[Took]] = {}

    def note(case: str, one: Took) -> None:
        took.setdefault(case, []).append(one)
        print(f"{case:<34} {one.wall:6.2f} s, stages {one.stages:6.2f} s, added {one.added:6.2f} s", flush=True)

    with tempfile.TemporaryDirectory(prefix="graphmill-overhead-") as folder:
        for number in range(rounds):
            home = Path(folder) / f"home{number}"
            note(NEW, run(home, recipe, 0))
            note(AGAIN, run(home, recipe, 1))
            note(CACHED, run(home, recipe, 1))
            note(FLOOR, Took(seconds_of([sys.executable, "-c", "import prefect"]), 0.0))
        if with_services:
            with services(home) as prefect:
                graphmill(home, "deploy", recipe, "--name", "overhead")
                for seed in range(2, 2 + rounds):
                    note(f"{AGAIN}, services up", run(home, recipe, 10 * seed))
                    note(f"{CACHED}, services up", run(home, recipe, 10 * seed))
                    note(f"{AGAIN}, through the worker", run_deployed(home, prefect, "overhead", 10 * seed + 1))
                    note(f"{CACHED}, through the worker", run_deployed(home, prefect, "overhead", 10 * seed + 1))
    return took


def seconds_of(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, env=environment(), capture_output=True)
    return time.perf_counter() - began


def table(took: dict[str, list[Took]]) -> tuple[list[dict[str, Any]], str]:
    """Return medians as records and as a table."""
    records, rows = [], ["| run | wall | its stages | added |", "|---|--:|--:|--:|"]
    for case, runs in took.items():
        values = {name: [getattr(one, name) for one in runs] for name in ("wall", "stages", "added")}
        wall, stages, added = (statistics.median(found) for found in values.values())
        records.append({"case": case, "wall": wall, "stages": stages, "added": added, "runs": len(runs)})
        rows.append(f"| {case} | {wall:.2f} s | {stages:.2f} s | {added:.2f} s |")
    return records, "\n".join(rows)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="quickstart")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--without-services", action="store_true")
    parser.add_argument("--commands-only", action="store_true")
    options = parser.parse_args()
    facts = machine()
    print_machine(facts)
    commands = all_commands(options.recipe, options.rounds, not options.without_services)
    for title, found in commands.items():
        print(f"\n{title}\n\n{commands_table(found)}", flush=True)
    records: list[dict[str, Any]] = []
    if not options.commands_only:
        records, text = table(measure(options.recipe, options.rounds, not options.without_services))
        print(f"\n{text}")
    RESULTS.mkdir(exist_ok=True)
    content = {"machine": facts, "options": vars(options), **commands, "records": records}
    (RESULTS / "overhead.json").write_text(json.dumps(content, indent=1))


if __name__ == "__main__":
    main()
