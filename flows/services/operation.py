"""What `graphmill up`, `down` and `worker` do."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from configs.errors import RecipeError, StageError
from flows.services.commands import service_environment, worker_service
from flows.services.settings import (
    USER,
    ServiceSettings,
    checked_names,
    kept_seconds,
    log_path,
    read_settings,
    resolve,
    settings_path,
    write_settings,
)
from flows.services.state import end_leftovers, is_up, lock_path, read_state, supervisor_of
from flows.services.status import show_status
from flows.terminal.console import out
from flows.terminal.room import check_home
from flows.terminal.waiting import waiting
from tasks.processes.children import ROOT, tail
from tasks.storage.artifacts import file_lock
from tasks.storage.home import Home

_UP_SECONDS = 300.0
_DOWN_SECONDS = 90.0


def checked_options(named: dict[str, Any]) -> dict[str, Any]:
    """Return the options that were named as settings keep them; `--database sqlite` goes back to the default."""
    options = dict(named)
    if options.get("database") == "sqlite":
        options["database"] = None
    if "public_names" in options:
        options["public_names"] = checked_names(options["public_names"], "--public-name")
    for name in {"keep_events", "keep_runs"} & set(options):
        options[name] = kept_seconds(options[name], f"--{name.replace('_', '-')}")
    return options


def bring_up(home: Home, named: dict[str, Any], *, foreground: bool) -> None:
    """Start the supervisor unless it lives, and wait until all services are healthy; `named`: options by their names.

    Raises RecipeError: options that cannot be, or that differ from those of the services that run; StageError: a
    service did not come up; its log's last lines are in the message.
    """
    check_home(home)
    options = checked_options(named)
    with file_lock(home.locks / "up.lock"):
        kept = read_settings(home)
        if is_up(home):
            changed = [name for name, value in options.items() if kept is not None and getattr(kept, name) != value]
            if changed:
                names = ", ".join(f"--{name.replace('_', '-')}" for name in changed)
                raise RecipeError(f"graphmill is up with another {names}; end it first: graphmill down")
            _wait_until_healthy(home)
            out().print("graphmill is up already", style="bold")
            show_status(home, as_json=False)
            return
        end_leftovers(home)
        # Of this user's `up` on all homes, and in no folder where others write: they could hold it for ever.
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        with file_lock(cache / "graphmill" / "ports.lock"):
            earlier = kept or ServiceSettings()
            ports = {name: options.get(f"{name}_port") for name in ("prefect", "mlflow")}
            own = {name for name in earlier.named_ports if ports[name] != 0} | {name for name in ports if ports[name]}
            settings = resolve(earlier.model_copy(update={**options, "named_ports": tuple(sorted(own))}))
            write_settings(home, settings)
            with waiting("making the databases"):
                _prepare_stores(home, settings)
            command = [sys.executable, "-m", "flows.services.supervisor", str(home.root)]
            if foreground:
                os.chdir(ROOT)
                os.execv(sys.executable, command)
            with log_path(home, "supervisor").open("ab") as log:
                nowhere = subprocess.DEVNULL
                subprocess.Popen(command, cwd=ROOT, stdin=nowhere, stdout=log, stderr=log, start_new_session=True)
            with waiting("starting Prefect, MLflow and a worker"):
                _wait_until_healthy(home)
    show_status(home, as_json=False)
    if settings.password is not None and (kept is None or kept.password != settings.password):
        out().print(f"user      {USER}\npassword  {settings.password}   (shown once; kept in {settings_path(home)})")


def _prepare_stores(home: Home, settings: ServiceSettings) -> None:
    """Make databases whole before a server that may be killed half-way opens them."""
    if settings.database is None:
        from flows.web.temporary_server import prepare_database
        from tasks.publish.tracking.mlflow_registry import prepare_store

        prepare_database(home)
        prepare_store(home)
    else:
        from flows.services.settings import check_database

        check_database(settings)


def _wait_until_healthy(home: Home) -> None:
    began = time.monotonic()
    while time.monotonic() < began + _UP_SECONDS:
        state = read_state(home)
        if is_up(home):
            if state.healthy:
                return
            dead = [s for s in state.services.values() if s.restarts >= 3 and not s.healthy]
            if dead:
                raise StageError(_trouble(home, dead[0].name, f"{dead[0].name} {dead[0].trouble}"))
        elif time.monotonic() - began > 20:
            raise StageError(_trouble(home, "supervisor", "the supervisor ended"))
        time.sleep(0.2)
    sick = next((s.name for s in read_state(home).services.values() if not s.healthy), "supervisor")
    raise StageError(_trouble(home, sick, f"{sick} is not healthy after {_UP_SECONDS:.0f} s"))


def _trouble(home: Home, service: str, what: str) -> str:
    path = log_path(home, service)
    return f"{what}; graphmill down ends all. The last lines of {path}:\n{tail(path, 8)}"


def bring_down(home: Home) -> None:
    """End the supervisor and what a killed one left. Raises StageError: it neither ends nor says who it is."""
    was_up = is_up(home)
    if was_up:
        _end_supervisor(home)
    left = end_leftovers(home)
    ended = f" (ended what a killed supervisor left: {', '.join(left)})" if left else ""
    out().print(f"graphmill is down{ended}" if was_up or left else "graphmill was not up")


def _end_supervisor(home: Home) -> None:
    """Send SIGTERM to the supervisor, as soon as it has written who it is, and wait; in the end SIGKILL."""
    signalled = 0
    deadline = time.monotonic() + _DOWN_SECONDS
    while is_up(home) and time.monotonic() < deadline:
        process = supervisor_of(home)
        if process not in (0, signalled):
            _signal(process, signal.SIGTERM)
            signalled = process
        time.sleep(0.1)
    if not is_up(home):
        return
    process = supervisor_of(home)
    if not process:
        raise StageError(
            f"a supervisor holds {lock_path(home)} and does not say which process it is; end it by hand, then run "
            "graphmill down again"
        )
    _signal(process, signal.SIGKILL)
    time.sleep(0.2)


def _signal(process: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, number)


def run_worker(home: Home, pool: str, limit: int) -> None:
    """Become a worker of the servers that the environment names.

    Raises StageError: there is no PREFECT_API_URL, or its server cannot be prepared.
    """
    from flows.services.addresses import connect
    from flows.services.bootstrap import prepare_server

    connect(home)
    if not os.environ.get("PREFECT_API_URL"):
        raise StageError("a worker needs a server: set PREFECT_API_URL (and MLFLOW_TRACKING_URI), or run graphmill up")
    prepare_server(pool)
    kept = read_settings(home) or ServiceSettings()
    service = worker_service(home, kept.model_copy(update={"pool": pool, "limit": limit}))
    os.chdir(ROOT)
    os.execve(sys.executable, service.command, with_named_servers(service_environment(service)))


def with_named_servers(environment: dict[str, str]) -> dict[str, str]:
    """Let this process's own servers stand for those of the settings, which may be another machine's or none."""
    prefect = ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING", "PREFECT_UI_URL")
    servers = (*prefect, "MLFLOW_TRACKING_URI", "GRAPHMILL_TRACKING")
    others = {name: value for name, value in environment.items() if name not in servers}
    return others | {name: os.environ[name] for name in servers if name in os.environ}
