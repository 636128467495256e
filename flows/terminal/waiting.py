"""What a command waits for, said on standard error where that takes longer than a moment."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_MOMENT_SECONDS = 0.7


def soon(what: str) -> Callable[[], None]:
    """Say what is waited for, unless the function that is returned is called within a moment."""
    timer = threading.Timer(_MOMENT_SECONDS, _say, [what])
    timer.daemon = True
    timer.start()
    return timer.cancel


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Say what the block waits for, where it takes longer than a moment."""
    cancel = soon(what)
    try:
        yield
    finally:
        cancel()


def _say(what: str) -> None:
    dim, plain = ("\x1b[2m", "\x1b[0m") if sys.stderr.isatty() else ("", "")
    print(f"{dim}{what} ...{plain}", file=sys.stderr, flush=True)
