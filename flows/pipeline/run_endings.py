"""How a flow run's record begins and ends, also where its process was killed, or where it finds everything."""

from __future__ import annotations

import contextlib
import socket
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from configs.errors import GraphmillError
from configs.schema import Recipe
from configs.values.expectations import ExpectConfig
from flows.notifications.events import failure_before
from flows.pipeline.tracking import end_killed_tracking, settle_champion
from flows.pipeline.watched_data import DataWatch
from flows.records.run_record import KILLED, RunRecord, all_runs, begun_record, is_killed, mark_killed, recorded
from flows.terminal.selection import Selection
from tasks.calls import ParentGoneError, StageRecord, find_stage, load_stage
from tasks.processes import ending
from tasks.stage import StageOutcome
from tasks.storage.artifacts import ArtifactStore, file_lock, try_lock
from tasks.storage.file_names import file_name
from tasks.storage.home import Home
from tasks.storage.home_files.source_digests import SourceDigests

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

    Of vectors of nodes F1 by the share of known labels, `f1_micro@0.5`, over all splits; of triples, those of whose
    entities training saw, `mrr@seen`, which is what GraphVite measures.
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


Progress = Callable[[str, float, float, str, str], None]


def find_all_stages(
    home: Home, recipe: Recipe, selection: Selection, progress: Progress
) -> list[StageOutcome[Any]] | None:
    """Return the artifact of each stage in order, as the flow would find it; None where one is to be made."""
    keys: dict[str, str] = {}
    outcomes = []
    try:
        for name in selection.all:
            stage = load_stage(name)
            stage.key_content(recipe, SourceDigests(home, partial(progress, name)))
            outcome = find_stage(name, recipe, {parent: keys[parent] for parent in stage.parents}, home)
            if outcome is None:
                return None
            keys[name] = outcome.manifest.key
            outcomes.append(outcome)
    except (GraphmillError, ParentGoneError):
        return None  # the flow says it, or mends it
    return outcomes


def is_expected(home: Home, recipe: Recipe, outcomes: list[StageOutcome[Any]], say: Callable[[str], None]) -> bool:
    """Whether the data that was found, however long ago it came, is what the recipe expects; `say` hears its age."""
    if recipe.expect == ExpectConfig():  # the run that made these has said what it saw
        return True
    keys = {outcome.manifest.stage: outcome.manifest.key for outcome in outcomes}
    try:
        DataWatch(home, recipe).look("ingest", keys, say, say)
    except GraphmillError:
        return False
    return True


def record_cached_run(home: Home, record: RunRecord, outcomes: list[StageOutcome[Any]]) -> bool:
    """Write down in the home a run that found all of its stages; False: there is more to do, which the flow has to."""
    if any(is_killed(home, one) for one in all_runs(home)) or failure_before(home, record):
        return False
    with recorded(home, record):
        record.stages = {outcome.manifest.stage: StageRecord.of(outcome) for outcome in outcomes}
        conclude(home, record)
    return True
