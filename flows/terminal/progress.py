"""What is heard from a stage, passed on: to the terminal, to Prefect's logs and progress artifacts, to MLflow."""

from __future__ import annotations

import logging
import threading
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from flows.terminal.console import err, format_seconds
from flows.terminal.waiting import soon
from tasks.stage import Listener

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console
    from rich.progress import Progress, Task, TaskID

    from tasks.publish.tracking.live import LiveTracker

_PLAIN_EVERY_SECONDS = 10.0
_WARM_UP_SECONDS = 10.0
"""A stage's first steps compile and fill caches; what is left is guessed from later ones."""
_FIRST_ARTIFACT_SECONDS = 3.0
_ARTIFACT_EVERY_SECONDS = 5.0
_LOG_EVERY_SECONDS = 5.0
logger = logging.getLogger(__name__)


class Reporter(Listener):
    """Progress on stderr: one live line a stage on a terminal, now and then a plain line elsewhere."""

    def __init__(self, console: Console | None = None, *, verbose: bool = False) -> None:
        """With `verbose`, the beginning of each stage is a line too."""
        self.console = console or err()
        self.verbose = verbose
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._said_at = 0.0
        self._lock = threading.Lock()
        self._cancel: Callable[[], None] = lambda: None

    def waits(self, what: str) -> None:
        """Say what is waited for, unless something else comes within a moment."""
        self._cancel()
        self._cancel = soon(what)

    def begin(self, stage: str) -> None:
        """A stage begins."""
        self._cancel()
        self._said_at = time.monotonic()
        if self.console.is_terminal:
            self._progress = self._live()
            self._task = self._progress.add_task(stage, total=None, detail="")
            self._progress.start()
        elif self.verbose:
            self.console.print(f"{stage}: begins", markup=False)
        else:
            self.waits(stage)

    def progress(self, stage: str, done: float, total: float, unit: str, note: str = "") -> None:
        """Show how far the stage is; may be called from any thread."""
        amount = f"{_count(done)} of {_count(total)} {unit}" if total else f"{_count(done)} {unit} so far"
        detail = amount + (f"  {note}" if note else "")
        with self._lock:
            if self._progress is not None and self._task is not None:
                self._progress.update(self._task, completed=done, total=total or None, detail=detail)
            elif time.monotonic() - self._said_at >= _PLAIN_EVERY_SECONDS:
                self._said_at = time.monotonic()
                self.console.print(f"{stage}: {detail}", markup=False)

    def message(self, stage: str, text: str) -> None:
        """Show a line."""
        self._cancel()
        self.console.print(f"{stage}: {text}", style="dim", markup=False)

    def warning(self, stage: str, text: str) -> None:
        """Show a warning."""
        self.console.print(f"warning: {stage}: {text}", style="yellow", markup=False)

    def end(self, stage: str, text: str) -> None:
        """The stage has ended; `text` says how."""
        self.close()
        self.console.print(f"{stage:<11} {text}", markup=False)
        self.waits("Prefect records it")

    def close(self) -> None:
        """Take the live line away."""
        self._cancel()
        progress, self._progress, self._task = self._progress, None, None
        if progress is not None:
            progress.stop()

    def _live(self) -> Progress:
        from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.text import Text

        class _TimeLeft(ProgressColumn):
            """What is left, once it is known: not from a stage's first seconds, and not beside its own estimate."""

            def render(self, task: Task) -> Text:
                known = task.time_remaining is not None and (task.elapsed or 0.0) >= _WARM_UP_SECONDS
                told = " left" in str(task.fields["detail"])
                return Text(f"{format_seconds(task.time_remaining or 0.0)} left" if known and not told else "")

        return Progress(
            SpinnerColumn(),
            TextColumn("{task.description:<11}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[detail]}", markup=False),
            TimeElapsedColumn(),
            _TimeLeft(),
            console=self.console,
            transient=True,
            refresh_per_second=4,
        )


def _count(value: float) -> str:
    return f"{int(value):,}" if value == int(value) else f"{value:,.1f}"


REPORTER: ContextVar[Reporter | None] = ContextVar("graphmill_reporter", default=None)
"""Set by the command line; None where a Prefect worker runs the flow."""


class RunListener(Listener):
    """Hears the stages of one flow run."""

    def __init__(self, reporter: Reporter | None) -> None:
        self.reporter = reporter
        """Shows it on the terminal; None where a Prefect worker runs the flow."""
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
        if self.reporter is not None:
            self.reporter.begin(stage)

    def end(self, stage: str, text: str) -> None:
        """The stage ended well."""
        if self._artifact is not None:
            self._write_artifact(stage, 100.0, "")
        if self.reporter is not None:
            self.reporter.end(stage, text)
        self._log(logging.INFO, f"{stage}: {text}")

    def progress(self, stage: str, done: float, total: float, unit: str, note: str = "") -> None:
        """Show it, and keep Prefect's progress artifact of a stage that takes longer than a moment."""
        if self.reporter is not None:
            self.reporter.progress(stage, done, total, unit, note)
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
        if self.reporter is not None:
            self.reporter.message(stage, text)
        self._log(logging.INFO, f"{stage}: {text}")

    def warning(self, stage: str, text: str) -> None:
        """Show and log it."""
        if self.reporter is not None:
            self.reporter.warning(stage, text)
        self._log(logging.WARNING, f"{stage}: {text}")

    def failure(self, stage: str, text: str) -> None:
        """Log the cause in a line: Prefect's traceback comes next."""
        self._log(logging.ERROR, f"{stage}: {text}")

    def metrics(self, stage: str, record: dict[str, float]) -> None:
        """Hand training metrics to MLflow's live view, and show validations in Prefect's log and progress."""
        if self.tracker is not None:
            self.tracker.record(record)
        values = [f"{key} {value:.4f}" for key, value in record.items() if key.startswith("valid")]
        if not values:
            return
        self._validation = ", ".join(values)
        now = time.monotonic()
        if now - self._logged_at >= _LOG_EVERY_SECONDS:  # small graphs have many epochs a second
            self._logged_at = now
            self._log(logging.INFO, f"{stage}: epoch {record.get('epoch', 0):.0f}: {self._validation}")

    def close(self) -> None:
        """Take the live line on the terminal away."""
        if self.reporter is not None:
            self.reporter.close()

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
