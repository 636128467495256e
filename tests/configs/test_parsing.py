"""Sources of sections are parsed while no garbage is collected, whatever other threads do."""

from __future__ import annotations

import ast
import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from configs.base import ConfigModel
from configs.reading.parsing import without_collection


@contextmanager
def another_thread_inside() -> Iterator[None]:
    inside, leave = threading.Event(), threading.Event()

    def parse() -> None:
        with without_collection():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=parse)
    thread.start()
    assert inside.wait(10)
    try:
        yield
    finally:
        leave.set()
        thread.join()


def test_garbage_is_collected_again_afterwards_even_after_an_error() -> None:
    def parse() -> None:
        with without_collection():
            with without_collection():
                pass
            assert not gc.isenabled()
            raise ValueError("a parse")

    with pytest.raises(ValueError, match="a parse"):
        parse()
    assert gc.isenabled()


def test_a_second_thread_waits_and_finds_no_garbage_collected() -> None:
    seen: list[bool] = []

    def parse() -> None:
        with without_collection():
            seen.append(gc.isenabled())

    second = threading.Thread(target=parse)
    with another_thread_inside():
        second.start()
        second.join(0.05)
        assert second.is_alive()
        assert not gc.isenabled()
    second.join(10)
    assert seen == [False]
    assert gc.isenabled()


def test_a_child_forked_while_another_thread_parses_can_parse_and_collects() -> None:
    with another_thread_inside():
        child = os.fork()
        if child == 0:
            collects = gc.isenabled()
            free = threading.Event()

            def parse() -> None:
                with without_collection():
                    free.set()

            threading.Thread(target=parse, daemon=True).start()
            os._exit(0 if collects and free.wait(5) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert gc.isenabled()


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
