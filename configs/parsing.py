"""Parse Python sources while no garbage is collected.

In Python before 3.11.8 and 3.12.2 a parse fails now and then where garbage is collected in its middle while another
thread parses too (CPython's issue 106905): "AST constructor recursion depth mismatch", in two of 300 nightly runs.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Iterator[None]:
    """Collect no garbage within; afterwards as before."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
