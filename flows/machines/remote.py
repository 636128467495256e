"""What `train.ssh` starts on another machine: it runs one command there, and ends it when machine 0 goes.

Machine 0 writes a line of JSON into its standard input (`RemoteOrder`), and a line break every few seconds after that.
An input that ends, or that is silent for `SILENCE_SECONDS`, means that machine 0's process has ended, was killed, or
that the network between the two is gone: then the command is ended too. Nothing of it goes through a shell or a command
line, so options need no quoting and variables are not shown to other users.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from tasks.processes.children import ROOT, die_with_parent, end_group
from tasks.processes.code_version import code_version

READY = "graphmill is ready"
"""Printed when this machine was reached, and has what the command needs."""
BEAT_SECONDS = 10.0
SILENCE_SECONDS = 120.0
_GRACE_SECONDS = 6.0
"""A run that is told to end does so within five seconds."""
_SIGHT_SECONDS = 60.0
"""For a folder of another machine to be seen through a network file system."""
_RECIPE = "RECIPE"


@dataclass(frozen=True)
class RemoteOrder:
    """What to run on another machine."""

    folder: str
    """Working folder."""
    environment: dict[str, str]
    """Variables beside those that the machine has."""
    recipe: str
    """The whole recipe, as YAML."""
    name: str
    """Name of its file."""
    arguments: list[str]
    """Of the command `graphmill`; `RECIPE` stands for the recipe's file."""
    code: str
    """Version of machine 0's code."""
    shared: str = ""
    """A folder in machine 0's home that this machine has to see too; empty: it has a home of its own."""

    def line(self) -> bytes:
        """Return it as a line of JSON."""
        return json.dumps(asdict(self)).encode() + b"\n"


def with_recipe(arguments: list[str]) -> list[str]:
    """Return the arguments of `graphmill run` with the place of the recipe in them."""
    return ["run", _RECIPE, *arguments]


def main() -> None:
    """Run what machine 0 orders; exit with the command's exit code."""
    line = _read_line()
    if not line:
        sys.exit(1)
    order = RemoteOrder(**json.loads(line))
    if (trouble := _trouble(order)) is not None:
        print(f"error: {trouble}", flush=True)
        sys.exit(2)
    print(READY, flush=True)
    with tempfile.TemporaryDirectory(prefix="graphmill-") as scratch:
        file = Path(scratch) / Path(order.name).name
        file.write_text(order.recipe, encoding="utf-8")
        arguments = [str(file) if argument == _RECIPE else argument for argument in order.arguments]
        process = _start(order, arguments)
        threading.Thread(target=_end_in_silence, args=(process,), daemon=True).start()
        code = process.wait()
    sys.stdout.flush()
    os._exit(code if code >= 0 else 128 - code)  # the thread may wait for its input


def _trouble(order: RemoteOrder) -> str | None:
    """Return what is not as on machine 0, where the command would fail or wait for ever."""
    if (code := code_version()) != order.code:
        return f"the code in {ROOT} is {code} on this machine, and {order.code} on machine 0"
    if not Path(order.folder).is_dir():
        return f"there is no folder {order.folder} on this machine; the run began in it on machine 0"
    deadline = time.monotonic() + _SIGHT_SECONDS
    while order.shared and not Path(order.shared).is_dir():
        if time.monotonic() > deadline:
            return (
                f"this machine does not see {order.shared}, which machine 0 has just made in its home: share the home "
                "(--home DIR on a network file system), or set train.shared_home=false"
            )
        time.sleep(0.5)
    return None


def _start(order: RemoteOrder, arguments: list[str]) -> subprocess.Popen[bytes]:
    parent = os.getpid()
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, **order.environment, "PYTHONPATH": os.pathsep.join(path), "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "flows.cli", *arguments],
        cwd=order.folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=lambda: die_with_parent(parent),
    )


def _read_line() -> bytes:
    """Return the first line of the input (behind it come line breaks only); nothing where the input ends before."""
    content = b""
    while b"\n" not in content:
        more = os.read(0, 1 << 16)
        if not more:
            return b""
        content += more
    return content.partition(b"\n")[0]


def _end_in_silence(process: subprocess.Popen[bytes]) -> None:
    """End the command when machine 0 is not heard any more."""
    while select.select([0], [], [], SILENCE_SECONDS)[0] and os.read(0, 1 << 12):
        pass
    end_group(process, _GRACE_SECONDS)


if __name__ == "__main__":
    main()
