"""A Prefect server for the length of one run, where the user has none of their own.

Unlike Prefect's own it dies with its parent, wants a password, and starts while the libraries are still being
imported. Where it is killed it starts again, over the same database, with the same password and on the same socket,
which the run's process keeps open: requests wait in its queue meanwhile.

`python -m flows.web.temporary_server FD PARENT` is the server itself; `EmbeddedServer` is the side that starts it.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from configs.errors import StageError
from flows.environment.quiet import TEMPORARY
from flows.terminal.waiting import waiting
from flows.web.prefect_database import PrefectDatabase, named_elsewhere
from tasks.processes import ending
from tasks.processes.children import describe_exit, die_with_parent, tail
from tasks.storage.home import Home
from tasks.storage.home_files.trouble import full_disk

_COMMAND = [sys.executable, "-m", "flows.web.temporary_server"]
_START_SECONDS = 180.0
_MIGRATION_SECONDS = 3600.0
"""A new version rewrites the tables of months of runs; killed half-way it leaves neither the old ones nor the new."""
_MAX_DEATHS, _DEATHS_WITHIN_SECONDS = 5, 120.0
"""A server that ends more often is not started again: something that will not pass keeps it from living."""
_STOP_SECONDS, _HURRIED_STOP_SECONDS = 5.0, 1.0


class EmbeddedServer:
    """A Prefect server over this home's SQLite file, as a child process."""

    def __init__(self, home: Home) -> None:
        """Nothing is started yet."""
        self.home = home
        self.database = PrefectDatabase(home)
        self.url = ""
        self._password = f"graphmill:{secrets.token_urlsafe(24)}"
        self._listener: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._answered = threading.Event()
        self._stopped = threading.Event()
        """It is not, or no longer, kept alive."""
        self._starting = threading.Lock()
        self._deaths: list[float] = []
        self._first_start = contextlib.ExitStack()

    @property
    def _log(self) -> Path:
        return self.home.prefect / "server.log"

    def start(self) -> None:
        """Start the server and point this process's Prefect at it; `wait` says when it answers.

        Call it from the main thread: the kernel ends the server when the thread that started it ends. Raises StageError
        where the database is damaged.
        """
        self.database.check()
        if not self.database.is_made:
            self._first_start.enter_context(self.database.making())
        self.launch()
        os.environ[TEMPORARY] = "1"
        os.environ["PREFECT_API_URL"] = self.url
        os.environ["PREFECT_API_AUTH_STRING"] = self._password
        # Heartbeats tell a lasting server that a run died; they hold up the end of a run for a second.
        os.environ["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"] = "3600"

    def launch(self) -> None:
        """Open the socket and start the server's process; start it again where it is killed."""
        self.database.copy_template()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/api"
        self._log.write_bytes(b"")
        self._start_process()
        threading.Thread(target=self._keep_alive, daemon=True, name="prefect-server").start()

    def _start_process(self) -> None:
        assert self._listener is not None
        environment = {
            **os.environ,
            "PREFECT_HOME": str(self.home.prefect),  # as for `graphmill up`, also where the user has one of their own
            "PREFECT_SERVER_API_AUTH_STRING": self._password,
            "PREFECT_UI_ENABLED": "0",
            "PREFECT__SERVER_EPHEMERAL": "1",
            "PREFECT__SERVER_FINAL": "1",
            "PREFECT_LOGGING_TO_API_ENABLED": "false",
            "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "WARNING",
            "PREFECT_SERVER_SERVICES_SCHEDULER_ENABLED": "false",
            "PREFECT_SERVER_SERVICES_LATE_RUNS_ENABLED": "false",
            "PREFECT_SERVER_SERVICES_TRIGGERS_ENABLED": "false",
        }
        if self.database.is_made:  # a second of start-up
            environment["PREFECT_API_DATABASE_MIGRATE_ON_START"] = "false"
            environment["PREFECT_API_BLOCKS_REGISTER_ON_START"] = "false"
        for name in ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING"):
            environment.pop(name, None)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*_COMMAND, str(self._listener.fileno()), str(os.getpid())],
                pass_fds=[self._listener.fileno()],
                env=environment,
                cwd=self.home.prefect,  # not the user's folder: what lies there is no business of the server's
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the run; the server still takes its last state
            )
        ending.spare(self._process.pid)

    def _keep_alive(self) -> None:
        """Start the server again, from this thread, with which it would end, until it is stopped or hopeless."""
        while True:
            assert self._process is not None
            code = self._process.wait()
            with self._starting:
                if self._stopped.is_set() or ending.is_ending():
                    return
                if not self._may_start_again(code):
                    self._give_up(code)
                    return
                if not self.database.is_made and not self._answered.is_set():
                    self.database.set_aside()  # a first start that was killed half-way leaves one that never opens
                self._start_process()

    def _give_up(self, code: int) -> None:
        """Give the server up: requests are refused from now on, and a run that has begun ends."""
        self._stopped.set()
        assert self._listener is not None
        self._listener.close()
        if self._answered.is_set():  # else `wait` says it
            what = f"ended {len(self._deaths)} times ({describe_exit(code)}); run again, what is done is found"
            ending.give_up(StageError(self.trouble(what)))

    def _may_start_again(self, code: int) -> bool:
        """Whether another start may help: it was killed, or it had lived; not too often, and not while it migrates."""
        now = time.monotonic()
        self._deaths = [moment for moment in self._deaths if now - moment < _DEATHS_WITHIN_SECONDS] + [now]
        if self._answered.is_set():
            return len(self._deaths) < _MAX_DEATHS
        if self.database.is_older:
            return False
        first_start = not self.database.is_made  # what it stumbles over may be what an earlier one left half-made
        return len(self._deaths) < _MAX_DEATHS if code < 0 else first_start and len(self._deaths) == 1

    def wait(self) -> None:
        """Wait until the server answers. Raises StageError with its log's last lines."""
        try:
            if not self._answers():
                raise StageError(self.trouble("did not start"))
            self._answered.set()
            self.database.mark_as_made()
        except BaseException:
            self.stop()
            raise
        finally:
            self._first_start.close()

    def _answers(self) -> bool:
        token = base64.b64encode(self._password.encode()).decode()
        request = urllib.request.Request(f"{self.url}/health", headers={"Authorization": f"Basic {token}"})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        deadline = time.monotonic() + (_MIGRATION_SECONDS if self.database.is_older else _START_SECONDS)
        while time.monotonic() < deadline and not self._stopped.is_set():
            try:
                # The socket listens from the beginning: the connection waits in its queue until the server is up.
                with opener.open(request, timeout=5) as response:
                    if response.status == 200:
                        return True
            except (OSError, http.client.HTTPException):  # it may be killed in the middle of its answer
                time.sleep(0.05)
        return False

    def trouble(self, what: str) -> str:
        """Say what happened to the server, with its log's last lines; or that the disk is full."""
        full = full_disk(self.home)
        if full is not None:
            return full
        elsewhere = named_elsewhere()
        over = f" over the database that {elsewhere} names" if elsewhere else ""
        return f"the Prefect server of this run{over} {what}; its log is {self._log}:\n{tail(self._log, 8)}"

    def stop(self) -> None:
        """End the server."""
        with self._starting:
            self._stopped.set()
        process, listener = self._process, self._listener
        if process is None or listener is None:
            return
        process.terminate()
        with waiting("the Prefect server ends"):
            try:
                process.wait(timeout=_HURRIED_STOP_SECONDS if ending.is_ending() else _STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        listener.close()


def prepare_database(home: Home) -> None:
    """Make this version's SQLite database whole, unless it is: a server killed while it does so leaves a wreck."""
    server = EmbeddedServer(home)
    server.database.check()
    if server.database.is_made:
        return
    with server.database.making():
        if not server.database.is_made:
            server.launch()
            server.wait()
            server.stop()


@contextlib.contextmanager
def embedded_server(home: Home) -> Iterator[EmbeddedServer]:
    """Start a server for the block; the caller waits for it when it needs it."""
    server = EmbeddedServer(home)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def main() -> None:
    """Serve on the socket that was handed down."""
    descriptor, parent = int(sys.argv[1]), int(sys.argv[2])
    die_with_parent(parent)
    import uvicorn
    from prefect.server.api.server import create_app

    from flows.web.prefect_server import guarded

    with socket.socket(fileno=os.dup(descriptor)) as listener:
        host, port = listener.getsockname()
    uvicorn.run(
        guarded(create_app(), frozenset({f"{host}:{port}"})),
        fd=descriptor,
        log_level="error",
        lifespan="on",
        http="h11",
        timeout_graceful_shutdown=2,
    )


if __name__ == "__main__":
    main()
