"""Processes without the seconds of their imports: forked from a Python that has imported the libraries.

Inside of `forked_processes`, `subprocess` starts what is named in `_PROGRAMS` so, and these processes start each other
so too. They are what new interpreters would be: children of who starts them, with process ids, groups, descriptors,
folders, environments and exit codes of their own; only what the libraries need to be imported is not done again. A test
whose subject is the process itself (its start, what it imports, its command line, signals) does not use it.

This file is also the program of the Python that is forked, which ends with the process that started it.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib.util
import inspect
import io
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_PROGRAMS = frozenset(
    {
        "benchmarks.embeddings_ours",
        "benchmarks.graphs_sides",
        "benchmarks.knowledge_sides",
        "benchmarks.relational_sides",
        "flows.cli",
        "flows.services.bootstrap",
        "flows.web.temporary_server",
        "tasks.supervise",
        "tasks.train.ranks.one_machine",
        "tasks.train.worker",
        "tests.evaluate.ranked_evaluation",
        "tests.process_facts",
        "tests.sampling.part_ranks",
        "tests.train.device_trainings",
        "tests.train.grid_ranks",
        "tests.train.partitioned_ranks",
        "tests.train.share_relations",
        "tests.train.two_ranks",
        "tests.train.unequal_ranks",
    }
)
_LIBRARIES = (
    "alembic.command graphviz matplotlib.backends.backend_agg matplotlib.pyplot mlflow mlflow.pyfunc "
    "mlflow.store.tracking.sqlalchemy_store mlflow.store.model_registry.sqlalchemy_store pandas prefect.flow_engine "
    "prefect.task_engine prefect.server.api.server pyarrow.csv pyarrow.dataset pyarrow.parquet pymetis rich.table "
    "scipy.sparse.csgraph sklearn.linear_model sklearn.metrics sqlalchemy torch._dynamo torch._inductor "
    "torch.nn.parallel typer uvicorn"
)
_READ_AT_IMPORT = ("LD_", "MPL", "NUMBA_", "PYTHON", "TORCH_LOGS")
"""How the variables begin that are read but once: a process that wants others is not forked ..."""
_READ_LATER = ("NUMBA_CACHE_LOCATOR_CLASSES", "NUMBA_NUM_THREADS", "PYTHONPATH", "PYTHONSAFEPATH", "PYTHONUNBUFFERED")
"""... but for these, which are read again."""
_MESSAGE_BYTES = 1 << 17
_ROOM = 30_000
"""Bytes in which a forked process writes its arguments and its environment, for those who look into /proc."""
_OUT_OF_THE_WAY = 500
"""Descriptors from here on stand in nobody's way while others are put in their places."""
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


class _Nursery:
    """The process of a process's own from which its children are forked."""

    def __init__(self, control: socket.socket, environment: Mapping[str, str]) -> None:
        self._control = control
        self._at_import = _at_import(environment)
        self._owner = os.getpid()
        self._lock = threading.Lock()

    def fork(self, given: Mapping[str, Any]) -> int | None:
        """Return the id of a new child, for what `Popen` was asked; None where it needs an interpreter of its own."""
        program = _program(given["args"])
        environment = dict(os.environ if given["env"] is None else given["env"])
        unusual = given["preexec_fn"] or given["shell"] or given["uid"] is not None or given["process_group"] != -1
        if program is None or unusual or os.getpid() != self._owner or _at_import(environment) != self._at_import:
            return None
        streams = [given["p2cread"], given["c2pwrite"], given["errwrite"]]
        streams = [standard if stream == -1 else stream for standard, stream in enumerate(streams)]
        kept = [int(descriptor) for descriptor in given["pass_fds"]]
        request = {
            "program": program,
            "environment": environment,
            "cwd": str(given["cwd"] or Path.cwd()),
            "new_session": given["start_new_session"],
            "kept": kept,
            "parent": self._owner,
        }
        with self._lock:
            _prctl(_PR_SET_CHILD_SUBREAPER, 1)
            try:
                socket.send_fds(self._control, [json.dumps(request).encode()], [*streams, *kept])
                answer = self._control.recv(64)
            finally:
                _prctl(_PR_SET_CHILD_SUBREAPER, 0)
        assert answer, "the Python that processes are forked from has ended"
        return int(answer)


_wanted: ContextVar[bool] = ContextVar("_wanted", default=False)


class _ForkedPopen(subprocess.Popen[Any]):
    nursery: _Nursery | None = None

    def _execute_child(self, *arguments: Any) -> None:
        start = super()._execute_child  # type: ignore[misc]
        given = inspect.signature(start).bind(*arguments).arguments
        pid = None
        if _wanted.get() and _program(given["args"]) is not None:
            _ForkedPopen.nursery = self.nursery or _start()
            pid = _ForkedPopen.nursery.fork(given)
        if pid is None:
            start(*arguments)
            return
        self.pid, self._child_created = pid, True
        names = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(given[name] for name in names))  # type: ignore[attr-defined]


def _program(args: Any) -> list[str] | None:
    """Return the module and its arguments, where that is what is started."""
    words = [str(word) for word in args] if isinstance(args, list | tuple) else []
    if words[:1] == [sys.executable]:
        words = words[2:] if words[1:2] == ["-u"] else words[1:]
        if words[:1] == ["-m"] and words[1] in _PROGRAMS:
            return words[1:]
    return None


def _at_import(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(_READ_AT_IMPORT) and name not in _READ_LATER
    }


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


@contextlib.contextmanager
def forked_processes() -> Iterator[None]:
    """Have the processes forked that this thread starts within the block, where the libraries are there."""
    if not all(map(importlib.util.find_spec, ("prefect", "mlflow"))):
        yield
        return
    subprocess.Popen = _ForkedPopen  # type: ignore[misc]
    before = _wanted.set(True)
    try:
        yield
    finally:
        _wanted.reset(before)


def _start() -> _Nursery:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    mine, its = socket.socketpair(type=socket.SOCK_SEQPACKET)
    with its:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.warm_python", str(its.fileno()), "-" * _ROOM],
            cwd=ROOT,
            env={**environment, "ROOM": "-" * _ROOM},
            stdin=subprocess.DEVNULL,
            pass_fds=[its.fileno()],
        )

    def end() -> None:
        mine.close()
        process.wait()

    atexit.register(end)
    return _Nursery(mine, environment)


class _Prefect(MetaPathFinder, Loader):
    """Prefect, imported and forgotten again: its next import takes it from memory, and reads the settings anew."""

    def __init__(self) -> None:
        self._modules = {name: sys.modules.pop(name) for name in [*sys.modules] if name.partition(".")[0] == "prefect"}
        self._spec = self._modules["prefect"].__spec__

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        return ModuleSpec(fullname, self, is_package=True) if fullname == "prefect" and self._modules else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._modules["prefect"]

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec
        sys.modules.update(self._modules)
        self._modules.clear()
        import prefect.context
        import prefect.logging.configuration

        prefect.context.refresh_global_settings_context()
        prefect.logging.configuration.setup_logging(incremental=False)


def _import_libraries() -> None:
    """Import what nearly every process needs, and our own modules below flows."""
    from numba.core.registry import cpu_target

    import configs
    import flows
    import models
    import tasks
    from flows.environment.quiet import QUIET

    assert flows  # from now on Prefect ignores files of the current folder
    os.environ.update(QUIET)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PREFECT_HOME"] = folder
        for name in _LIBRARIES.split():
            importlib.import_module(name)
        sys.meta_path.insert(0, _Prefect())
    for package in (configs, models, tasks):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name not in _PROGRAMS and module.name != "tasks.prefect_tasks" and "triton" not in module.name:
                importlib.import_module(module.name)
    importlib.import_module("flows.commands.recipes.run")
    assert "prefect" not in sys.modules
    cpu_target.typing_context.refresh()  # what numba imports with the first kernel
    cpu_target.target_context.refresh()


def _next_child(control: socket.socket) -> dict[str, Any]:
    """Fork a process for each request; return in it, as a child of who asked. Ends when nobody can ask any more."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, _MESSAGE_BYTES, 64)
        if not message:
            os._exit(0)
        reader, writer = os.pipe()
        between = os.fork()
        if not between:
            child = os.fork()
            if child:
                os.write(writer, str(child).encode())
                os._exit(0)
            _close((reader, writer))
            request: dict[str, Any] = json.loads(message)
            while os.getppid() != request["parent"]:  # a "subreaper" inherits its grandchildren
                time.sleep(0.001)
            return {**request, "descriptors": descriptors}
        os.waitpid(between, 0)
        control.send(os.read(reader, 64))
        _close((reader, writer, *descriptors))


def _become(request: dict[str, Any], base_path: list[str]) -> None:
    """Make this process what a new interpreter would be."""
    os.chdir(request["cwd"])
    aside = [fcntl.fcntl(found, fcntl.F_DUPFD_CLOEXEC, _OUT_OF_THE_WAY) for found in request["descriptors"]]
    _close(request["descriptors"])
    for descriptor, found in zip((0, 1, 2, *request["kept"]), aside, strict=True):
        os.dup2(found, descriptor)
    _close(aside)
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None
    _show(request["program"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    first = [] if "PYTHONSAFEPATH" in os.environ else [request["cwd"]]
    given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:] = [*first, *given, *base_path]
    sys.argv = request["program"]
    if "PYTHONUNBUFFERED" in os.environ:
        for stream in (sys.stdout, sys.stderr):
            assert isinstance(stream, io.TextIOWrapper)
            stream.reconfigure(line_buffering=True)


def _show(program: Sequence[str]) -> None:
    """Write arguments and environment to where ps, and tests that look for a process, read them."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    args_begin, args_end, env_begin, env_end = (int(field) for field in fields[45:49])
    variables = (f"{name}={value}" for name, value in os.environ.items())
    for words, begin, end in (
        ((sys.executable, "-m", *program), args_begin, args_end),
        (variables, env_begin, env_end),
    ):
        text = b"".join(os.fsencode(word) + b"\0" for word in words)[: end - begin - 1]
        ctypes.memmove(begin, text.ljust(end - begin, b"\0"), end - begin)


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def main() -> None:
    """Import the libraries and wait for orders; then be one of the processes that were ordered."""
    global _wanted
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    control = socket.socket(fileno=int(sys.argv[1]))
    environment = dict(os.environ)
    subprocess.Popen = _ForkedPopen  # type: ignore[misc]  # before others import the name
    _import_libraries()
    assert threading.active_count() == 1, "a fork leaves other threads behind, with the locks that they hold"
    gc.freeze()
    while True:
        request = _next_child(control)
        control.close()
        if request["new_session"]:
            os.setsid()
        mine, control = socket.socketpair(type=socket.SOCK_SEQPACKET)
        process = os.getpid()
        if os.fork():
            control.close()
            break
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != process:
            os._exit(0)
        mine.close()
        _close(request["descriptors"])
    _become(request, sys.path[1:])
    _ForkedPopen.nursery = _Nursery(mine, environment)
    _wanted = ContextVar("_wanted", default=True)
    code = _run(sys.argv[0])
    # As at the end of any Python, but for half a second in which all that was imported is taken apart.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _run(program: str) -> int:
    sys.modules.pop(program, None)  # it may have been imported from; now it runs
    try:
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


if __name__ == "__main__":
    main()
