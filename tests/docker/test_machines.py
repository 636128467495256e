"""A Ray cluster of three containers: file systems and networks of their own, and no folder that two of them see."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import SHARED_DATA
from tests.docker.engine import CONFINED, ENVIRONMENT, assert_equal, epochs, in_containers, own_image, podman, wait_for
from tests.needs import skip_without

pytestmark = pytest.mark.slow
_RANKS = ("train.num_ranks=3", "train.threads=1")
_TWO = ("/data/parts.yaml", "train.num_ranks=2")  # to the last bit, also where they go on from a checkpoint
_UNTIL_EVALUATED = ("--only", "ingest,preprocess,components,partition,train,evaluate")
IN_PARTS: dict[str, Any] = {
    "name": "parts",
    "dataset": {"name": "synthetic", "num_nodes": 6000, "num_edges": 40000, "num_classes": 8, "feature_dim": 16},
    "components": {"keep": "all"},
    "partition": {"name": "metis", "num_parts": 6, "machines": 3},
    "model": {"name": "graphsage", "hidden_dim": 32, "num_layers": 2},
    "train": {
        "strategy": "partitioned",
        "loader": {"name": "neighbor", "fanout": [5, 5], "batch_size": 128},
        "epochs": 150,
        "device": "cpu",
        "checkpoint_minutes": 0.02,
    },
    "evaluate": {"predictions": False},
    "tracking": {"system_metrics": False},
}


class Machines:
    """Containers n0, n1 and n2, whose engine starts them again when they end; a context."""

    def __init__(self, image: str) -> None:
        self.image = image

    def _start(self, number: int, command: str, *options: str) -> None:
        name = f"gmtest-n{number}"
        own = ("--shm-size=1g", "--restart=always", "--network=gmtest", f"--volume={name}:/data")
        words = (*CONFINED, *own, *options, self.image, "graphmill", "cluster", *command.split(), "--block", "--cpus=1")
        podman("run", "--detach", f"--name={name}", f"--hostname=n{number}", *words)

    def __enter__(self) -> Machines:
        self._remove()
        podman("network", "create", "gmtest")
        data = [f"--volume={SHARED_DATA}:/input:ro", "--env=GRAPHMILL_DATA=/input"] if SHARED_DATA.is_dir() else []
        self._start(0, "start", *data)
        where = podman("volume", "inspect", "--format={{.Mountpoint}}", "gmtest-n0").stdout.strip()
        self.data = Path(where)
        token = self.data / "cluster" / "token"
        wait_for(token.exists)
        podman("secret", "create", "gmtest-token", str(token))
        for number in (1, 2):
            self._start(number, "join gmtest-n0:6379", "--secret=gmtest-token,type=env,target=RAY_AUTH_TOKEN")
        self.wait_until_whole()
        return self

    def __exit__(self, *error: object) -> None:
        self._remove()

    def _remove(self) -> None:
        names = [f"gmtest-n{number}" for number in range(3)]
        podman("rm", "--force", "--time=5", *names, ok=None)
        podman("volume", "rm", "--force", *names, ok=None)
        podman("network", "rm", "--force", "gmtest", ok=None)
        podman("secret", "rm", "gmtest-token", ok=None)

    def wait_until_whole(self) -> None:
        def whole() -> bool:
            asked = podman("exec", "gmtest-n0", "graphmill", "cluster", "status", "--json", ok=None)
            return asked.returncode == 0 and len(json.loads(asked.stdout.splitlines()[-1])["machines"]) == 3

        wait_for(whole)

    def kill(self, number: int) -> None:
        """Kill a container's first process, and so all of it; the engine starts it again."""
        found = podman("inspect", "--format={{.State.Pid}}", f"gmtest-n{number}")
        os.kill(int(found.stdout), signal.SIGKILL)

    def start_run(self, home: str, *words: str) -> subprocess.Popen[str]:
        """Begin a run in a home of its own, that is in the cluster as the machine's is."""
        make = f"mkdir -p /data/{home} && cp -rpT /data/cluster /data/{home}/cluster"
        podman("exec", "gmtest-n0", "sh", "-c", make)
        command = ["podman", "exec", f"--env=GRAPHMILL_HOME=/data/{home}", "gmtest-n0", "graphmill", "run", words[0]]
        options: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "env": ENVIRONMENT}
        return subprocess.Popen([*command, *_RANKS, *words[1:], *_UNTIL_EVALUATED], **options)

    def run(self, home: str, *words: str) -> str:
        process = self.start_run(home, *words)
        said, _ = process.communicate(timeout=1500)
        assert process.returncode == 0, said[-6000:]
        return said

    def counted(self, home: str, what: str) -> int:
        """Return a number of a training's manifest."""
        (manifest,) = (self.data / home).glob("artifacts/train/*/manifest.json")
        (number,) = re.findall(rf'"{what}": (\d+)', manifest.read_text())
        return int(number)

    def assert_equal(self, one: str, other: str) -> None:
        assert_equal(self.data / one, self.data / other)
        ask = (
            ["exec", f"--env=GRAPHMILL_HOME=/data/{home}", "gmtest-n0", "graphmill", "runs"] for home in (one, other)
        )
        ours, theirs = (json.loads(podman(*words, "--json").stdout.splitlines()[-1])["runs"][0] for words in ask)
        assert ours["metrics"] == theirs["metrics"]


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    with Machines(own_image()) as machines:
        yield machines


@in_containers
def test_quickstart(machines: Machines) -> None:
    machines.run("quickstart", "quickstart", "--cluster", "auto")
    machines.run("quickstart-alone", "quickstart")
    machines.assert_equal("quickstart", "quickstart-alone")


@in_containers
@pytest.mark.parametrize("strategy", ["data_parallel", "partitioned"])
def test_debdeps(machines: Machines, strategy: str) -> None:
    skip_without("debdeps", (SHARED_DATA / "ogb" / "ogbn_debdeps").is_dir())
    small = ("model.hidden_dim=64", "model.num_layers=2", "train.loader.fanout=[5,5]", "train.epochs=1")
    parts = ("partition.num_parts=3", "partition.machines=3", f"train.strategy={strategy}")
    recipe = ("/app/benchmarks/recipes/debdeps.yaml", *small, *parts)
    machines.run(strategy, *recipe, "--cluster", "auto")
    machines.run(f"{strategy}-alone", *recipe)
    machines.assert_equal(strategy, f"{strategy}-alone")


@pytest.fixture(scope="module")
def undisturbed(machines: Machines) -> str:
    (machines.data / "parts.yaml").write_text(yaml.safe_dump(IN_PARTS))
    machines.run("undisturbed", *_TWO, "--cluster", "auto")
    machines.run("alone", *_TWO)
    machines.assert_equal("undisturbed", "alone")
    return "undisturbed"


PHASES: dict[str, Callable[[Path], Any]] = {
    "preprocess": lambda home: list(home.glob("work/preprocess-*")),
    "train": lambda home: epochs(home) >= 3,
    "evaluate": lambda home: list(home.glob("work/evaluate-*")),
}


@in_containers
@pytest.mark.parametrize("phase", PHASES)
def test_a_container_is_killed(machines: Machines, undisturbed: str, phase: str) -> None:
    home = f"lost-in-{phase}"
    process = machines.start_run(home, *_TWO, "--cluster", "auto", "cluster.wait_minutes=5")
    wait_for(lambda: process.poll() is not None or PHASES[phase](machines.data / home))
    machines.kill(1)
    said, _ = process.communicate(timeout=1500)
    assert process.returncode == 0, said[-6000:]
    assert machines.counted(home, "restarts") == (phase == "train")
    machines.assert_equal(home, undisturbed)
    machines.wait_until_whole()


@in_containers
def test_the_head_is_killed(machines: Machines, undisturbed: str) -> None:
    process = machines.start_run("lost-head", *_TWO, "--cluster", "auto")
    wait_for(lambda: process.poll() is not None or PHASES["train"](machines.data / "lost-head"))
    machines.kill(0)
    process.communicate(timeout=120)
    assert process.returncode
    machines.wait_until_whole()
    machines.run("lost-head", *_TWO, "--cluster", "auto")
    assert machines.counted("lost-head", "resumed_from_epoch") >= 1
    machines.assert_equal("lost-head", undisturbed)
