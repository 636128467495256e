"""What the machine does while a model trains: CPU, memory, disk, network, GPU, by MLflow's own collectors."""

from __future__ import annotations

from typing import Any

import psutil

from tasks.processes.memory import tree_bytes


class SystemSampler:
    """Samples the machine; each call gives the state since the last one.

    MLflow's monitor is not started: its thread asks the server for the run before each sample, ends for good when one
    such call fails, and is waited for without a limit. What is sampled here is logged as all other records are.
    """

    def __init__(self, tracking_uri: str) -> None:
        """Nothing is logged to `tracking_uri`, but MLflow opens it; its default is a file in the working folder."""
        from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

        psutil.cpu_percent()  # the first call of psutil's CPU meter only starts it
        self._monitor: Any = SystemMetricsMonitor("", tracking_uri=tracking_uri)  # type: ignore[no-untyped-call]

    def __call__(self) -> dict[str, float]:
        """Return metrics by name. `process_tree_memory_megabytes` leaves out the kernel's page cache."""
        self._monitor.collect_metrics()
        sample = {f"system/{name}": value for name, value in self._monitor.aggregate_metrics().items()}
        for collector in self._monitor.monitors:
            collector.clear_metrics()
        return {**sample, "system/process_tree_memory_megabytes": tree_bytes() / 1e6}
