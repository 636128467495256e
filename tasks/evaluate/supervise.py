"""Run a module in a process of its own that never outlives its parent, and pass on what it says."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path
from typing import IO

from configs.errors import StageError
from tasks.processes import ROOT, WORKER_ENVIRONMENT, describe_exit, die_with_parent, end_group
from tasks.stage import StageContext

_PARENT = "GRAPHMILL_PARENT_PID"
_LINES_KEPT = 15


def run_worker(module: str, argument: Path, context: StageContext) -> None:
    """Run `main(argument)` of a module and pass on its progress (JSON lines on standard output).

    Raises:
        StageError: it died; the message ends with what it said last.
    """
    command = [sys.executable, "-m", "tasks.evaluate.supervise", module, str(argument)]
    environment = {**WORKER_ENVIRONMENT, **os.environ, _PARENT: str(os.getpid())}
    said: deque[str] = deque(maxlen=_LINES_KEPT)
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for us; we end it
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        reader = threading.Thread(target=_keep, args=(process.stderr, said), daemon=True)
        reader.start()
        try:
            for line in process.stdout:
                _pass_on(line, context, said)
            code = process.wait()
        finally:
            end_group(process)
            reader.join()
    if code:
        text = "".join(said).strip()
        raise StageError(f"{context.stage} ended with {describe_exit(code)}; it said last:\n{text}")


def _keep(stream: IO[bytes], said: deque[str]) -> None:
    for line in stream:
        said.append(line.decode(errors="replace"))


def _pass_on(line: bytes, context: StageContext, said: deque[str]) -> None:
    try:
        told = json.loads(line)
        context.progress(told["done"], told["total"], told["unit"], told["note"])
    except (ValueError, KeyError, TypeError):
        said.append(line.decode(errors="replace"))


def say(done: float, total: float, unit: str, note: str) -> None:
    """Tell the supervisor how far this process is."""
    print(json.dumps({"done": done, "total": total, "unit": unit, "note": note}), flush=True)


def main(arguments: list[str]) -> int:
    """Become the worker: `arguments` are the module and what its `main` is told."""
    die_with_parent(int(os.environ[_PARENT]))
    code: int = importlib.import_module(arguments[0]).main(Path(arguments[1]))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
