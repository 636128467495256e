"""Memory: how much is left for this process, and the peak of a stage, child processes included."""

from __future__ import annotations

import contextlib
import os
import resource
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

import psutil

_MOST_SHARE = 0.01
"""Of one core, for looking."""


def process_bytes(pid: int | str = "self") -> int:
    """Return anonymous + shared memory of a process in bytes (no memory-mapped files); 0 if it is gone."""
    total = 0
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(("RssAnon:", "RssShmem:")):
                total += int(line.split()[1]) * 1024
    except OSError:
        return 0
    return total


def available_bytes() -> int:
    """Return how much memory this process can still get: what the machine, its cgroup and its own limit leave."""
    left = psutil.virtual_memory().available
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]  # ulimit -v
    if limit != resource.RLIM_INFINITY:
        left = min(left, limit - psutil.Process().memory_info().vms)
    for most, used, group in _cgroups():
        if most is not None and used is not None:  # pages of files do not count
            files = next((int(line.split()[1]) for line in _lines(group / "memory.stat") if "inactive_file" in line), 0)
            left = min(left, most - max(0, used - files))
    return max(0, left)


def out_of_memory(error: BaseException) -> str | None:
    """Return in a line what was asked for and what was free, where an error says that memory ran out; else None."""
    text = str(error).strip().splitlines()
    first = text[0] if text else ""
    # torch raises a bare RuntimeError on the CPU, and OutOfMemoryError (a RuntimeError) on a GPU.
    words = ("can't allocate memory", "cannot allocate memory", "out of memory", "failed to map segment")
    if not isinstance(error, MemoryError) and not any(word in str(error).lower() for word in words):
        return None
    return f"{first or 'an array could not be made'} ({available_bytes() / 1e9:.1f} GB are free on this machine now)"


def _cgroups() -> Iterator[tuple[int | None, int | None, Path]]:
    """Yield limit and use of each control group that this process is in, from its own to the root, and its folder."""
    for line in _lines(Path("/proc/self/cgroup")):
        _, controllers, place = line.split(":", 2)
        version_1 = "memory" in controllers.split(",")
        if controllers and not version_1:
            continue
        root = Path("/sys/fs/cgroup/memory" if version_1 else "/sys/fs/cgroup")
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if version_1 else ("memory.max", "memory.current")
        inside = Path(f"{root}{place}")
        for group in (inside, *inside.parents):
            limit, used = (_number(group / name) for name in names)
            yield limit, used, group
            if group == root:
                break


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _number(path: Path) -> int | None:
    """Return the number in a file of the kernel's; None where there is none, or the word `max`."""
    lines = _lines(path)
    return int(lines[0]) if lines and lines[0].isdigit() else None


def descendants(process: int | None = None) -> list[int]:
    """Return the ids of all processes below one (this one), from the kernel's lists of children where it keeps any."""
    root = process or os.getpid()
    if not Path(f"/proc/self/task/{threading.get_native_id()}/children").exists():
        try:
            return [child.pid for child in psutil.Process(root).children(recursive=True)]
        except psutil.Error:
            return []
    below: list[int] = []
    looking = [root]
    while looking:
        parent = looking.pop()
        # A child belongs to the thread that started it; threads and processes may end meanwhile.
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{parent}/task").iterdir():
                with contextlib.suppress(OSError):
                    looking += [int(word) for word in (thread / "children").read_text().split()]
        if parent != root:
            below.append(parent)
    return below


_shared: dict[int, int] = {}
"""Forked child to the memory that it shares with this process."""


@contextlib.contextmanager
def sharing(child: int, num_bytes: int) -> Iterator[None]:
    """Count of a forked child only what it takes beyond these bytes, which it had from this process."""
    _shared[child] = num_bytes
    try:
        yield
    finally:
        del _shared[child]


def tree_bytes(without: frozenset[int] = frozenset()) -> int:
    """Return the same for this process and all its descendants, leaving out those with a process id in `without`."""
    children = (child for child in descendants() if child not in without)
    return process_bytes() + sum(max(0, process_bytes(child) - _shared.get(child, 0)) for child in children)


class Watch:
    """Context manager whose thread calls `look` every so often, and takes at most a small share of a core for it."""

    seconds: ClassVar[float]
    """Between two looks, at least."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="watch")

    def look(self) -> None:
        """Note what there is now."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        """Start looking."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Look once more, and stop."""
        self._stop.set()
        self._thread.join()
        self.look()

    def _watch(self) -> None:
        pause = self.seconds
        while not self._stop.wait(pause):
            began = time.thread_time()
            self.look()
            pause = max(self.seconds, (time.thread_time() - began) / _MOST_SHARE)


class PeakMemory(Watch):
    """Samples memory into `peak_bytes`, without children that were there before."""

    seconds = 0.05

    def __init__(self) -> None:
        super().__init__()
        self.peak_bytes = 0
        self._others: frozenset[int] = frozenset()

    def __enter__(self) -> Self:
        """Start sampling."""
        self._others = frozenset(descendants())
        self.look()
        return super().__enter__()

    def look(self) -> None:
        """Add the processes up."""
        self.peak_bytes = max(self.peak_bytes, tree_bytes(self._others))
