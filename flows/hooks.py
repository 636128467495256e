"""What a flow run leaves behind in Prefect besides its record: a table, a link, pictures; and MLflow's live view."""

from __future__ import annotations

import base64
import contextlib
import logging
import socket
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from configs.errors import GraphmillError, UserError
from configs.schema import Recipe
from flows.run_records import KILLED, RunRecord, all_runs, bury
from flows.terminal.console import format_bytes, format_seconds
from flows.terminal.progress import RunListener
from tasks.calls import expected_key, find_stage, load_parents, load_stage
from tasks.processes.run_context import current_run
from tasks.storage.artifacts import ArtifactStore
from tasks.storage.home import Home

if TYPE_CHECKING:
    from tasks.publish.tracking.mlflow_store import RunStatus

_PICTURE_BYTES = 300_000  # Prefect keeps artifacts in its database
logger = logging.getLogger(__name__)


def open_tracking(listener: RunListener, home: Home, recipe: Recipe, record: RunRecord, *, force: bool) -> None:
    """Follow the training in MLflow while it runs; nothing is opened (and mlflow not imported) where it is cached."""
    keys = record.parent_keys(load_stage("train").parents)
    if not force and find_stage("train", recipe, keys, home) is not None:
        return
    from tasks.publish.tracking.live import LiveTracker

    key = expected_key("train", recipe, keys, home)
    listener.tracker = LiveTracker(home, recipe, key, current_run(), warn=lambda text: listener.warning("train", text))


def close_tracking(listener: RunListener, status: RunStatus | None = None) -> None:
    """End the live view; the MLflow run ends with it where a status is given, else with publication or the flow."""
    tracker, listener.tracker = listener.tracker, None
    if tracker is not None:
        tracker.close(status)
        listener.tracked_run = tracker.run_id


def end_tracking(listener: RunListener, home: Home, status: RunStatus) -> None:
    """Say how the MLflow run of a flow run ended that no publication has ended."""
    if listener.tracker is not None:
        close_tracking(listener, status)
    elif listener.tracked_run:
        from tasks.publish.tracking.run_states import set_state

        with contextlib.suppress(Exception):  # the error that is under way matters more, or the run is done
            set_state(home, listener.tracked_run, status)


def bury_dead_runs(home: Home, besides: str = "") -> list[RunRecord]:
    """Tell Prefect (and the records) of runs whose process was killed: they could not do it themselves.

    The run `besides` is this one; a retried run finds its own record of the first attempt. Returns the dead.
    """
    from prefect.client.orchestration import get_client
    from prefect.states import Crashed

    here, dead = socket.gethostname(), []
    for record in all_runs(home):
        if record.status != "running" or record.id == besides or record.host != here:
            continue
        buried = bury(home, record)
        if buried is None:
            continue
        dead.append(buried)
        bury_tracking(home, buried)
        with contextlib.suppress(Exception), get_client(sync_client=True) as client:  # another server knows it not
            run = client.read_flow_run(uuid.UUID(record.id))
            # One that was cancelled or is to start again already stays so.
            if run.state is not None and run.state.is_running():
                client.set_flow_run_state(run.id, Crashed(message=KILLED), force=True)
    return dead


def bury_tracking(home: Home, record: RunRecord) -> None:
    """End the MLflow run of a dead flow run; only one that came to its training has one."""
    if not {"partition", "train"} & set(record.stages):
        return
    from tasks.publish.tracking.run_states import bury as bury_tracked

    with contextlib.suppress(Exception):  # a store that is away: the next look at the run says what it is
        bury_tracked(home, str(record.config["tracking"]["experiment"]), record.id)


def leave_crashed(run_id: str) -> None:
    """Tell Prefect that this run's process ends, where it is not on its way out by itself."""
    from prefect.client.orchestration import get_client
    from prefect.states import Crashed

    with get_client(sync_client=True) as client:
        run = client.read_flow_run(uuid.UUID(run_id))
        if run.state is not None and run.state.is_running():
            client.set_flow_run_state(run.id, Crashed(message="its process was told to end"), force=True)


def log_what_was_found(home: Home, recipe: Recipe, record: RunRecord) -> None:
    """Log a deployment's run that found its publication as an MLflow run of its own: each night is one.

    A command that is typed again asks for what there is, and has that run.
    """
    publish = record.stages.get("publish")
    if not record.deployment or publish is None or publish["status"] != "cached":
        return
    from tasks.publish.tracking.run_states import log_found

    stage, published_in = load_stage("publish"), record.mlflow_run_id or ""
    try:
        parents = load_parents(stage, home, record.parent_keys(stage.parents))
        record.mlflow_run_id, record.mlflow_run_url = log_found(home, recipe, parents, published_in, current_run())
    except GraphmillError as error:
        logger.warning("MLflow has no run of this flow run: %s", error)


def conclude(home: Home, record: RunRecord) -> None:
    """Fill in metrics, report and MLflow run from the manifests."""
    store = ArtifactStore(home)
    for name in ("evaluate", "publish"):
        if name not in record.stages:
            continue
        stage = record.stages[name]
        manifest = store.load(name, stage["key"], load_stage(name).manifest)
        if manifest is None:
            continue
        record.metrics = manifest.metrics
        if name == "evaluate":
            record.controls = manifest.controls
        if name == "publish":
            record.mlflow_run_id = manifest.mlflow_run_id
            record.mlflow_run_url = manifest.mlflow_run_url
            record.report = str(store.folder(name, stage["key"]) / manifest.report_file)
            word = "champion" if manifest.champion else "not champion"
            reason = f", {manifest.gate['reason']}" if manifest.gate else ""
            record.champion = f"{manifest.model_name} version {manifest.model_version}: {word}{reason}"


def stage_table(record: RunRecord) -> str:
    """Return the table of stages as Markdown."""
    lines = ["| stage | | time | peak memory | rows | size |", "|---|---|--:|--:|--:|--:|"]
    for name, stage in record.stages.items():
        lines.append(
            f"| {name} | {stage['status']} | {format_seconds(stage['seconds'])} | {format_bytes(stage['peak_bytes'])} "
            f"| {stage['rows']:,} | {format_bytes(stage['bytes'])} |"
        )
    return "\n".join(lines)


def metrics_table(record: RunRecord) -> str:
    """Return the metrics as Markdown."""
    lines = ["| split | metric | value |", "|---|---|--:|"]
    for row, values in record.scores():
        lines += [f"| {row} | {name} | {value:.4f} |" for name, value in values.items()]
    return "\n".join(lines)


def results_text(record: RunRecord) -> str:
    """Return metrics and stages as Markdown."""
    return f"{metrics_table(record)}\n\n{stage_table(record)}" if record.metrics else stage_table(record)


def describe(result: dict[str, Any]) -> str:
    """Say in a line what a stage did."""
    size = format_bytes(result["bytes"])
    if result["status"] == "cached":
        return f"cached  {size}"
    parts = [f"ran     {format_seconds(result['seconds'])}", f"peak {format_bytes(result['peak_bytes'])}"]
    if result["rows"]:
        parts.append(f"{result['rows']:,} rows")
    return ", ".join([*parts, size])


def leave_artifacts(home: Home, record: RunRecord) -> None:
    """Create Prefect's artifacts; a server that refuses them does not fail a run that is done."""
    import prefect.artifacts

    artifacts: Any = prefect.artifacts  # `_sync` is not in its annotations
    try:
        artifacts.create_markdown_artifact(
            results_text(record), key="stages", description=f"{record.recipe}: what came of it", _sync=True
        )
        if record.mlflow_run_url:
            _leave_mlflow_link(artifacts, record)
        # Pictures of what was cached hang on the run that made it.
        seen: set[bytes] = set()
        for name, stage in record.stages.items():
            if stage["status"] == "ran":
                _leave_pictures(home, name, stage["key"], seen)
    except Exception as error:
        logger.warning("Prefect took no artifacts: %s", error)


def leave_failure(record: RunRecord, error: BaseException) -> None:
    """Say on the run's page in one line what went wrong, and what to do: nobody should have to read the log."""
    import prefect.artifacts

    artifacts: Any = prefect.artifacts
    stage = next((name for name in record.selected if name not in record.stages), "")
    lines = [f"**{f'{stage}: ' if stage else ''}{' '.join(str(error).split()) or type(error).__name__}**", ""]
    if isinstance(error, UserError):
        lines.append("The recipe or its data must be mended; a retry alone would end the same way.")
    else:
        lines.append("Retry the run: stages that are done are found, training goes on from its last checkpoint.")
    if record.stages:
        lines += ["", stage_table(record)]
    try:
        artifacts.create_markdown_artifact("\n".join(lines), key="failure", description="Why it failed", _sync=True)
    except Exception as trouble:
        logger.warning("Prefect took no artifact: %s", trouble)


def _leave_mlflow_link(artifacts: Any, record: RunRecord) -> None:
    from tasks.publish.tracking.store_uris import how_to_open

    what = {"key": "mlflow-run", "description": "Parameters, metrics by step, model", "_sync": True}
    text = f"MLflow run {record.mlflow_run_id}"
    if record.mlflow_run_url.startswith("http"):
        artifacts.create_link_artifact(record.mlflow_run_url, link_text=text, **what)
    else:  # a SQLite file: a browser needs a server first
        artifacts.create_markdown_artifact(f"{text}: `{how_to_open(record.mlflow_run_url)}`", **what)


def _leave_pictures(home: Home, name: str, key: str, seen: set[bytes]) -> None:
    """Show an artifact's plots as image artifacts (their data inside the address: there is no file server)."""
    import prefect.artifacts

    from tasks.publish.plots.run_plots import for_manifest

    artifacts: Any = prefect.artifacts
    store = ArtifactStore(home)
    manifest = store.load(name, key, load_stage(name).manifest)
    if manifest is None:
        return
    with tempfile.TemporaryDirectory() as place, contextlib.suppress(OSError):
        for path in for_manifest(manifest, store.folder(name, key), Path(place)):
            content = path.read_bytes()
            if len(content) > _PICTURE_BYTES or content in seen:  # stages that pass the graph on draw the same
                continue
            seen.add(content)
            artifacts.create_image_artifact(
                f"data:image/png;base64,{base64.b64encode(content).decode()}",
                key=path.stem.lower().replace("_", "-"),
                description=f"{name}: {path.stem}",
                _sync=True,
            )
