"""Start the other machines of a training by ssh, pass on what they say, and end them with the run.

ssh is the user's own, with its configuration and keys, and asks nobody: where a password, a passphrase or a host's key
would have to be confirmed it fails, and the run with it. What runs on the other side is `flows.machines.remote`.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import yaml

from configs.errors import StageError
from configs.load import dump_recipe
from configs.schema import Recipe
from configs.trust import for_children
from flows.machines.remote import BEAT_SECONDS, READY, RemoteOrder, with_recipe
from tasks.processes import ending
from tasks.processes.children import ROOT
from tasks.processes.code_version import code_version
from tasks.storage.home import Home
from tasks.storage.home_files.temporary import own_folder

_OPTIONS = (
    "BatchMode=yes",
    "ConnectTimeout=10",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=4",
    "ClearAllForwardings=yes",
)
_READY_SECONDS = 150.0
"""For a connection, a Python that may lie on a network file system, and the home to be seen there."""
_END_SECONDS = 10.0
"""For a machine that was told to end."""
_LAST_SECONDS = 90.0
"""For a machine to see, through a network file system, that the training is there."""
_OWN_WORDS_SECONDS = 15.0
"""For this machine to end by itself, when a mistake ends all machines."""
_SHOWN_LINES = 15
_PASSED_ON = frozenset({"CUDA_VISIBLE_DEVICES", "GRAPHMILL_DATA", "GRAPHMILL_DEBUG"})
_PASSED_ON_PREFIXES = ("NCCL_", "GLOO_", "TORCH_")
"""Variables that decide how ranks run and meet. Others may name this machine's servers, or hold passwords."""
Message = Callable[[str, str], None]


@contextlib.contextmanager
def machines_by_ssh(recipe: Recipe, home: Home, arguments: Sequence[str], message: Message) -> Iterator[None]:
    """Have the machines of `recipe.train.hosts` after the first run the same training as long as the block does.

    A machine that ends badly ends the run, by `ending.give_up`. After a block that ended well they are waited for.

    Args:
        recipe: with the versions of all that it names; `train.ssh` says whether anything is to be started.
        home: the folder that they all work in, or each its own of that name.
        arguments: of `graphmill run`, but for the recipe and the machine's number.
        message: called with a host and a line that it said, from other threads.

    Raises StageError: a machine cannot be reached, has no graphmill or another one, or does not see the home; those
    that were started are ended.
    """
    if not recipe.train.ssh:
        yield
        return
    patience = _LAST_SECONDS if recipe.train.shared_home else None  # without, they have a pipeline of their own
    machines: list[_Machine] = []
    try:
        with own_folder(home) as shared:
            for rank, host in enumerate(recipe.train.hosts[1:], start=1):
                order = make_order(recipe, home, [*arguments, f"train.machine_rank={rank}", "train.ssh=false"], shared)
                machines.append(_Machine(host, order, message))
            for machine in machines:
                machine.wait_until_ready()
        for machine in machines:
            machine.watch()
        yield
        for machine in machines:
            machine.wait(patience)
    finally:
        _end_all(machines)


def make_order(recipe: Recipe, home: Home, arguments: list[str], shared: Path) -> RemoteOrder:
    """Return what another machine is to do; `shared` is a folder in the home that it has to see."""
    environment = {
        name: value for name, value in os.environ.items() if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)
    }
    return RemoteOrder(
        folder=str(Path.cwd()),
        environment={**environment, **for_children(), "GRAPHMILL_HOME": str(home.root)},
        recipe=yaml.safe_dump(dump_recipe(recipe), sort_keys=False),
        name=f"{recipe.name}.yaml",
        arguments=with_recipe(arguments),
        code=code_version(),
        shared=str(shared) if recipe.train.shared_home else "",
    )


def ssh_command(host: str) -> list[str]:
    """Return the command that starts the other side on a host: the same Python, in the same folder."""
    there = f"cd {shlex.quote(str(ROOT))} && exec {shlex.quote(sys.executable)} -m flows.machines.remote"
    options = [word for option in _OPTIONS for word in ("-o", option)]
    return ["ssh", "-T", *options, "--", host, there]


class _Machine:
    """A connection to another machine, and what it said last."""

    def __init__(self, host: str, order: RemoteOrder, message: Message) -> None:
        self.host = host
        self._message = message
        self._order = order
        self._last: deque[str] = deque(maxlen=_SHOWN_LINES)
        self._ready = threading.Event()
        self._concluded = threading.Event()  # this machine's run has ended, or is about to
        self._told = threading.Event()  # the other one is to end
        self._over = threading.Event()  # the connection is closed
        try:
            # A session of its own: Ctrl-C in the terminal is for graphmill, which ends it, and nobody can be asked.
            self._process = subprocess.Popen(
                ssh_command(host),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise StageError(f"train.ssh: ssh cannot be started ({error}); install OpenSSH's client") from error
        self._began = time.monotonic()
        for work in (self._read, self._beat):
            threading.Thread(target=work, daemon=True, name=f"ssh-{host}").start()

    def wait_until_ready(self) -> None:
        """Wait until graphmill runs there. Raises StageError with what was said instead."""
        while not self._ready.wait(0.1):
            if self._over.is_set() and not self._ready.is_set():
                raise StageError(self._unreachable())
            if time.monotonic() - self._began > _READY_SECONDS:
                raise StageError(f"{self._unreachable()} (no answer within {_READY_SECONDS:.0f} seconds)")

    def _unreachable(self) -> str:
        said = " / ".join(self._last) or "nothing was said"
        if self._process.poll() not in (255, None):
            return f"train.ssh: {self.host}: graphmill does not start there: {said}"
        return (
            f"train.ssh: {self.host}: ssh gave up: {said}. It has to work without questions: "
            f"ssh -o BatchMode=yes {self.host} {sys.executable} --version"
        )

    def watch(self) -> None:
        """End this run when the machine ends badly."""
        threading.Thread(target=self._give_up_with_it, daemon=True, name=f"ssh-watch-{self.host}").start()

    def _give_up_with_it(self) -> None:
        self._over.wait()
        code = self._process.wait()
        # A mistake ends all machines at once; machine 0 says it better.
        if code == 0 or self._concluded.wait(_OWN_WORDS_SECONDS):
            return
        said = "\n".join(self._last)
        ending.give_up(
            StageError(
                f"machine {self.host} ended with exit code {code}; running again continues from the last checkpoint. "
                f"It said last:\n{said}"
            )
        )

    def wait(self, patience: float | None) -> None:
        """Wait until it has ended by itself, no longer than so many seconds."""
        self._concluded.set()
        if not self._over.wait(patience):
            self._message(self.host, "has not ended by itself; ending it")
        elif self._process.wait() != 0:
            self._message(self.host, f"ended with exit code {self._process.returncode}")

    def tell_to_end(self) -> None:
        """Close its input: the other side ends the command then."""
        self._concluded.set()
        self._told.set()
        with contextlib.suppress(OSError, ValueError):
            assert self._process.stdin is not None
            self._process.stdin.close()

    def end(self, deadline: float) -> None:
        """Wait until it has ended, or cut the connection."""
        self._over.wait(max(0.0, deadline - time.monotonic()))
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for raw in lines:
                line = raw.decode(errors="replace").rstrip()
                if line == READY and not self._ready.is_set():
                    self._ready.set()
                elif line:
                    self._last.append(line)
                    if self._ready.is_set():
                        self._message(self.host, line)
        self._process.wait()
        self._over.set()

    def _beat(self) -> None:
        """Give the order; then say every few seconds that this machine lives."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # it has ended, or its input is closed
            self._process.stdin.write(self._order.line())
            self._process.stdin.flush()
            while not self._told.wait(BEAT_SECONDS):
                self._process.stdin.write(b"\n")
                self._process.stdin.flush()


def _end_all(machines: Sequence[_Machine]) -> None:
    seconds = 0.5 if ending.is_ending() else _END_SECONDS
    for machine in machines:
        machine.tell_to_end()
    for end in [partial(machine.end, time.monotonic() + seconds) for machine in machines]:
        end()
