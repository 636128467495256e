"""Where a backfill stands: one row a partition, for tables, JSON and the report."""

from __future__ import annotations

import datetime
from collections import Counter
from dataclasses import asdict, dataclass, replace
from typing import Any

from configs.errors import GraphmillError
from flows.backfill import store
from flows.backfill.actions import deployment_of, has_ended, partition_recipe, state_of
from flows.backfill.spec import Backfill, Partition
from flows.commands.recipes.plan import make_plan
from flows.records.run_record import read_record
from flows.terminal.selection import Selection
from tasks.calls import load_stage
from tasks.storage.artifacts import ArtifactStore
from tasks.storage.home import Home


@dataclass(frozen=True)
class PartitionRow:
    """A partition as it stands."""

    name: str
    state: str
    """Prefect's word for its run; `skipped`, or `to be created`."""
    seconds: float | None = None
    started_at: str = ""
    attempts: int = 0
    message: str = ""
    flow_run_id: str = ""
    ended: bool = False
    """Whether nothing more happens to it by itself."""
    metrics: dict[str, dict[str, float]] | None = None
    stages: dict[str, dict[str, Any]] | None = None
    """Stage to `status` (`ran` or `cached`) and `seconds`, of a run that has completed."""


@dataclass(frozen=True)
class BackfillStatus:
    """All partitions of a backfill."""

    backfill: Backfill
    rows: list[PartitionRow]
    paused: bool = False

    @property
    def counts(self) -> dict[str, int]:
        """State to number of partitions."""
        return dict(Counter(row.state for row in self.rows))

    @property
    def ended(self) -> bool:
        """Whether all partitions have ended."""
        return all(row.ended for row in self.rows)

    @property
    def good(self) -> bool:
        """Whether all partitions have a result."""
        return all(row.state in ("completed", "skipped") for row in self.rows)

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            **self.backfill.model_dump(mode="json"),
            "paused": self.paused,
            "counts": self.counts,
            "partitions": [asdict(row) for row in self.rows],
        }


def read_status(client: Any, backfill: Backfill) -> BackfillStatus:
    """Ask the server for the backfill's runs."""
    runs = store.runs_of(client, backfill)
    deployment = deployment_of(client, backfill)
    queue = None if deployment is None else store.read_queue(client, deployment.work_pool_name, backfill)
    rows = [_row(partition, runs.get(partition.name), backfill) for partition in backfill.partitions()]
    return BackfillStatus(backfill, rows, bool(queue is not None and queue.is_paused))


def _row(partition: Partition, run: Any, backfill: Backfill) -> PartitionRow:
    if run is None:
        return PartitionRow(
            partition.name, "skipped" if backfill.complete else "to be created", ended=backfill.complete
        )
    state = run.state
    took = run.total_run_time
    if run.start_time and not run.end_time and state_of(run) == "RUNNING":
        took = datetime.datetime.now(datetime.UTC) - run.start_time
    return PartitionRow(
        name=partition.name,
        state=state_of(run).lower(),
        seconds=took.total_seconds() if took else None,
        started_at=run.start_time.isoformat(timespec="seconds") if run.start_time else "",
        attempts=run.run_count,
        message=" ".join((state.message or "").split()) if state is not None else "",
        flow_run_id=str(run.id),
        ended=has_ended(run),
    )


def counts_text(status: BackfillStatus) -> str:
    """Return `3 completed, 1 running, 2 scheduled`."""
    text = ", ".join(f"{number} {state}" for state, number in sorted(status.counts.items()))
    return f"{text} (paused)" if status.paused else text


def with_results(client: Any, home: Home, status: BackfillStatus) -> BackfillStatus:
    """Fill in metrics and stages from the runs' records; of a partition that was skipped from what it had."""
    deployment = deployment_of(client, status.backfill)
    given = {} if deployment is None else deployment.parameters
    place = Home.open(str(given.get("home") or home.root))
    rows = []
    for partition, row in zip(status.backfill.partitions(), status.rows, strict=True):
        metrics, stages = None, None
        if row.state in ("completed", "skipped"):
            record = read_record(place, row.flow_run_id) if row.flow_run_id else None
            if record is not None and record.status == "completed":
                stages = {name: one.model_dump(include={"status", "seconds"}) for name, one in record.stages.items()}
                metrics = record.metrics
            if not metrics and deployment is not None:
                metrics = _metrics_of_result(place, deployment, partition)
        rows.append(replace(row, metrics=metrics, stages=stages))
    return BackfillStatus(status.backfill, rows, status.paused)


def _metrics_of_result(home: Home, deployment: Any, partition: Partition) -> dict[str, dict[str, float]] | None:
    try:
        steps = make_plan(home, partition_recipe(deployment, partition), Selection())
        keys = {step.stage: step.key for step in steps if step.status == "cached"}
        if "evaluate" not in keys:
            return None
        manifest = ArtifactStore(home).load("evaluate", keys["evaluate"], load_stage("evaluate").manifest)
    except GraphmillError:  # its data or its recipe is no longer what it was
        return None
    return None if manifest is None else manifest.metrics
