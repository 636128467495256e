"""What runs now: the supervisor's account of its services, one small JSON file."""

from __future__ import annotations

import contextlib
import datetime
import os
import signal
import time
from pathlib import Path

import psutil
from pydantic import BaseModel, ValidationError

from flows.services.settings import folder
from tasks.storage.artifacts import is_locked, write_atomic
from tasks.storage.home import Home


class ServiceState(BaseModel):
    """One service."""

    name: str
    process: int = 0
    """Its process id, which is also its group's."""
    born: str = ""
    """What tells that process from all others (`born`): a process id alone comes back after a reboot."""
    healthy: bool = False
    since: str = ""
    restarts: int = 0
    trouble: str = ""
    """Why it is not healthy, in words."""


class SupervisorState(BaseModel):
    """The supervisor and its services."""

    process: int = 0
    born: str = ""
    """What tells its process from all others, as of the services."""
    services: dict[str, ServiceState] = {}

    @property
    def healthy(self) -> bool:
        """Whether all services do their work."""
        return bool(self.services) and all(service.healthy for service in self.services.values())


def lock_path(home: Home) -> Path:
    """Lock that the supervisor holds as long as it lives."""
    return home.locks / "services.lock"


def is_up(home: Home) -> bool:
    """Whether a supervisor lives."""
    return is_locked(lock_path(home))


def read_state(home: Home) -> SupervisorState:
    """Return the last state that was written; an empty one where there is none."""
    try:
        return SupervisorState.model_validate_json((folder(home) / "state.json").read_bytes())
    except (FileNotFoundError, ValidationError):
        return SupervisorState()


def write_state(home: Home, state: SupervisorState) -> None:
    """Write the state, whole or not at all."""
    write_atomic(folder(home) / "state.json", state.model_dump_json(indent=1).encode())


def now_text() -> str:
    """Return the time for people."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def born(process: int) -> str:
    """Return the boot and the tick after it at which a process began; an empty text where there is none.

    psutil's creation time is counted from the boot's wall-clock time, which steps when the clock is set.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        # The second field, the program's name in parentheses, may hold spaces and parentheses of its own.
        fields = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return ""
    return f"{boot}:{int(fields[19])}"


def is_same(service: ServiceState) -> bool:
    """Whether the very process of the account lives (not another one that got its number)."""
    return service.process > 0 and born(service.process) == service.born != ""


def supervisor_of(home: Home) -> int:
    """Return the process id of the supervisor that wrote the state, 0 where that very process is no more."""
    state = read_state(home)
    return state.process if state.process > 0 and born(state.process) == state.born != "" else 0


def end_leftovers(home: Home, grace_seconds: float = 20.0) -> list[str]:
    """End services whose supervisor was killed; their runs end too, if they end the worker's group. Returns names."""
    alive = [service for service in read_state(home).services.values() if is_same(service)]
    for service in alive:
        end_process_group(service.process, grace_seconds)
    return [service.name for service in alive]


def end_process_group(group: int, grace_seconds: float) -> None:
    """Send SIGTERM to a group's leader, wait for it, then SIGKILL to what is left of the group."""
    try:
        leader = psutil.Process(group)
        leader.terminate()
        deadline = time.monotonic() + grace_seconds
        while time.monotonic() < deadline and leader.is_running() and leader.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.05)
    except psutil.Error:
        pass
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
