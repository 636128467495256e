"""Services are started in order, started again when they end, and ended when it is told.

`python -m flows.services.supervisor HOME` is what `graphmill up` leaves running. It holds a lock as long as it lives.
A service that ends is started again after 1, 2, 4, ... 60 seconds; one that lived ten minutes begins anew at 1.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

from flows.services.commands import Service, service_environment, services
from flows.services.health import answers
from flows.services.settings import ServiceSettings, folder, log_path, read_settings
from flows.services.state import (
    ServiceState,
    SupervisorState,
    born,
    end_leftovers,
    end_process_group,
    lock_path,
    now_text,
    write_state,
)
from tasks.processes.children import describe_exit
from tasks.storage.artifacts import file_lock
from tasks.storage.home import Home

_LOOK_SECONDS = 1.0
_HEALTH_EVERY_SECONDS = 10.0
_START_SECONDS = 240.0
_SICK_SECONDS = 120.0
_LONGEST_PAUSE_SECONDS = 60.0
_GOOD_LIFE_SECONDS = 600.0
_GRACE_SECONDS = 20.0
_LOG_BYTES = 20_000_000


class Keeper:
    """Keeps one service running."""

    def __init__(self, service: Service, state: ServiceState, log: Path | None = None) -> None:
        """`log` takes what the service prints; None: it goes where this process's goes."""
        self.service, self.state, self._log = service, state, log
        self.code = 0
        """How it ended last."""
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._well = 0.0
        self._looked = 0.0
        self._again_at = 0.0
        self._pause = 1.0

    def look(self, may_start: bool) -> bool:
        """Start, restart or check the service. Returns whether the state changed."""
        before = self.state.model_copy()
        now = time.monotonic()
        if self._process is not None and self._process.poll() is not None:
            self._ended(now)
        if self._process is None and may_start and now >= self._again_at:
            self._start(now)  # which counts as a look
        pause = _HEALTH_EVERY_SECONDS if self.state.healthy else _LOOK_SECONDS
        if self._process is not None and now - self._looked >= pause:
            self._check(now)
        return before != self.state

    def _start(self, now: float) -> None:
        with self._log.open("ab") if self._log is not None else nullcontext() as log:
            if log is not None:
                log.write(f"--- {now_text()} starting {self.service.name}\n".encode())
                log.flush()
            self._process = subprocess.Popen(
                self.service.command,
                env=service_environment(self.service),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._started = self._well = self._looked = now
        self.state.process = self._process.pid
        self.state.born = born(self._process.pid)
        self.state.since, self.state.healthy, self.state.trouble = now_text(), False, "starting"

    def _ended(self, now: float) -> None:
        assert self._process is not None
        self.code = self._process.returncode
        end_process_group(self._process.pid, 0.0)  # what it left behind holds its port
        self._process = None
        if now - self._started > _GOOD_LIFE_SECONDS:
            self._pause = 1.0
        self._again_at = now + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)
        self.state.process, self.state.healthy = 0, False
        self.state.restarts += 1
        self.state.trouble = f"ended with {describe_exit(self.code)}; see its log"

    def _check(self, now: float) -> None:
        assert self._process is not None
        self._looked = now
        trouble = answers(self.service.health_url) if self.service.health_url else ""
        self.state.healthy, self.state.trouble = not trouble, trouble
        if not trouble:
            self._well = now
        elif now - self._well > (_SICK_SECONDS if self._well > self._started else _START_SECONDS):
            self.state.trouble = f"{trouble}; restarted"
            self._process.kill()  # it lives and does not answer: only this helps

    def stop(self) -> None:
        """End the service and wait for it."""
        if self._process is not None:
            end_process_group(self._process.pid, _GRACE_SECONDS)
            self._process.wait()
        self._process = None
        self.state.process, self.state.healthy, self.state.trouble = 0, False, "stopped"


class Supervisor:
    """Keeps all services running until `stop`."""

    def __init__(self, home: Home, settings: ServiceSettings) -> None:
        self.home = home
        self.state = SupervisorState(process=os.getpid(), born=born(os.getpid()))
        self._settings = settings
        self._keepers = []
        for service in services(home, settings):
            self.state.services[service.name] = ServiceState(name=service.name, trouble="waiting")
            log = log_path(home, service.name)
            self._keepers.append(Keeper(service, self.state.services[service.name], log))
        self._stopping = False
        self._prepared = False

    def run(self) -> None:
        """Watch until told to stop, then end the services in reverse order."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: setattr(self, "_stopping", True))
        write_state(self.home, self.state)
        while not self._stopping:
            changed = [keeper.look(self._may_start(keeper)) for keeper in self._keepers]
            rotate_logs(self.home, [*self.state.services, "supervisor"])
            if any(changed):
                write_state(self.home, self.state)
            time.sleep(_LOOK_SECONDS / 4 if not self.state.healthy else _LOOK_SECONDS)
        for keeper in reversed(self._keepers):
            keeper.stop()
            write_state(self.home, self.state)

    def _may_start(self, keeper: Keeper) -> bool:
        """Worker and recovery need a server that answers and knows the pool; servers start at once."""
        if keeper.service.name in ("prefect", "mlflow"):
            return True
        if not self.state.services["prefect"].healthy or not self.state.services["mlflow"].healthy:
            return False
        if not self._prepared:
            from flows.services.bootstrap import run_bootstrap

            trouble = run_bootstrap(self.home, self._settings)
            self._prepared = not trouble
            keeper.state.trouble = trouble or "starting"
        return self._prepared


def keep_running(services: list[Service]) -> int:
    """Run services in the foreground until the first ends, or until SIGTERM or SIGINT; the others start again."""
    received: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: received.append(number))
    keepers = [Keeper(service, ServiceState(name=service.name)) for service in services]
    while not received and not keepers[0].state.restarts:
        for keeper in keepers:
            if keeper.look(may_start=True) and keeper.state.restarts:
                print(f"{keeper.service.name} {keeper.state.trouble}", flush=True)
        time.sleep(_LOOK_SECONDS / 2)
    for keeper in reversed(keepers):
        keeper.stop()
    return 0 if received else keepers[0].code


def rotate_logs(home: Home, names: list[str]) -> None:
    """Copy a log that has grown too long to `.log.1` and cut it: who writes it goes on. A full disk ends no service."""
    for name in names:
        path = log_path(home, name)
        with contextlib.suppress(OSError):
            if path.stat().st_size > _LOG_BYTES:
                shutil.copyfile(path, path.with_suffix(".log.1"))
                os.truncate(path, 0)


@contextlib.contextmanager
def temporary_files(home: Home) -> Iterator[None]:
    """Have the services put temporary files into a folder of their own, which is empty now and removed in the end."""
    place = folder(home) / "tmp"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(mode=0o700)
    os.environ["TMPDIR"] = str(place)
    try:
        yield
    finally:
        shutil.rmtree(place, ignore_errors=True)


def main() -> None:
    """Take the lock, end what a killed supervisor left, and supervise."""
    home = Home.open(sys.argv[1])
    settings = read_settings(home)
    assert settings is not None, "graphmill up writes the settings first"
    with file_lock(lock_path(home)):
        end_leftovers(home)
        with temporary_files(home):
            Supervisor(home, settings).run()


if __name__ == "__main__":
    main()
