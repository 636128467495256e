"""What a Prefect server must know before the first run: work pool, concurrency limits, the watch over dead runs.

`python -m flows.services.bootstrap POOL` does it through the API of `PREFECT_API_URL`, for runs in the home that the
environment names; doing it again changes nothing. The supervisor calls it in a process of its own.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from flows.environment.quiet import QUIET
from flows.services.commands import client_environment
from flows.services.settings import ServiceSettings
from tasks.processes.children import ROOT
from tasks.storage.home import Home

WATCH_NAME = "graphmill: mark dead runs as crashed"
# Heartbeats come every 30 s; the server looks at silent triggers every 5 s.
SILENCE_SECONDS = 90
RUN_TAG = "graphmill"
GPU_LIMIT = "graphmill-gpu"
MEMORY_LIMIT = "graphmill-big-memory"


def run_bootstrap(home: Home, settings: ServiceSettings) -> str:
    """Prepare the server from a process of its own. Returns what went wrong, or an empty string."""
    environment = {**os.environ, **QUIET, **client_environment(home, settings)}
    command = [sys.executable, "-m", "flows.services.bootstrap", settings.pool]
    try:
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=180)
    except subprocess.TimeoutExpired:
        return "the Prefect server did not take the work pool within three minutes"
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["bootstrap failed"])[-1]


def prepare_server(pool: str) -> None:
    """Make pool, limits and automation where they are missing; what an operator has changed stays as it is."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import GlobalConcurrencyLimitCreate, WorkPoolCreate
    from prefect.workers.process import ProcessWorker

    with get_client(sync_client=True) as client:
        template = ProcessWorker.get_default_base_job_template()
        made: Any = WorkPoolCreate(name=pool, type="process", base_job_template=template)
        _make(client.read_work_pool, client.create_work_pool, made)
        for name in (GPU_LIMIT, MEMORY_LIMIT):
            made = GlobalConcurrencyLimitCreate(name=name, limit=1)
            _make(client.read_global_concurrency_limit_by_name, client.create_global_concurrency_limit, made)
    _make_watch()


def _make(read: Callable[[str], Any], create: Callable[[Any], Any], wanted: Any) -> None:
    from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound

    try:
        read(wanted.name)
    except ObjectNotFound:
        with contextlib.suppress(ObjectAlreadyExists):
            create(wanted)


def _make_watch() -> None:
    from prefect.automations import Automation, EventTrigger
    from prefect.client.schemas.objects import StateType
    from prefect.events.actions import ChangeFlowRunState
    from prefect.events.schemas.automations import Posture

    automation: Any = Automation(
        name=WATCH_NAME,
        description="Heartbeats of a run stopped: its process was killed, or its machine went away.",
        trigger=EventTrigger(
            after={"prefect.flow-run.heartbeat"},
            expect={
                "prefect.flow-run.heartbeat",
                "prefect.flow-run.Completed",
                "prefect.flow-run.Failed",
                "prefect.flow-run.Cancelled",
                "prefect.flow-run.Crashed",
            },
            match={"prefect.resource.id": ["prefect.flow-run.*"]},
            for_each={"prefect.resource.id"},
            posture=Posture.Proactive,
            threshold=1,
            within=timedelta(seconds=SILENCE_SECONDS),
        ),
        actions=[ChangeFlowRunState(state=StateType.CRASHED, message="its process was killed: no sign of life")],
    )
    reader: Any = Automation
    try:
        reader.read(name=WATCH_NAME, _sync=True)
    except ValueError:
        automation.create(_sync=True)


def main() -> None:
    """Prepare the server of `PREFECT_API_URL`; on failure say why in the last line of stderr."""
    try:
        prepare_server(sys.argv[1])
    except Exception as error:
        text = " ".join(str(error).split())[:400]
        sys.exit(f"the Prefect server refused to be prepared: {type(error).__name__}: {text}")


if __name__ == "__main__":
    main()
