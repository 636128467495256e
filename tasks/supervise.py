"""Run a module in a process of its own that never outlives its parent, and pass on what it says."""

from __future__ import annotations

import contextlib
import errno
import importlib
import json
import os
import subprocess
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from pydantic_core import to_json

from configs.errors import GraphmillError, StageError, error_of, kind_of
from configs.reading.parsing import without_collection
from configs.trust import for_children
from tasks.processes.children import (
    PARENT,
    ROOT,
    WORKER_ENVIRONMENT,
    describe_exit,
    die_with_parent,
    end_group,
    inherited_environment,
)
from tasks.processes.imports import leave_pandas_out
from tasks.processes.memory import out_of_memory
from tasks.stage import StageContext
from tasks.storage.artifacts import is_full_disk, write_atomic
from tasks.storage.stored import of_kind, read_json

Job = TypeVar("Job")
_LINES_KEPT = 15
JOB_FILE, RESULT_FILE, ERROR_FILE = "job.json", "result.json", "error.json"
MACHINES_FILE = "logs/machines.json"
"""What `tasks.cluster.launch` leaves in the work folder: one `MachineUse` a machine."""
WARNING, MESSAGE = "warning: ", "message: "
"""How lines begin that are the stage's own; a warning stays in its record."""
LOST_CODE = 3
"""Exit code of what starts ranks on a cluster where a machine is lost: another attempt may go well."""


class WorkerDiedError(StageError):
    """The worker, or one of several, ended without an outcome: another attempt may go well."""


@dataclass(frozen=True)
class Launcher:
    """What starts several processes of one program, which end with it."""

    arguments: Sequence[str]
    """Of Python; the program's own follow."""
    environment: Mapping[str, str]


ALONE = Launcher((), {})
"""One process."""


def machines_used(work: Path) -> list[dict[str, Any]]:
    """Return what machines of a cluster did for the ranks that wrote into `work`; nothing: there was no cluster."""
    path = work / MACHINES_FILE
    used: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return used


def run_job(module: str, job: object, context: StageContext, launcher: Launcher = ALONE) -> dict[str, Any]:
    """Have a module's `main`, which calls `finish_job`, do a job, a dataclass, in processes of its own.

    Return the result's fields.

    Raises:
        GraphmillError: as the worker did, or one of several.
        WorkerDiedError: it died; the message ends with what it said last.
        OSError: its disk is full; `disk_errors` says so.
    """
    job_path, result_path, error_path = context.work / JOB_FILE, context.work / RESULT_FILE, context.work / ERROR_FILE
    for path in (result_path, error_path):  # of an attempt before
        path.unlink(missing_ok=True)
    write_atomic(job_path, to_json(job))
    try:
        run_worker(module, job_path, context, launcher)
    except WorkerDiedError:  # whatever becomes of the others once there is an outcome
        if not result_path.exists() and not error_path.exists():
            raise
    error = None if result_path.exists() else read_error(error_path)
    outcome = {} if error else json.loads(result_path.read_text(encoding="utf-8"))
    for path in (job_path, result_path, error_path):  # they hold this machine's paths
        path.unlink(missing_ok=True)
    if error is not None:
        raise error
    if "error" in outcome:
        raise error_of(outcome["error"], outcome["message"])
    fields: dict[str, Any] = outcome["fields"]
    return fields


def finish_job(job_path: Path, kind: type[Job], work: Callable[[Job], dict[str, Any]]) -> int:
    """In the worker: do a job, of the dataclass `kind`; graphmill's own errors are JSON that `run_job` raises again."""
    try:
        write_atomic(job_path.with_name(RESULT_FILE), json.dumps(_outcome(job_path, kind, work)).encode())
    except Exception as error:
        if not is_full_disk(error):
            raise
        return errno.ENOSPC  # a result has no room: who asked knows by the exit code (`run_worker`)
    return 0


def read_job(job_path: Path, kind: type[Job]) -> Job:
    """Return a job, of the dataclass `kind`."""
    return of_kind(kind, read_json(job_path), job_path)


def _outcome(job_path: Path, kind: type[Job], work: Callable[[Job], dict[str, Any]]) -> dict[str, Any]:
    try:
        return {"fields": work(read_job(job_path, kind))}
    except GraphmillError as error:
        return {"error": kind_of(error), "message": str(error)}
    except Exception as error:
        short = out_of_memory(error)
        if short is None:
            raise
        text = f"memory ran out: {short}; take a smaller evaluate.batch_size, or close something else"
        return {"error": "StageError", "message": text}


def write_error(path: Path, error: GraphmillError) -> None:
    """Leave what one of several processes raised on purpose for the one that started them (`read_error`)."""
    write_atomic(path, json.dumps({"kind": kind_of(error), "message": str(error)}).encode())


def read_error(path: Path) -> GraphmillError | None:
    """Return what a process raised on purpose: another attempt would end the same. None: nothing."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return error_of(content["kind"], content["message"])


def run_worker(module: str, argument: Path, context: StageContext, launcher: Launcher = ALONE) -> None:
    """Run `main(argument)` of a module and pass on its progress (JSON lines on standard output).

    Raises WorkerDiedError: the message ends with what it said last. OSError: its disk is full (see `disk_errors`).
    """
    command = [sys.executable, *launcher.arguments, "-m", "tasks.supervise", module, str(argument)]
    environment = {**WORKER_ENVIRONMENT, **inherited_environment(), **for_children(), **launcher.environment}
    environment[PARENT] = str(os.getpid())
    last_lines: deque[str] = deque(maxlen=_LINES_KEPT)
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
        decoded = (line.decode(errors="replace") for line in process.stderr)
        reader = threading.Thread(target=last_lines.extend, args=(decoded,), daemon=True)
        reader.start()
        try:
            for line in process.stdout:
                _report_line(line, context, last_lines)
            code = process.wait()
        finally:
            end_group(process)
            reader.join()
    if code == errno.ENOSPC:
        raise OSError(code, os.strerror(code))
    if code:
        text = "".join(last_lines).strip()
        if is_full_disk(RuntimeError(text)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        raise WorkerDiedError(f"{context.stage} ended with {describe_exit(code)}; it said last:\n{text}")


def _report_line(line: bytes, context: StageContext, last_lines: deque[str]) -> None:
    try:
        progress = json.loads(line)
        context.progress(progress["done"], progress["total"], progress["unit"], progress["note"])
    except (ValueError, KeyError, TypeError):
        text = line.decode(errors="replace")
        if text.startswith(WARNING):
            context.warn(text.removeprefix(WARNING).strip())
        elif text.startswith(MESSAGE):
            context.message(text.removeprefix(MESSAGE).strip())
        else:
            last_lines.append(text)


def report_progress(done: float, total: float, unit: str, note: str) -> None:
    """Report progress to the supervisor."""
    print(json.dumps({"done": done, "total": total, "unit": unit, "note": note}), flush=True)


def main(arguments: list[str]) -> NoReturn:
    """Become the worker: `arguments` are the module and its `main`'s argument."""
    die_with_parent(int(os.environ[PARENT]))
    code = 1
    try:
        leave_pandas_out()
        with without_collection():  # a tenth of torch's import
            module = importlib.import_module(arguments[0])
        code = module.main(Path(arguments[1]))
    except Exception:
        traceback.print_exc()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    # A thread of gloo's may wait for a rank that is gone, and the interpreter's end for the thread; and what the
    # interpreter frees object by object, for half a second, the kernel frees at once.
    os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
