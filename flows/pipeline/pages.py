"""What a flow run leaves on its page in Prefect besides its record: one artifact, and its map."""

from __future__ import annotations

import base64
import contextlib
import io
import logging
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from configs.errors import GraphmillError, UserError
from flows.pipeline.run_endings import manifest_of
from flows.records.run_record import RunRecord
from flows.records.tables import metric_table, stage_table
from flows.services.addresses import mlflow_page
from tasks.markdown import plain_markdown
from tasks.storage.home import Home

_PICTURE_BYTES = 300_000  # Prefect keeps artifacts in its database
_PICTURE_WIDTH = 1200
_PICTURED = ("train", "evaluate", "partition")
"""Stages whose last picture is the main one of a run that made them: validation curves, then what is found."""
logger = logging.getLogger(__name__)


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
    """Show a Markdown text on the run's page, the only one; one that cannot be made or sent fails no run."""
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
    parts = [metric_table("split", record.metrics, record.controls).markdown()] if record.metrics else []
    lines = [f"- model: {plain_markdown(record.champion)}"] if record.champion else []
    page = mlflow_page(record.mlflow_run_url)
    if page:
        report = page.replace("?", "/artifacts/report.html?") if record.report else ""
        lines += [f"- [report]({report})"] if report else []
        lines.append(f"- [MLflow run {record.mlflow_run_id}]({page}): curves, parameters, model")
    lines += [f"- report file: `{record.report}`"] if record.report else []
    lines += [f"- map file: `{record.map}`"] if record.map else []
    return "\n\n".join(
        filter(None, [*parts, "\n".join(lines), _main_picture(home, record), stage_table(record).markdown()])
    )


def failure_text(record: RunRecord, error: BaseException) -> str:
    """Return in one line what went wrong, and what to do: nobody should have to read the log."""
    stage = next((name for name in record.selected if name not in record.stages), "")
    lines = [f"**{f'{stage}: ' if stage else ''}{plain_markdown(error) or type(error).__name__}**", ""]
    if isinstance(error, UserError):
        lines.append("The recipe or its data must be mended; a retry alone would end the same way.")
    else:
        lines.append("Retry the run: stages that are done are found, training goes on from its last checkpoint.")
    if record.stages:
        lines += ["", stage_table(record).markdown()]
    return "\n".join(lines)


def _main_picture(home: Home, record: RunRecord) -> str:
    """Return the picture that says most of what this run made, its data inside the address: there is no file server."""
    for name in filter(record.has_run, _PICTURED):  # drawing costs seconds, and who made it has drawn it
        manifest = manifest_of(home, record, name)
        if manifest is None:
            continue
        from tasks.publish.plots.run_plots import for_manifest

        with tempfile.TemporaryDirectory() as place:
            for path in reversed(for_manifest(manifest, Path(record.stages[name].folder), Path(place))):
                content = path.read_bytes()
                if len(content) <= _PICTURE_BYTES:
                    return f"![{path.stem}](data:image/png;base64,{base64.b64encode(content).decode()})"
    return ""
