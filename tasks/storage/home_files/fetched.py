"""Files of a home that another machine has: who placed this process there fetches them when they are first opened."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from configs.errors import StageError

FETCHER = "GRAPHMILL_FETCHER"
"""Variable with the socket at which files are asked for; none: this process sees the home."""

_fetch_whole: Callable[[str], Path] | None = None


@contextlib.contextmanager
def fetching(fetch_whole: Callable[[str], Path]) -> Iterator[None]:
    """Have this process fetch whole files during the block, by what returns where they lie."""
    global _fetch_whole
    _fetch_whole = fetch_whole
    try:
        yield
    finally:
        _fetch_whole = None


def here(path: Path, start: int = 0, stop: int | None = None) -> Path:
    """Return a path whose bytes start to stop - 1 (None: all) lie on this machine. Raises StageError.

    Every reader of an artifact that a rank or a shard opens calls it first.
    """
    if _fetch_whole is not None:
        return _fetch_whole(str(path))
    if FETCHER in os.environ and path.is_absolute():
        _fetch(str(path), start, stop)
    return path


@contextlib.contextmanager
def short_path(path: Path) -> Iterator[str]:
    """Yield another name of a socket's path: theirs may have 107 characters."""
    folder = os.open(path.parent, os.O_PATH | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


@cache
def _fetch(path: str, start: int, stop: int | None) -> None:
    with socket.socket(socket.AF_UNIX) as asked:
        with short_path(Path(os.environ[FETCHER])) as name:
            asked.connect(name)
        asked.sendall(json.dumps({"path": path, "start": start, "stop": stop}).encode() + b"\n")
        with asked.makefile("r", encoding="utf-8") as answers:
            answer = json.loads(answers.readline() or '{"error": "the process that fetches files has ended"}')
    if answer.get("error"):
        raise StageError(answer["error"])
