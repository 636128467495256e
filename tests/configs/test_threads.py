"""Sections are made while other threads work."""

from __future__ import annotations

import ast
import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from configs.base import ConfigModel

_TEXT = "\n".join(f"x{i} = {i}" for i in range(20))


class _Garbage:
    """Lets other threads run when it is collected, and leaves some more of its kind."""

    ended = False

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        if not _Garbage.ended:
            _Garbage()
        time.sleep(0.0002)


@pytest.fixture
def _others_parse() -> Iterator[None]:
    """Another thread parses, from deeper in its stack, and garbage is collected often."""
    thresholds, interval = gc.get_threshold(), sys.getswitchinterval()

    def work() -> None:
        while not _Garbage.ended:
            try:
                _deeper(40, lambda: ast.parse(_TEXT))
            except SystemError:  # the very mistake of Python's, in code that is not ours
                assert sys.version_info < (3, 12, 2)

    _Garbage.ended = False
    thread = threading.Thread(target=work)
    thread.start()
    _Garbage()
    gc.set_threshold(50, 1, 1)
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)
    _Garbage.ended = True
    gc.set_threshold(*thresholds)
    thread.join()
    gc.collect()


def _deeper(levels: int, call: Callable[[], object]) -> object:
    return _deeper(levels - 1, call) if levels else call()


@pytest.mark.usefixtures("_others_parse")
def test_a_class_s_source_is_parsed_whatever_other_threads_parse() -> None:
    """Without a pause of the garbage collection Python 3.11.7 fails on about one of three hundred of these classes."""
    for _ in range(200):

        class Probe(ConfigModel):
            """Many nodes for the parser to make."""

            first: int = 1 + (2 + (3 + (4 + (5 + (6 + (7 + (8 + 9)))))))
            """One."""
            second: tuple[int, ...] = (1, 2, 3, 4, 5 + 6, 7 + (8 + 9), 10, 11, 12)
            """Two."""
            third: tuple[tuple[str, int], ...] = (("a", 1), ("b", 2), ("c", 3 + 4))
            """Three."""

            def compute(self) -> list[int]:
                """Return something."""
                return [i * (i + (i * (i + 1))) for i in range(10) if i % 2 == 0 or (i > 3 and i < 7)]

        assert Probe.model_fields["third"].description == "Three."
