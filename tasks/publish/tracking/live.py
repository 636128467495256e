"""Follow a training in MLflow while it runs, from a thread: the training never waits for the tracking server.

A server that is away costs the live view only: the publish stage logs every step that the run lacks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psutil

from configs.schema import Recipe
from tasks.processes import ending
from tasks.processes.memory import tree_bytes
from tasks.processes.run_context import RunContext
from tasks.publish.tracking.mlflow_store import RunStatus, Tracker
from tasks.publish.tracking.records import Record, thin
from tasks.storage.home import Home
from tasks.storage.home_files.trouble import full_disk

_FLUSH_SECONDS = 2.0
_SAMPLE_SECONDS = 10.0
_RECORDS_A_FLUSH = 20  # a curve drawn live needs no more; the publish stage fills in what was thinned out
_CLOSE_SECONDS, _HURRIED_CLOSE_SECONDS = 60.0, 2.0
_SILENT_SECONDS, _CONNECT_SECONDS = 3.0, 15.0  # MLflow takes that long to be imported, where nothing is wrong


def system_sampler(tracking_uri: str) -> Callable[[], dict[str, float]]:
    """Return what samples the machine by MLflow's own collectors: CPU, memory, disk, network, GPU since the last call.

    MLflow's monitor is not started: its thread asks the server for the run before each sample, ends for good when one
    such call fails, and is waited for without a limit. Nothing is logged to `tracking_uri`, but MLflow opens it.
    """
    from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

    psutil.cpu_percent()  # the first call of psutil's CPU meter only starts it
    monitor: Any = SystemMetricsMonitor("", tracking_uri=tracking_uri)  # type: ignore[no-untyped-call]

    def sample() -> dict[str, float]:
        monitor.collect_metrics()
        values = {f"system/{name}": value for name, value in monitor.aggregate_metrics().items()}
        for collector in monitor.monitors:
            collector.clear_metrics()
        # Without the kernel's page cache.
        return {**values, "system/process_tree_memory_megabytes": tree_bytes() / 1e6}

    return sample


class LiveTracker:
    """Logs a training's records, and the machine's state, to the training's MLflow run as they come."""

    def __init__(
        self,
        home: Home,
        recipe: Recipe,
        train_key: str,
        context: RunContext | None = None,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        """Start the thread, which connects (seconds).

        `warn` is called when tracking stops, with the reason, and when `close` waits.
        """
        self._home, self._recipe, self._train_key, self._context = home, recipe, train_key, context
        self._warn = warn or (lambda text: None)
        self._waiting: list[Record] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._status: RunStatus | None = None
        self.run_id = ""
        """The MLflow run, once it is open."""
        self.run_url = ""
        """Its page."""
        self._thread = threading.Thread(target=self._work, daemon=True, name="live-tracker")
        self._thread.start()

    def record(self, record: Record) -> None:
        """Take a record of metrics (`step`, `epoch`, numbers); returns at once."""
        with self._lock:
            self._waiting.append(dict(record))

    def close(self, status: RunStatus | None = None) -> None:
        """Log what is left and set the run's status (None: it goes on); waits a minute at most, less at an end."""
        self._status = status
        self._closing.set()
        if ending.is_ending():
            self._thread.join(_HURRIED_CLOSE_SECONDS)
            return
        silent = _SILENT_SECONDS if self.run_id else _CONNECT_SECONDS
        self._thread.join(silent)
        if self._thread.is_alive():
            text = "waiting for MLflow, which has not taken the training's last metrics yet"
            self._warn(f"{text} ({_CLOSE_SECONDS:.0f} seconds at most; the publish stage logs what it lacks)")
            self._thread.join(_CLOSE_SECONDS - silent)

    def _work(self) -> None:
        try:
            tracker = Tracker(self._home, self._recipe.tracking.experiment)
            if ending.is_ending():
                return  # a run that was never opened needs no end
            tracker.open_run(self._train_key, self._recipe.name, self._context)
            self.run_id, self.run_url = tracker.run_id, tracker.run_url
            self._follow(tracker)
            tracker.close(self._status)
        except Exception as error:  # whatever it is, it must not end a training
            why = full_disk(self._home) or " ".join(str(error).split())
            self._warn(f"live tracking stopped; the publish stage will log the run: {why}")
            self._closing.wait()

    def _follow(self, tracker: Tracker) -> None:
        sampler = system_sampler(tracker.uri) if self._recipe.tracking.system_metrics else None
        ticks = 0
        every = round(_SAMPLE_SECONDS / _FLUSH_SECONDS)
        ended = begun = False
        while not ended:
            ended = self._closing.wait(_FLUSH_SECONDS)
            with self._lock:
                records, self._waiting = self._waiting, []
            for record in thin(records, _RECORDS_A_FLUSH):
                tracker.record(record)
            # MLflow's pages begin with the metric that came first: one of the model, not the machine's load.
            begun = begun or bool(records)
            if begun and sampler is not None and (ticks % every == 0 or ended):
                tracker.record({"step": ticks, **sampler()})
            ticks += 1
            tracker.flush()
