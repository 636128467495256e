"""The other machines of a training, started by ssh over a real sshd."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from configs.errors import StageError
from configs.load import load_recipe
from flows.machines.remote import READY, RemoteOrder, with_recipe
from flows.machines.ssh import machines_by_ssh, make_order, ssh_command
from tasks.processes.code_version import code_version
from tasks.storage.home import Home
from tests.flows.conftest import ROOT, command, environment, write_recipe
from tests.machines.conftest import AWAY, SECOND, UNKNOWN, Ssh
from tests.ports import free_port

TRAIN = {"loader": "full", "epochs": 3, "threads": 1, "device": "cpu"}
WAITS = f"{SECOND}: waiting for machine 0 to prepare the graph"


def _options(host: str = SECOND) -> list[str]:
    return [f"train.hosts=127.0.0.1,{host}", "train.ssh=true", f"train.rendezvous=127.0.0.1:{free_port()}"]


def processes_of(home: Path) -> list[psutil.Process]:
    """Return the processes that another machine runs for this home."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if "train.machine_rank=1" in process.cmdline() and process.environ().get("GRAPHMILL_HOME") == str(home):
                found.append(process)
    return found


def _gone(home: Path, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not processes_of(home):
            return True
        time.sleep(0.2)
    return False


@pytest.fixture
def start(tmp_path: Path, ssh: Ssh) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Start a first machine, and wait until the second one waits for it."""
    started = []

    def begin() -> subprocess.Popen[str]:
        recipe = write_recipe(tmp_path, train=TRAIN)
        arguments = ["-m", "tests.machines.first_machine", str(tmp_path / "home"), str(recipe), *_options()]
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env=ssh.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if line.strip() == WAITS:
                return process
        raise AssertionError("".join(said))

    yield begin
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_the_others_end_with_the_first(
    tmp_path: Path, start: Callable[[], subprocess.Popen[str]], number: signal.Signals
) -> None:
    first = start()
    assert processes_of(tmp_path / "home")
    os.kill(first.pid, number)
    first.wait(timeout=30)
    assert _gone(tmp_path / "home", 30), "the other machine goes on without machine 0"


def test_a_machine_that_dies_ends_the_run(tmp_path: Path, start: Callable[[], subprocess.Popen[str]]) -> None:
    first = start()
    (other,) = processes_of(tmp_path / "home")
    other.kill()
    said = first.communicate(timeout=60)[0]
    assert first.returncode != 0
    assert f"ended: machine {SECOND} ended with exit code 137" in said
    assert "waiting for machine 0" in said


@pytest.mark.parametrize(("host", "said"), [(AWAY, "Connection refused"), (UNKNOWN, "Host key verification failed")])
def test_a_machine_that_cannot_be_reached(
    tmp_path: Path, ssh: Ssh, monkeypatch: pytest.MonkeyPatch, host: str, said: str
) -> None:
    monkeypatch.setenv("PATH", ssh.environment()["PATH"])
    recipe = load_recipe(str(write_recipe(tmp_path, train=TRAIN)), _options(f"{SECOND},{host}"))
    home = Home.open(tmp_path / "home")
    with pytest.raises(StageError) as caught, machines_by_ssh(recipe, home, ["--only", "train"], lambda *_: None):
        raise AssertionError("the run began")
    text = str(caught.value)
    assert f"train.ssh: {host}: ssh gave up: " in text
    assert said in text
    assert f"ssh -o BatchMode=yes {host} {sys.executable} --version" in text
    assert _gone(tmp_path / "home", 30), "the machine that was reached goes on"
    assert UNKNOWN not in (ssh.folder / "known").read_text(), "nobody has confirmed that key"


def test_a_machine_without_graphmill(tmp_path: Path, ssh: Ssh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", ssh.environment()["PATH"])
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    recipe = load_recipe(str(write_recipe(tmp_path, train=TRAIN)), _options())
    with (
        pytest.raises(StageError, match=rf"{SECOND}: graphmill does not start there: .*/nowhere/python"),
        machines_by_ssh(recipe, Home.open(tmp_path / "home"), [], lambda *_: None),
    ):
        raise AssertionError("the run began")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"folder": "/nowhere"}, "there is no folder /nowhere on this machine"),
        ({"code": "of-yesterday"}, "on this machine, and of-yesterday on machine 0"),
        ({"shared": "/nowhere/.tmp-1"}, "does not see /nowhere/.tmp-1, which machine 0 has just made in its home"),
    ],
)
def test_what_is_not_as_on_machine_0(tmp_path: Path, change: dict[str, str], said: str) -> None:
    """Otherwise the other machine would make something else, or wait for ever."""
    script = "from flows.machines import remote; remote._SIGHT_SECONDS = 1; remote.main()"
    order = dataclasses.replace(_waiting(tmp_path), **change)
    done = subprocess.run([sys.executable, "-c", script], input=order.line(), cwd=ROOT, capture_output=True)
    assert done.returncode == 2
    assert said in done.stdout.decode()
    assert READY not in done.stdout.decode()


def _waiting(folder: Path) -> RemoteOrder:
    """Return the order of a run that waits for machine 0."""
    return RemoteOrder(
        folder=str(folder),
        environment={"GRAPHMILL_HOME": str(folder / "home")},
        recipe=write_recipe(folder, train=TRAIN).read_text(),
        name="tiny.yaml",
        arguments=with_recipe(["train.hosts=a,b", "train.machine_rank=1"]),
        code=code_version(),
    )


def test_silence_ends_the_other_machine(tmp_path: Path) -> None:
    """Where the network is gone nothing closes the connection."""
    order = _waiting(tmp_path)
    script = "from flows.machines import remote; remote.SILENCE_SECONDS = 1; remote.main()"
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()
    ) as process:
        process.stdin.write(order.line())
        process.stdin.flush()
        process.wait(timeout=60)
        assert not process.stdin.closed
    assert _gone(tmp_path / "home", 1)


def test_nothing_is_asked_and_no_option_is_smuggled_in() -> None:
    words = ssh_command("node1")
    assert words[:4] == ["ssh", "-T", "-o", "BatchMode=yes"]
    assert words[-3:-1] == ["--", "node1"]
    assert not any("StrictHostKeyChecking" in word for word in words)


def test_variables_that_matter_are_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"GRAPHMILL_DATA": "/it's\nthere", "GLOO_SOCKET_IFNAME": "eth1", "MLFLOW_TRACKING_PASSWORD": "secret"}
    for name, value in {**given, "GRAPHMILL_HOME": "/another"}.items():
        monkeypatch.setenv(name, value)
    recipe, home = load_recipe(str(write_recipe(tmp_path, train=TRAIN)), _options()), Home.open(tmp_path / "home")
    order = RemoteOrder(**json.loads(make_order(recipe, home, [], tmp_path).line()))
    assert order.environment["GRAPHMILL_HOME"] == str(home.root)
    assert {name: order.environment.get(name) for name in given} == {**given, "MLFLOW_TRACKING_PASSWORD": None}


def test_the_recipe_that_was_read_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With values in place of variables, which the other machine does not have."""
    monkeypatch.setenv("RATE", "0.00001")
    recipe = load_recipe(str(write_recipe(tmp_path, train={**TRAIN, "learning_rate": "${RATE}"})), _options())
    path = tmp_path / "there.yaml"
    path.write_text(make_order(recipe, Home.open(tmp_path / "home"), [], tmp_path).recipe)
    monkeypatch.delenv("RATE")
    assert load_recipe(str(path)) == recipe


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_one_command_trains_on_two_machines(tmp_path: Path, ssh: Ssh) -> None:
    recipe, home = write_recipe(tmp_path, train=TRAIN), tmp_path / "home"
    stages = "ingest,preprocess,components,partition,train"
    options = ["--hosts", f"127.0.0.1,{SECOND}", "--ssh", "--only", stages, "--json"]
    done = subprocess.run(
        command(home, "run", recipe.name, f"train.rendezvous=127.0.0.1:{free_port()}", *options),
        cwd=tmp_path,
        env={**ssh.environment(), "GRAPHMILL_DATA": "with 'quotes' and\nlines"},
        capture_output=True,
        text=True,
        timeout=800,
    )
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout.splitlines()[-1])
    manifest = json.loads(Path(outcome["artifacts"]["train"], "manifest.json").read_text())
    assert manifest["world_size"] == 2
    assert f"{SECOND}: machine 1 lends 1 rank(s)" in done.stderr
    assert f"{SECOND}: train     {outcome['artifacts']['train']}" in done.stderr
    assert not processes_of(home)
