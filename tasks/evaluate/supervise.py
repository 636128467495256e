"""Run a module in a process of its own that never outlives its parent."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path
from typing import IO

from configs.errors import StageError
from tasks.stage import StageContext

_PR_SET_PDEATHSIG = 1
_ROOT = Path(__file__).resolve().parents[2]
_PARENT = "GRAPHMILL_PARENT_PID"


def run_worker(module: str, arguments: list[str], context: StageContext) -> None:
    """Run `python -m MODULE ARGUMENTS` and pass on its progress (JSON lines on standard output).

    Raises:
        StageError: it died; the message ends with what it said last.
    """
    environment = {**os.environ, _PARENT: str(os.getpid()), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "tasks.evaluate.supervise", module, *arguments]
    tail: deque[str] = deque(maxlen=15)
    with subprocess.Popen(
        command, cwd=_ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        reader = threading.Thread(target=_keep, args=(process.stderr, tail), daemon=True)
        reader.start()
        try:
            for line in process.stdout:
                _pass_on(line, context, tail)
            code = process.wait()
        finally:
            if process.poll() is None:  # cancelled or interrupted
                process.kill()
            reader.join()
    if code:
        raise StageError(f"{context.stage} ended with {_how(code)}; it said last:\n{''.join(tail).strip()}")


def _keep(stream: IO[str], tail: deque[str]) -> None:
    for line in stream:
        tail.append(line)


def _pass_on(line: str, context: StageContext, tail: deque[str]) -> None:
    try:
        told = json.loads(line)
        context.progress(told["done"], told["total"], "splits", told["note"])
    except (ValueError, KeyError, TypeError):
        tail.append(line)


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    hint = ": out of memory? lower evaluate.batch_size" if -code == signal.SIGKILL else ""
    return f"signal {signal.Signals(-code).name}{hint}"


def die_with_parent() -> None:
    """Ask the kernel for SIGKILL when the parent ends; end now if it did already."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if str(os.getppid()) != os.environ.get(_PARENT):
        os._exit(1)


def main(arguments: list[str]) -> int:
    """Become the worker: `arguments` are the module and what it is told."""
    die_with_parent()
    import importlib

    code: int = importlib.import_module(arguments[0]).main(Path(arguments[1]))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
