"""What ranks hold in memory: their own pages, and how much of a folder's files they have mapped and read."""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from pathlib import Path
from types import TracebackType

import psutil

from tasks.processes.memory import process_bytes

_INTERVAL_SECONDS = 0.5


class RankMemory:
    """Context manager that looks at this process's descendants; afterwards it holds the most that one of them took."""

    def __init__(self, folder: Path) -> None:
        """`folder`: whose files count as mapped."""
        self.own_bytes = 0
        """Anonymous and shared memory."""
        self.mapped_bytes = 0
        """Pages of the folder's files, which the kernel could take back."""
        self._folder = f"{folder.resolve()}/"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> RankMemory:
        """Start looking."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop looking."""
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(_INTERVAL_SECONDS):
            for child in psutil.Process().children(recursive=True):
                self.own_bytes = max(self.own_bytes, process_bytes(child.pid))
                self.mapped_bytes = max(self.mapped_bytes, mapped_bytes(child.pid, self._folder))


def mapped_bytes(pid: int, folder: str) -> int:
    """Return how many bytes of files below `folder` a process has mapped and read; 0 if it is gone."""
    found: dict[str, int] = defaultdict(int)
    path = ""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
            name, _, value = line.partition(":")
            if " " in name:  # the first line of a mapping: addresses, rights, place in the file, file
                path = line.split(maxsplit=5)[5] if len(line.split(maxsplit=5)) > 5 else ""
            elif name == "Rss" and path.startswith(folder):
                found[path] += 1024 * int(value.split()[0])
    return sum(found.values())
