"""A program that says what it was started with and ends as it is told: a new interpreter and a fork must agree."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import psutil


def facts() -> dict[str, object]:
    process = psutil.Process()
    return {
        "argv": sys.argv[1:],
        "path": [path for path in sys.path if Path(path).is_dir()],
        "folder": str(Path.cwd()),
        "variables": dict(os.environ),
        "shown": [word for word in process.cmdline() if word],
        "shown variables": {name: value for name, value in process.environ().items() if name},
        "parent": os.getppid(),
        "leads": os.getsid(0) == os.getpid(),
        "name": __name__,
        "interrupt": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
        "terminate": signal.getsignal(signal.SIGTERM) is signal.SIG_DFL,
        "input": sys.stdin.read(),
        "descriptors": sorted(
            path.readlink().name.partition(":")[0] for path in Path("/proc/self/fd").iterdir() if path.exists()
        ),
    }


def prefect_settings() -> list[str]:
    import logging

    import prefect.main
    from prefect.settings import PREFECT_API_URL, PREFECT_HOME

    assert prefect.main  # it sets up logging
    return [
        str(PREFECT_HOME.value()),
        str(PREFECT_API_URL.value()),
        logging.getLevelName(logging.getLogger("prefect").level),
    ]


def main() -> None:
    match sys.argv[1]:
        case "wait":
            print(os.getpid(), flush=True)
            signal.pause()
        case "raise":
            raise ValueError("as told")
        case "exit":
            sys.exit("a message")
        case "imports":
            print(json.dumps("torch" in sys.modules))
        case "prefect":
            print(json.dumps(prefect_settings()))
        case _:
            print(json.dumps(facts()))
            print("and to stderr", file=sys.stderr)
            sys.exit(7)


if __name__ == "__main__":
    main()
