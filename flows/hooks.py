"""What a flow run leaves behind in Prefect besides its record: one artifact; and MLflow's live view."""

from __future__ import annotations

import base64
import contextlib
import io
import logging
import socket
import tempfile
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from configs.errors import GraphmillError, UserError
from configs.metric_names import telling
from configs.schema import Recipe
from flows.run_records import KILLED, RunRecord, all_runs, begun_record, mark_killed
from flows.services.addresses import mlflow_page
from flows.terminal.console import format_bytes, format_seconds
from flows.terminal.progress import RunListener
from tasks.calls import expected_key, find_stage, load_parents, load_stage
from tasks.markdown import plain_markdown
from tasks.processes import ending
from tasks.processes.run_context import current_run
from tasks.storage.artifacts import ArtifactStore, file_lock, try_lock
from tasks.storage.file_names import file_name
from tasks.storage.home import Home

if TYPE_CHECKING:
    from tasks.publish.tracking.mlflow_store import RunStatus

_PICTURE_BYTES = 300_000  # Prefect keeps artifacts in its database
_PICTURE_WIDTH = 1200
_USE = "use-"
"""What the locks of uses of models begin with."""
_PICTURED = ("train", "evaluate", "partition")
"""Stages whose last picture is the main one of a run that made them: validation curves, then what is found."""
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


def mark_killed_runs(home: Home, besides: str = "") -> list[RunRecord]:
    """Tell Prefect (and the records) of runs whose process was killed: they could not do it themselves.

    The run `besides` is this one; a retried run finds its own record of the first attempt. Returns the dead.
    """
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


def note_champion(home: Home, record: RunRecord, text: str, becoming: str) -> None:
    """Write down what becomes of the champion (`RunContext.note_champion`)."""
    record.champion, record.becoming = text, becoming
    record.write(home)


def settle_champion(home: Home, record: RunRecord) -> None:
    """Find out whether the alias was moved by a run that was killed meanwhile; a store that is away says it later."""
    name, _, version = record.becoming.rpartition("@")
    if not name:
        return
    from tasks.publish.gate.rules import CHAMPION
    from tasks.publish.tracking.registry import open_registry

    with contextlib.suppress(Exception):
        is_champion = open_registry(home).aliases(name).get(CHAMPION) == version
        word = "champion" if is_champion else "not champion, as the run was killed before it was"
        note_champion(home, record, f"{name} version {version}: {word}", "")


def end_killed_tracking(home: Home, record: RunRecord) -> None:
    """End the MLflow run of a dead flow run; only one that came to its training has one."""
    if not {"partition", "train"} & set(record.stages):
        return
    from tasks.publish.tracking.run_states import bury as bury_tracked

    with contextlib.suppress(Exception):  # a store that is away: the next look at the run says what it is
        bury_tracked(home, str(record.config["tracking"]["experiment"]), record.id)


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


def log_cached_publication(home: Home, recipe: Recipe, record: RunRecord) -> None:
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
    evaluated, published = (_manifest(store, record, name) for name in ("evaluate", "publish"))
    if evaluated is not None:
        record.metrics, record.controls = evaluated.metrics, evaluated.controls
    if published is not None:
        record.mlflow_run_id = published.mlflow_run_id
        record.mlflow_run_url = published.mlflow_run_url
        folder = store.folder("publish", published.key)
        record.report = str(folder / published.report_file)
        record.map = str(folder / published.maps[0]) if published.maps else ""
        word = "champion" if published.champion else "not champion"
        reason = f", {published.gate['reason']}" if published.gate else ""
        record.becoming = ""
        record.champion = f"{published.model_name} version {published.model_version}: {word}{reason}"


def _manifest(store: ArtifactStore, record: RunRecord, stage: str) -> Any:
    """Return the manifest of a stage of a run; None: the run has none, or it is gone."""
    made = record.stages.get(stage)
    return None if made is None else store.load(stage, made["key"], load_stage(stage).manifest)


def stage_table(record: RunRecord) -> str:
    """Return the table of stages as Markdown."""
    lines = ["| stage | | time | peak memory | rows | size |", "|---|---|--:|--:|--:|--:|"]
    for name, stage in record.stages.items():
        lines.append(
            f"| {name} | {stage['status']} | {format_seconds(stage['seconds'])} | {format_bytes(stage['peak_bytes'])} "
            f"| {record.rows_text(name)} | {format_bytes(stage['bytes'])} |"
        )
    return "\n".join(lines)


def metrics_table(record: RunRecord) -> str:
    """Return the metrics as Markdown: a row for each split and control, a column for each metric."""
    names = telling(name for _, values in record.scores() for name in values)
    lines = [f"| | {' | '.join(map(plain_markdown, names))} |", "|---|" + "--:|" * len(names)]
    for row, values in record.scores():
        cells = (f"{values[name]:.4f}" if name in values else "" for name in names)
        lines.append(f"| {plain_markdown(row)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def describe(result: dict[str, Any]) -> str:
    """Say in a line what a stage did."""
    size = format_bytes(result["bytes"])
    if result["status"] == "cached":
        return f"cached  {size}"
    parts = [f"ran     {format_seconds(result['seconds'])}", f"peak {format_bytes(result['peak_bytes'])}"]
    if result["rows"]:
        parts.append(f"{result['rows']:,} rows")
    return ", ".join([*parts, size])


def flow_record() -> RunRecord:
    """Return the record with which the flow run under way begins, before anything has been read."""
    from prefect import runtime
    from prefect.context import FlowRunContext

    context = FlowRunContext.get()  # `runtime.deployment` would ask the server
    deployment = context.flow_run.deployment_id if context is not None and context.flow_run is not None else None
    return begun_record(runtime.flow_run.id, runtime.flow_run.parameters, runtime.flow_run.tags, deployment)


@contextlib.contextmanager
def failure_told(record: RunRecord) -> Iterator[None]:
    """Say on the run's page, in a line, why the block failed."""
    for name in ("prefect.flow_runs", "prefect.task_runs"):
        logging.getLogger(name).addFilter(_without_traceback)
    try:
        yield
    except Exception as error:
        leave_artifact(partial(failure_text, record, error), "failure", "Why it failed")
        raise


def _without_traceback(line: logging.LogRecord) -> bool:
    """Let Prefect's log say an error of ours as it is: where in the code it was raised says nothing to its readers."""
    if line.exc_info and isinstance(line.exc_info[1], GraphmillError):
        line.exc_info = None
    return True


def leave_artifact(make_text: Callable[[], str], key: str, description: str) -> None:
    """Show a Markdown text on the run's page; one that cannot be made or sent fails no run.

    A run leaves one only, since Prefect's page shows several in no order.
    """
    import prefect.artifacts

    artifacts: Any = prefect.artifacts  # `_sync` is not in its annotations
    try:
        artifacts.create_markdown_artifact(make_text(), key=key, description=description, _sync=True)
    except Exception as error:
        logger.warning("Prefect took no artifact: %s", error)


def leave_map(record: RunRecord) -> None:
    """Show a run's layout as an image artifact in Prefect, where it has one; one that cannot be sent fails no run."""
    if not record.map:
        return
    import prefect.artifacts

    artifacts: Any = prefect.artifacts
    try:
        address = _image_address(Path(record.map).with_suffix(".png"))
        artifacts.create_image_artifact(address, key="map", description=f"{record.recipe}: its map", _sync=True)
    except Exception as error:
        logger.warning("Prefect took no picture of the map: %s", error)


def _image_address(path: Path) -> str:
    """Return a picture inside an address, made smaller where Prefect's database should not hold it as it is."""
    from PIL import Image

    content = path.read_bytes()
    width = _PICTURE_WIDTH
    while len(content) > _PICTURE_BYTES:
        with Image.open(path) as image:
            image.thumbnail((width, width))
            made = io.BytesIO()
            image.save(made, "png")
        content, width = made.getvalue(), width * 2 // 3
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"


def result_text(home: Home, record: RunRecord) -> str:
    """Return what came of a run as Markdown: metrics, where to look, the main picture, what the stages did."""
    parts = [metrics_table(record)] if record.metrics else []
    lines = [f"- model: {plain_markdown(record.champion)}"] if record.champion else []
    page = mlflow_page(record.mlflow_run_url)
    if page:
        report = page.replace("?", "/artifacts/report.html?") if record.report else ""
        lines += [f"- [report]({report})"] if report else []
        lines.append(f"- [MLflow run {record.mlflow_run_id}]({page}): curves, parameters, model")
    lines += [f"- report file: `{record.report}`"] if record.report else []
    lines += [f"- map file: `{record.map}`"] if record.map else []
    return "\n\n".join(filter(None, [*parts, "\n".join(lines), _main_picture(home, record), stage_table(record)]))


def failure_text(record: RunRecord, error: BaseException) -> str:
    """Return in one line what went wrong, and what to do: nobody should have to read the log."""
    stage = next((name for name in record.selected if name not in record.stages), "")
    lines = [f"**{f'{stage}: ' if stage else ''}{plain_markdown(error) or type(error).__name__}**", ""]
    if isinstance(error, UserError):
        lines.append("The recipe or its data must be mended; a retry alone would end the same way.")
    else:
        lines.append("Retry the run: stages that are done are found, training goes on from its last checkpoint.")
    if record.stages:
        lines += ["", stage_table(record)]
    return "\n".join(lines)


def _main_picture(home: Home, record: RunRecord) -> str:
    """Return the picture that says most of what this run made, its data inside the address: there is no file server."""
    store = ArtifactStore(home)
    for name in _PICTURED:
        if record.stages.get(name, {}).get("status") != "ran":  # drawing costs seconds, and the run that made it has it
            continue
        manifest = _manifest(store, record, name)
        if manifest is None:
            continue
        from tasks.publish.plots.run_plots import for_manifest

        with tempfile.TemporaryDirectory() as place:
            for path in reversed(for_manifest(manifest, store.folder(name, manifest.key), Path(place))):
                content = path.read_bytes()
                if len(content) <= _PICTURE_BYTES:
                    return f"![{path.stem}](data:image/png;base64,{base64.b64encode(content).decode()})"
    return ""
