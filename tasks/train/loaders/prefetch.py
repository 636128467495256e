"""Make the next items in a background thread, so many ahead and no more."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")
_POLL_SECONDS = 0.1


def prefetch(make: Callable[[int], T], count: int, ahead: int) -> Iterator[T]:
    """Yield make(0), ..., make(count - 1) in order; up to `ahead` of them are made beforehand (0: none).

    An exception of `make` is raised where its item would have come. Leaving the loop early stops the thread.
    """
    if ahead == 0:
        yield from map(make, range(count))
        return
    made: queue.Queue[tuple[T | None, BaseException | None]] = queue.Queue(ahead)
    stop = threading.Event()

    def put(item: tuple[T | None, BaseException | None]) -> bool:
        while not stop.is_set():
            try:
                made.put(item, timeout=_POLL_SECONDS)
            except queue.Full:
                continue
            return True
        return False

    def run() -> None:
        try:
            for number in range(count):
                if not put((make(number), None)):
                    return
        except BaseException as error:  # handed over to the consumer, who raises it
            put((None, error))

    thread = threading.Thread(target=run, name="prefetch", daemon=True)
    thread.start()
    try:
        for _ in range(count):
            item, error = made.get()
            if error is not None:
                raise error
            yield item  # type: ignore[misc]
    finally:
        stop.set()
        thread.join()
