"""Start the ranks of one machine, and end them together: `python -m tasks.train.ranks.one_machine COUNT ARGUMENTS`.

They meet in a file that only their user can open. A store behind a port is open to whoever reaches it, and torchrun's
own (`--standalone`) listens on all interfaces, runs pickles that lie in it, and needs the machine's name to resolve.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tasks.processes.children import MEETING_FILE, PARENT, describe_exit, die_with_parent

_LOOK_SECONDS = 0.05


def run_ranks(count: int, arguments: Sequence[str]) -> int:
    """Run Python with the arguments once a rank until all have ended, or one has failed; return its exit code.

    Negative for a signal, which came from outside: what its end did to others is not the cause.
    """
    with tempfile.TemporaryDirectory(prefix="ranks-") as folder:  # mode 0700
        ranks = [_start(rank, count, arguments, Path(folder) / "meeting") for rank in range(count)]
        while not any(codes := [rank.poll() for rank in ranks]) and None in codes:
            time.sleep(_LOOK_SECONDS)
        for process in ranks:
            process.kill()  # what it writes is whole or absent
            process.wait()
    failures = {number: code for number, code in enumerate(codes) if code}
    for number, code in failures.items():
        print(f"rank {number} ended with {describe_exit(code)}", file=sys.stderr, flush=True)
    return min(failures.values(), key=lambda code: (code > 0, -code), default=0)


def _start(rank: int, count: int, arguments: Sequence[str], meeting: Path) -> subprocess.Popen[bytes]:
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, PARENT: os.getpid()}
    environment = {**os.environ, MEETING_FILE: str(meeting), **{name: str(value) for name, value in place.items()}}
    return subprocess.Popen([sys.executable, *arguments], env=environment, stdin=subprocess.DEVNULL)


def main(arguments: Sequence[str]) -> int:
    """Run the ranks; where a signal has ended one, end by the same."""
    die_with_parent(int(os.environ[PARENT]))
    code = run_ranks(int(arguments[0]), arguments[1:])
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the rank has left one
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
