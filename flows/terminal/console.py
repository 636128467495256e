"""What the terminal shows: results on stdout; progress, warnings and mistakes on stderr."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

_PLAIN_EVERY_SECONDS = 10.0
_NO_TERMINAL_WIDTH = 1000
"""Columns of a pipe or file: tables are as wide as their contents, whatever reads them cuts."""


def out() -> Console:
    """Return the console for results."""
    return _console(sys.stdout.isatty(), stderr=False)


def err() -> Console:
    """Return the console for everything else."""
    return _console(sys.stderr.isatty(), stderr=True)


def _console(terminal: bool, *, stderr: bool) -> Console:
    from rich.console import Console

    width = None if terminal or "COLUMNS" in os.environ else _NO_TERMINAL_WIDTH
    return Console(stderr=stderr, highlight=False, soft_wrap=not terminal, width=width)


def format_bytes(count: float) -> str:
    """Return bytes in the unit that reads best (1 kB is 1000 bytes)."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(count) < 1000 or unit == "TB":
            return f"{count:.0f} {unit}" if unit == "B" or abs(count) >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError


def format_seconds(seconds: float) -> str:
    """Return a duration as people say it: 0.42 s, 12.3 s, 4 min 05 s, 2 h 03 min."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 120:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


class Reporter:
    """Progress on stderr: one live line a stage on a terminal, now and then a plain line elsewhere."""

    def __init__(self, console: Console | None = None, *, verbose: bool = False) -> None:
        """With `verbose`, the beginning of each stage is a line too."""
        self.console = console or err()
        self.verbose = verbose
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._said_at = 0.0
        self._lock = threading.Lock()

    def start(self, stage: str) -> None:
        """A stage begins."""
        self._said_at = time.monotonic()
        if self.console.is_terminal:
            self._progress = self._live()
            self._task = self._progress.add_task(stage, total=None, detail="")
            self._progress.start()
        elif self.verbose:
            self.console.print(f"{stage}: begins", markup=False)

    def progress(self, stage: str, done: float, total: float, unit: str, note: str = "") -> None:
        """Show how far the stage is; may be called from any thread."""
        detail = f"{_count(done)} of {_count(total)} {unit}" + (f"  {note}" if note else "")
        with self._lock:
            if self._progress is not None and self._task is not None:
                self._progress.update(self._task, completed=done, total=total or None, detail=detail)
            elif time.monotonic() - self._said_at >= _PLAIN_EVERY_SECONDS:
                self._said_at = time.monotonic()
                self.console.print(f"{stage}: {detail}", markup=False)

    def message(self, stage: str, text: str) -> None:
        """Show a line."""
        self.console.print(f"{stage}: {text}", style="dim", markup=False)

    def warning(self, stage: str, text: str) -> None:
        """Show a warning."""
        self.console.print(f"warning: {stage}: {text}", style="yellow", markup=False)

    def finish(self, stage: str, text: str) -> None:
        """The stage has ended; `text` says how."""
        self.close()
        self.console.print(f"{stage:<11} {text}", markup=False)

    def close(self) -> None:
        """Take the live line away."""
        progress, self._progress, self._task = self._progress, None, None
        if progress is not None:
            progress.stop()

    def _live(self) -> Progress:
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        return Progress(
            SpinnerColumn(),
            TextColumn("{task.description:<11}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[detail]}", markup=False),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            refresh_per_second=4,
        )


def _count(value: float) -> str:
    return f"{int(value):,}" if value == int(value) else f"{value:,.1f}"


def table(*columns: str, title: str | None = None, right: tuple[str, ...] = ()) -> Any:
    """Return an empty rich table; columns named in `right` are flushed right."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    made = Table(title=title, box=SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return made
