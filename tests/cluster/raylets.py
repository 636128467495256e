"""Raylets on this machine that `graphmill cluster` begins and ends, each with a home, ports and a folder of its own."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tasks.cluster.connect import TOKEN_FILE, cluster_folder, own_node
from tasks.cluster.settings import AGENT_PORTS, HEAD_PORT, NODE_PORTS
from tasks.storage.home import Home
from tests.flows.conftest import called, command, environment
from tests.needs import skip_without

_PORTS = (HEAD_PORT, *NODE_PORTS.values(), *AGENT_PORTS.values())
_STEP, _STEPS, _WORKERS = 250, range(10, 100), 4
"""A raylet's ports lie within so many; how often they are shifted by that, which keeps them below those of
connections; workers of xdist that do not meet."""
_HIDE = 'mount -t tmpfs tmpfs "$0" && exec "$@"'


def free_shift() -> int:
    """A shift at which nobody listens on a raylet's ports."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    steps = list(_STEPS[worker % _WORKERS :: _WORKERS])
    random.shuffle(steps)
    for step in steps:
        if all(_is_free(port + step * _STEP) for port in _PORTS):
            return step * _STEP
    raise AssertionError("no ports are free")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


class Raylet:
    """A machine of a cluster. `folder` has a short name: sockets lie there."""

    def __init__(self, home: Path, folder: Path, name: str) -> None:
        self.home, self.temp_dir, self.cache = Home.open(home), folder / name, folder / f"cache-{name}"
        self.environment = self.own_environment()

    def own_environment(self) -> dict[str, str]:
        """No variable of Ray's, and a cache of its own for what is fetched."""
        given = {name: value for name, value in environment().items() if not name.startswith("RAY_")}
        return {**given, "XDG_CACHE_HOME": str(self.cache)}

    def __call__(self, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run `graphmill` as this machine's user does."""
        return called(command(self.home.root, *words), env=self.environment, timeout=120)

    def start(self, *words: str) -> str:
        """Begin a cluster; return its address."""
        shift = free_shift()
        done = self(*self._options("start", shift), "--port", str(HEAD_PORT + shift), *words)
        assert done.returncode == 0, done.stderr
        return str(own_node(self.home)["address"])

    def join(self, address: str, token: Path, *words: str, hidden: Path | None = None) -> None:
        """Join a cluster; `hidden`: a folder that this machine does not see."""
        join = self._options("join", free_shift())
        full = command(self.home.root, *join, address, "--token-file", str(token), *words)
        if hidden is not None:
            full = ["unshare", "--mount", "sh", "-c", _HIDE, str(hidden), *full]
        done = called(full, env=self.environment, timeout=120)
        assert done.returncode == 0, done.stderr

    def _options(self, word: str, shift: int) -> list[str]:
        return ["cluster", word, "--cpus", "1", "--shift-ports", str(shift), "--temp-dir", str(self.temp_dir)]

    def status(self) -> list[dict[str, Any]]:
        """The machines of its cluster."""
        done = self("cluster", "status", "--json")
        assert done.returncode == 0, done.stderr
        machines: list[dict[str, Any]] = json.loads(done.stdout)["machines"]
        return machines

    def stop(self) -> None:
        if own_node(self.home):
            done = self("cluster", "stop")
            assert done.returncode == 0, done.stderr

    def kill(self) -> None:
        """What a power failure does, as far as others see it."""
        os.killpg(own_node(self.home)["group"], signal.SIGKILL)


@contextlib.contextmanager
def running(raylet: Raylet) -> Iterator[Raylet]:
    """End it after the block, however that ends."""
    try:
        yield raylet
    finally:
        raylet.stop()


@dataclass(frozen=True)
class Cluster:
    """Two machines, of one core each where nothing else is said."""

    head: Raylet
    second: Raylet
    address: str
    folder: Path
    """For homes of tests. A second machine that is apart does not see it."""
    sockets: Path
    """A folder with a short name."""

    @property
    def token(self) -> Path:
        """The head's."""
        return cluster_folder(self.head.home) / TOKEN_FILE

    def new_home(self, name: str) -> Home:
        """A home for a test, on the head's machine."""
        home = Home.open(tempfile.mkdtemp(prefix=name, dir=self.folder))
        shutil.copytree(cluster_folder(self.head.home), cluster_folder(home))
        return home

    def join(self, *words: str, apart: bool = False) -> None:
        """Have the second machine join; `apart`: it does not see the folder, or the test is skipped."""
        if apart and (os.geteuid() or subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode):
            pytest.skip("folders that one process does not see need root")
        copy = Path(shutil.copy(self.token, self.sockets / "token"))
        self.second.join(self.address, copy, "--node-ip", "127.0.0.2", *words, hidden=self.folder if apart else None)


@contextlib.contextmanager
def begun(folder: Path, *words: str) -> Iterator[Cluster]:
    """A cluster whose second machine has not joined yet."""
    skip_without("Ray", importlib.util.find_spec("ray"))
    sockets = Path(tempfile.mkdtemp(prefix="gm-", dir="/tmp"))
    head, second = Raylet(folder / "head", sockets, "r0"), Raylet(sockets / "home", sockets, "r1")
    try:
        with running(head), running(second):
            yield Cluster(head, second, head.start(*words), folder, sockets)
    finally:
        shutil.rmtree(sockets)


def processes(*words: str) -> list[psutil.Process]:
    """The processes whose command lines have one of the words."""
    listed = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            line: Any = " ".join(process.cmdline())
            if any(word in line for word in words) and process.status() != psutil.STATUS_ZOMBIE:
                listed.append(process)
    return listed
