"""What the ranks write to stdout and stderr, passed on line by line while they run.

A line `warning: TEXT` is a warning of the stage's: it stays in its record.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tasks.supervise import MESSAGE, WARNING

_LINES_A_LOOK = 100
_LINE_CHARACTERS = 2000
SUPERVISOR_LOG = "launch.log"
"""What who starts the ranks says, and what they print before they have logs of their own."""


class RankLogs:
    """Follows `rank-N.log` files and passes on each whole line as `rank N: line`, and each warning once.

    Of the log of who starts them warnings and messages only are passed on."""

    def __init__(self, folder: Path, message: Callable[[str], None], warn: Callable[[str], None]) -> None:
        self._folder = folder
        self._message, self._warn = message, warn
        self._warnings: set[str] = set()
        self._offsets: dict[Path, int] = {}

    def look(self) -> None:
        """Pass on what is new; of many lines the first, with a note where the others are."""
        for path in sorted(self._folder.glob("rank-*.log")):
            rank = path.stem.replace("-", " ")
            lines = self._new_lines(path)
            for line in lines[:_LINES_A_LOOK]:
                self._pass_on(rank, line[:_LINE_CHARACTERS])
            if len(lines) > _LINES_A_LOOK:
                self._message(f"{rank}: {len(lines) - _LINES_A_LOOK} more lines in {path}")

        for line in self._new_lines(self._folder / SUPERVISOR_LOG):
            if line.startswith(WARNING):
                self._pass_on("", line)
            elif line.startswith(MESSAGE):
                self._message(line.removeprefix(MESSAGE))

    def _pass_on(self, rank: str, line: str) -> None:
        warning = line.removeprefix(WARNING)
        if warning == line:
            self._message(f"{rank}: {line}")
        elif warning not in self._warnings:
            self._warnings.add(warning)
            self._warn(warning)

    def start_again(self) -> None:
        """The logs are those of a new attempt."""
        self._offsets.clear()

    def _new_lines(self, path: Path) -> list[str]:
        try:
            with path.open("rb") as file:
                file.seek(self._offsets.get(path, 0))
                content = file.read()
        except FileNotFoundError:
            return []
        whole = content[: content.rfind(b"\n") + 1]
        self._offsets[path] = self._offsets.get(path, 0) + len(whole)
        return [line for line in whole.decode(errors="replace").splitlines() if line.strip()]
