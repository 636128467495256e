"""How a flow run's record begins and ends, also where its process was killed."""

from __future__ import annotations

import contextlib
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flows.pipeline.tracking import end_killed_tracking, settle_champion
from flows.records.run_record import KILLED, RunRecord, all_runs, begun_record, mark_killed
from tasks.calls import load_stage
from tasks.processes import ending
from tasks.storage.artifacts import ArtifactStore, file_lock, try_lock
from tasks.storage.file_names import file_name
from tasks.storage.home import Home

_USE = "use-"
"""What the locks of uses of models begin with."""


def flow_record() -> RunRecord:
    """Return the record with which the flow run under way begins, before anything has been read."""
    from prefect import runtime
    from prefect.context import FlowRunContext

    context = FlowRunContext.get()  # `runtime.deployment` would ask the server
    deployment = context.flow_run.deployment_id if context is not None and context.flow_run is not None else None
    return begun_record(runtime.flow_run.id, runtime.flow_run.parameters, runtime.flow_run.tags, deployment)


def conclude(home: Home, record: RunRecord) -> None:
    """Fill in metrics, report and MLflow run from the manifests."""
    evaluated, published = (manifest_of(home, record, name) for name in ("evaluate", "publish"))
    if evaluated is not None:
        record.metrics, record.controls = evaluated.metrics, evaluated.controls
        record.reported = reported_metrics(evaluated.report, evaluated.metrics.get("test", {}))
    if published is not None:
        record.mlflow_run_id = published.mlflow_run_id
        record.mlflow_run_url = published.mlflow_run_url
        folder = Path(record.stages["publish"].folder)
        record.report = str(folder / published.report_file)
        record.map = str(folder / published.maps[0]) if published.maps else ""
        word = "champion" if published.champion else "not champion"
        record.becoming = ""
        record.champion = f"{published.model_name} version {published.model_version}: {word}, {published.gate.reason}"


def manifest_of(home: Home, record: RunRecord, stage: str) -> Any:
    """Return the manifest of a stage of a run; None: the run has none, or it is gone."""
    made = record.stages.get(stage)
    return None if made is None else ArtifactStore(home).load(stage, made.key, load_stage(stage).manifest)


def reported_metrics(report: dict[str, Any], test: dict[str, float]) -> dict[str, float]:
    """Return the metrics of the test split that an evaluation's report has beside those in `test`.

    Of vectors of nodes these are F1 by the share of labels that were known, `f1_micro@0.5`: what is known and what is
    measured is drawn anew for each share, from all splits. Of triples they are the metrics of those whose entities
    training saw, `mrr@seen`, which is what GraphVite measures.
    """
    shares = report.get("vectors", {}).get("label_shares", {}).get("shares", [])
    metrics = {f"f1_{average}@{one['share']:g}": one[average] for one in shares for average in ("micro", "macro")}
    unseen = report.get("triples", {}).get("unseen")
    if unseen is not None:
        seen = unseen.get("metrics", {} if unseen["entities"] else test)
        metrics |= {f"{name}@seen": value for name, value in seen.items()}
    return metrics


def mark_killed_runs(home: Home, besides: str = "") -> list[RunRecord]:
    """Tell Prefect and the records of runs whose process was killed, all but this one (`besides`); returns the dead."""
    here, dead = socket.gethostname(), []
    for record in all_runs(home):
        if record.status != "running" or record.id == besides or record.host != here:
            continue
        buried = mark_killed(home, record)
        if buried is None:
            continue
        settle_champion(home, buried)
        dead.append(buried)
        end_killed_tracking(home, buried)
        with contextlib.suppress(Exception):  # another server does not know it
            _set_crashed(record.id, KILLED)
    for lock in home.locks.glob(f"{_USE}*.lock"):
        with try_lock(lock) as held:
            text = lock.read_text() if held else None
            if text == here:
                with contextlib.suppress(Exception):
                    _set_crashed(lock.stem.removeprefix(_USE), KILLED)
            if text in ("", here):  # empty: its use has ended in this moment
                lock.unlink(missing_ok=True)
    return dead


@contextlib.contextmanager
def use_seen(home: Home, run_id: str) -> Iterator[None]:
    """Let others see that a use of a model lives, which has no record; the next with a server marks a killed one."""
    mark_killed_runs(home)
    path = home.locks / f"{_USE}{file_name(run_id)}.lock"
    with file_lock(path), ending.closing(lambda: report_crash(run_id)):
        path.write_text(socket.gethostname())
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def report_crash(run_id: str) -> None:
    """Tell Prefect that this run's process ends, where it is not on its way out by itself."""
    _set_crashed(run_id, "its process was told to end")


def _set_crashed(run_id: str, message: str) -> None:
    """Tell Prefect that a run crashed; one that was cancelled or is to start again already stays so."""
    from prefect.client.orchestration import get_client
    from prefect.states import Crashed

    with get_client(sync_client=True) as client:
        run = client.read_flow_run(uuid.UUID(run_id))
        if run.state is not None and run.state.is_running():
            client.set_flow_run_state(run.id, Crashed(message=message), force=True)
