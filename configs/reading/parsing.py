"""Parse Python sources while no garbage is collected.

In Python before 3.11.8 and 3.12.2 a parse fails now and then where garbage is collected in its middle while another
thread parses too (CPython's issue 106905): "AST constructor recursion depth mismatch", in two of 300 nightly runs.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_one_at_a_time = threading.RLock()  # the first of two threads to leave would let the other's garbage be collected
_paused = False


@contextmanager
def without_collection() -> Iterator[None]:
    """Collect no garbage within, afterwards as before; other threads wait until this one has left."""
    global _paused
    with _one_at_a_time:
        pauses = gc.isenabled()
        gc.disable()
        _paused = _paused or pauses
        try:
            yield
        finally:
            if pauses:
                _paused = False
                gc.enable()


def _forget() -> None:
    """Let go, in a forked child, of what another thread of its parent held."""
    global _one_at_a_time, _paused
    _one_at_a_time = threading.RLock()
    if _paused:
        _paused = False
        gc.enable()


os.register_at_fork(after_in_child=_forget)
