"""What is heard from a stage, passed on: to the terminal, to Prefect's logs and progress artifacts, to MLflow."""

from __future__ import annotations

import logging
import threading
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from flows.terminal.console import Reporter
from tasks.stage import Listener

if TYPE_CHECKING:
    from tasks.publish.tracking.live import LiveTracker

# Set by the command line; None where a Prefect worker runs the flow.
REPORTER: ContextVar[Reporter | None] = ContextVar("graphmill_reporter", default=None)


def current_reporter() -> Reporter | None:
    """Return who shows progress on the terminal. A function, since Dask pickles the flow by value with its globals."""
    return REPORTER.get()


_FIRST_ARTIFACT_SECONDS = 3.0
_ARTIFACT_EVERY_SECONDS = 5.0
_LOG_EVERY_SECONDS = 5.0
logger = logging.getLogger(__name__)


class ReporterListener(Listener):
    """Shows on the terminal what is heard."""

    def __init__(self, reporter: Reporter | None) -> None:
        self.reporter = reporter

    def begin(self, stage: str) -> None:
        """A stage begins."""
        if self.reporter is not None:
            self.reporter.start(stage)

    def end(self, stage: str, text: str) -> None:
        """The stage ended well."""
        if self.reporter is not None:
            self.reporter.finish(stage, text)

    def progress(self, stage: str, done: float, total: float, unit: str, note: str = "") -> None:
        """Show how far it is."""
        if self.reporter is not None:
            self.reporter.progress(stage, done, total, unit, note)

    def message(self, stage: str, text: str) -> None:
        """Show it."""
        if self.reporter is not None:
            self.reporter.message(stage, text)

    def warning(self, stage: str, text: str) -> None:
        """Show it."""
        if self.reporter is not None:
            self.reporter.warning(stage, text)


class RunListener(ReporterListener):
    """Hears the stages of one flow run."""

    def __init__(self, reporter: Reporter | None) -> None:
        super().__init__(reporter)
        self.tracker: LiveTracker | None = None
        """Gets training metrics while they are made."""
        self.tracked_run = ""
        """MLflow run of the training, once its live view is closed."""
        self._thread = threading.get_ident()
        self._stage_began = time.monotonic()
        self._artifact: Any = None
        self._artifact_at = 0.0
        self._validation = ""
        self._logged_at = 0.0
        self._progress_logged_at = 0.0

    def begin(self, stage: str) -> None:
        """A stage begins."""
        self._stage_began, self._artifact, self._artifact_at = time.monotonic(), None, 0.0
        self._progress_logged_at = self._stage_began
        super().begin(stage)

    def end(self, stage: str, text: str) -> None:
        """The stage ended well."""
        if self._artifact is not None:
            self._write_artifact(stage, 100.0, "")
        super().end(stage, text)
        self._log(logging.INFO, f"{stage}: {text}")

    def progress(self, stage: str, done: float, total: float, unit: str, note: str = "") -> None:
        """Show it, and keep Prefect's progress artifact of a stage that takes longer than a moment."""
        super().progress(stage, done, total, unit, note)
        now = time.monotonic()
        slow = now - self._stage_began >= _FIRST_ARTIFACT_SECONDS
        # Prefect's client belongs to the flow's thread.
        if total and slow and now - self._artifact_at >= _ARTIFACT_EVERY_SECONDS and self._in_flow_thread():
            self._artifact_at = now
            text = f"{done:,.0f} of {total:,.0f} {unit} {note} {self._validation}"
            self._write_artifact(stage, 100.0 * done / total, text)
            # Who follows the log hears it too: every ten seconds, of a stage that takes hours every few minutes.
            if self.reporter is None and now - self._progress_logged_at >= max(10.0, (now - self._stage_began) / 10):
                self._progress_logged_at = now
                self._log(logging.INFO, f"{stage}: {text}")

    def message(self, stage: str, text: str) -> None:
        """Log it, and show it to those who asked for more."""
        super().message(stage, text)
        self._log(logging.INFO, f"{stage}: {text}")

    def warning(self, stage: str, text: str) -> None:
        """Show and log it."""
        super().warning(stage, text)
        self._log(logging.WARNING, f"{stage}: {text}")

    def failure(self, stage: str, text: str) -> None:
        """Log the cause in a line: Prefect's traceback comes next."""
        self._log(logging.ERROR, f"{stage}: {text}")

    def metrics(self, stage: str, record: dict[str, float]) -> None:
        """Hand training metrics to MLflow's live view, and show validations in Prefect's log and progress."""
        if self.tracker is not None:
            self.tracker.record(record)
        found = {key: value for key, value in record.items() if key.startswith("valid")}
        if not found:
            return
        self._validation = ", ".join(f"{key} {value:.4f}" for key, value in found.items())
        now = time.monotonic()
        if now - self._logged_at >= _LOG_EVERY_SECONDS:  # small graphs have many epochs a second
            self._logged_at = now
            self._log(logging.INFO, f"{stage}: epoch {record.get('epoch', 0):.0f}: {self._validation}")

    def _in_flow_thread(self) -> bool:
        return threading.get_ident() == self._thread

    def _log(self, level: int, text: str) -> None:
        if not self._in_flow_thread():
            return
        from prefect.exceptions import MissingContextError
        from prefect.logging import get_run_logger

        try:
            get_run_logger().log(level, text)
        except MissingContextError:
            logger.log(level, text)

    def _write_artifact(self, stage: str, percent: float, text: str) -> None:
        import prefect.artifacts
        from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

        artifacts: Any = prefect.artifacts  # `_sync` is not in its annotations
        try:
            with temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}):  # nor is it worth waiting for
                if self._artifact is None:
                    self._artifact = artifacts.create_progress_artifact(
                        percent, key=f"progress-{stage}", description=f"{stage} {text}", _sync=True
                    )
                else:
                    artifacts.update_progress_artifact(
                        self._artifact, percent, description=f"{stage} {text}", _sync=True
                    )
        except Exception as error:  # a picture of progress is not worth a failed run
            logger.debug("no progress artifact: %s", error)
