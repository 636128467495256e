"""Recovery: what a crash at night leaves behind is put right without anybody looking.

`python -m flows.recovery HOME` looks every few seconds after runs whose process or machine died (they are marked as
crashed), crashed runs (they start again under their own id, up to three times; training goes on from its last
checkpoint), runs that a worker took and never started, failures that nobody wrote down, runs that were cancelled while
no worker was there, and backfills that have ended. A run that is started twice does its work once: the second process
waits for the run's lock, and finds the record of the first (`flows.pipeline.train`).
"""

from __future__ import annotations

import datetime
import logging
import os
import signal
import socket
import sys
import time
from functools import partial
from typing import Any

from flows.deploy.deployments import all_pages
from flows.pipeline.run_endings import mark_killed_runs
from flows.records.run_record import RunRecord, all_runs, begun_record, is_alive, note_unbegun
from flows.services.bootstrap import RUN_TAG
from tasks.storage.home import Home

LOOK_SECONDS = 10.0
_FIRST_PAUSE_SECONDS = 10.0
# A worker starts a run's process within seconds, on a loaded machine within a minute.
_PENDING_SECONDS = 180.0
_PENDING_ELSEWHERE_SECONDS = 1800.0
"""Other kinds of pools: a node may have to start first, and fetch an image."""
_CANCELLING_SECONDS = 45.0
_GONE_SECONDS = 300.0
_FORGET_SECONDS = 3 * 86400.0
_AFTER_CRASH = "after a crash"
_MOST_CHARS = 500
logger = logging.getLogger("graphmill.recovery")


class Recovery:
    """Looks after the runs of one server."""

    def __init__(self, client: Any, home: Home) -> None:
        self._client = client
        self._home = home
        self._host = socket.gethostname()
        self._pool_types: dict[str, str] = {}

    def look(self) -> None:
        """Put right what is wrong now."""
        for record in mark_killed_runs(self._home):
            logger.warning("%s (%s): %s", record.recipe, record.id, record.error)
        records = {record.id: record for record in all_runs(self._home)}
        for state, mend in (
            ("CRASHED", self._start_again),
            ("PENDING", self._give_back),
            ("CANCELLING", self._end),
            ("RUNNING", self._mark_crashed),
            ("FAILED", self._note),
        ):
            for run in self._runs(state):
                mend(run, records.get(str(run.id)))
        from flows.backfill import store
        from flows.backfill.actions import resume_schedule_if_done, settle_tracking

        for backfill in store.all_backfills(self._client):
            if backfill.mlflow_state in ("", "RUNNING"):
                settle_tracking(self._client, self._home, backfill)
            if backfill.resume_schedule and resume_schedule_if_done(self._client, backfill):
                logger.warning("backfill %s has ended: %s's schedule goes on", backfill.id, backfill.deployment)

    def _start_again(self, run: Any, record: RunRecord | None) -> None:
        """Start a crashed run again after 10, 40, 160 seconds; one that lives after all goes on."""
        from prefect.states import Running

        from flows.backfill.actions import MAX_STARTS, schedule_again

        if record is not None and is_alive(self._home, record):
            # The server was away for longer than a run may be silent.
            self._client.set_flow_run_state(run.id, Running(message="its process lives"), force=True)
            logger.warning("%s: was said to have crashed, its process lives", run.name)
            return
        self._note(run, record)
        if run.run_count >= MAX_STARTS or run.deployment_id is None or self._age(run) < _FIRST_PAUSE_SECONDS:
            return
        starts = self._starts(run)
        if starts < MAX_STARTS and self._age(run) >= _FIRST_PAUSE_SECONDS * 4 ** max(starts - 1, 0):
            schedule_again(self._client, run.id, f"start {starts + 1} of {MAX_STARTS} {_AFTER_CRASH}")
            logger.warning("%s: starts again (%d of %d)", run.name, starts + 1, MAX_STARTS)

    def _note(self, run: Any, record: RunRecord | None) -> None:
        """Write down a run that ended before its process could: it was not started, or its code could not be loaded."""
        if record is not None or run.parameters.get("home") not in (None, str(self._home.root)):
            return
        begun = begun_record(str(run.id), run.parameters, run.tags, run.deployment_id)
        began, ended = run.start_time or run.state.timestamp, run.state.timestamp
        begun.started_at, begun.finished_at = began.isoformat(), ended.isoformat()
        begun.error = " ".join((run.state.message or run.state_name or "failed").split())[:_MOST_CHARS]
        if note_unbegun(self._home, begun):
            logger.warning("%s: ended before it began: %s", run.name, begun.error)

    def _starts(self, run: Any) -> int:
        """How often it has started. Prefect does not count those that crashed before they ran; we counted ours."""
        states = self._client.read_flow_run_states(run.id)
        again = sum((state.message or "").endswith(_AFTER_CRASH) for state in states)
        return max(int(run.run_count), again + 1)

    def _give_back(self, run: Any, record: RunRecord | None) -> None:
        from flows.backfill.actions import schedule_again

        patience = _PENDING_SECONDS if self._starts_processes(run) else _PENDING_ELSEWHERE_SECONDS
        if self._age(run) < patience or run.deployment_id is None:
            return
        if record is None or not is_alive(self._home, record):
            schedule_again(self._client, run.id, "its worker was gone before it started")
            logger.warning("%s: given back, its worker had not started it", run.name)

    def _end(self, run: Any, record: RunRecord | None) -> None:
        """End what was cancelled and still stands there: its worker should have done it long ago."""
        from prefect.states import Cancelled

        if self._age(run) < _CANCELLING_SECONDS:
            return
        if record is not None and record.host == self._host and is_alive(self._home, record):
            os.kill(record.process, signal.SIGTERM)  # it closes its record; the next look finds it ended
            logger.warning("%s: ended its process, it was cancelled", run.name)
        elif record is None or record.host == self._host or self._is_gone(run, record.host):
            self._client.set_flow_run_state(run.id, Cancelled(message="cancelled"), force=True)

    def _mark_crashed(self, run: Any, record: RunRecord | None) -> None:
        """Mark a run as crashed that died with its machine while the server was away: nobody noticed its silence."""
        from prefect.states import Crashed

        if record is None or record.host == self._host or is_alive(self._home, record):
            return
        if self._starts_processes(run) and self._is_gone(run, record.host):
            self._client.set_flow_run_state(run.id, Crashed(message=f"its machine {record.host} is gone"), force=True)
            logger.warning("%s: crashed, its machine %s is gone", run.name, record.host)

    def _starts_processes(self, run: Any) -> bool:
        name = run.work_pool_name
        if name is not None and name not in self._pool_types:
            self._pool_types[name] = str(self._client.read_work_pool(name).type)
        return self._pool_types.get(name, "process") == "process"

    def _is_gone(self, run: Any, host: str) -> bool:
        if self._age(run) < _GONE_SECONDS or run.work_pool_name is None:
            return False
        workers = self._client.read_workers_for_work_pool(run.work_pool_name)
        return not any(worker.name == host and worker.status == "ONLINE" for worker in workers)

    def _runs(self, state: str) -> list[Any]:
        """Return graphmill's runs in a state, however old they are; of those that have ended the last days' only."""
        from prefect.client.schemas.filters import (
            FlowRunFilter,
            FlowRunFilterEndTime,
            FlowRunFilterState,
            FlowRunFilterStateType,
            FlowRunFilterTags,
        )
        from prefect.client.schemas.objects import StateType

        ended = None
        if state in ("CRASHED", "FAILED"):
            since = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=_FORGET_SECONDS)
            ended = FlowRunFilterEndTime(after_=since)
        those = FlowRunFilter(
            state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType(state)])),
            end_time=ended,
            tags=FlowRunFilterTags(all_=[RUN_TAG]),
        )
        return all_pages(partial(self._client.read_flow_runs, flow_run_filter=those))

    @staticmethod
    def _age(run: Any) -> float:
        return float((datetime.datetime.now(datetime.UTC) - run.state.timestamp).total_seconds())


def main() -> None:
    """Look until ended; a server that is away is waited for."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    home = Home.open(sys.argv[1])
    from prefect.client.orchestration import get_client

    while True:
        try:
            with get_client(sync_client=True) as client:
                recovery = Recovery(client, home)
                while True:
                    recovery.look()
                    time.sleep(LOOK_SECONDS)
        except Exception as error:
            logger.warning("%s: %s; looking again soon", type(error).__name__, " ".join(str(error).split())[:300])
            time.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    main()
