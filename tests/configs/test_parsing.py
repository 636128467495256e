"""Sources are parsed while no garbage is collected."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from configs.reading.parsing import without_collection


@contextmanager
def another_thread_inside() -> Iterator[None]:
    """Hold a second thread within `without_collection`."""
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
