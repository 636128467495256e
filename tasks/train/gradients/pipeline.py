"""Make the next batches in background threads: so many ahead and no more, in order, across the borders of epochs.

After DistDGLv2 (Zheng et al., KDD 2022, https://arxiv.org/abs/2112.15345), whose pipeline is never drained
between epochs either. Threads and not processes: kernels that make batches release the GIL, and nothing is pickled.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import torch

from configs.training import TrainConfig
from models.block import StepBatch
from tasks.train.job import cores

THREAD_NAME = "batches"
_MOST_THREADS = 16
_OTHER_CORES = 2
"""For the training's own thread and for what torch does beside it."""


def pipeline_sizes(train: TrainConfig, device: torch.device, *, alone: bool = False) -> tuple[int, int]:
    """Return how many batches are prepared ahead, and by how many threads: what the recipe says, or what fits here.

    `alone`: batches are made by one thread, as ranks make them together.
    """
    threads, ahead = train.sampling_threads, train.prefetch
    if threads is None:
        # Else the CPU's cores train, or the GPU samples.
        busy = device.type == "cuda" and train.sampling == "cpu" and not alone
        threads = min(_MOST_THREADS, max(1, cores() // train.num_ranks - _OTHER_CORES)) if busy else 1
        threads = threads if ahead is None else max(1, min(threads, ahead))
    if ahead is None:
        ahead = 2 * threads if device.type == "cuda" else max(2, threads)
    return ahead, threads


class Pipeline:
    """An iterator over make(first), ..., make(stop - 1), in order, on `device`.

    Numbers are steps of the whole run, so that batches of the next epoch are made while this one ends. While the caller
    holds batch i, up to `ahead` later ones are made or being made, by up to `threads` threads; with `ahead` = 0 the
    caller's thread makes each when it is asked for. An exception of `make` is raised where its batch would have come,
    and ends the iterator. Threads start with the first batch; `close`, the end, or leaving the context stops them.
    """

    def __init__(
        self,
        make: Callable[[int], StepBatch],
        first: int,
        stop: int,
        *,
        ahead: int,
        threads: int,
        device: torch.device,
        agree: Callable[[int], int] | None = None,
    ) -> None:
        """Start nothing yet.

        Args:
            make: makes a batch, in CPU memory or on the device; called by several threads at once, in ascending order.
            first: number of the first batch; `stop`: after the last one.
            ahead: batches ready or in the making beyond the caller's; on a GPU they lie in its memory.
            agree: where ranks make batches together, in one thread each: returns the largest of all ranks' numbers.
                A rank that stops early makes what another one has begun.
        """
        assert agree is None or threads == 1, "ranks that make batches together do so one after the other"
        self._make, self._stop, self._agree = make, stop, agree
        self._ahead, self._num_threads = ahead, min(threads, ahead, max(0, stop - first))
        self._device = device
        self._upload = Upload(device) if device.type == "cuda" and ahead else None
        self._threads: list[threading.Thread] = []
        self._changed = threading.Condition()
        # Guarded by the condition's lock:
        self._next_made = self._next_taken = first
        self._made: dict[int, tuple[Any, BaseException | None]] = {}
        self._closed = False
        self._until: int | None = None  # once the pipeline is closing: what is made before, whoever takes it

    def __iter__(self) -> Pipeline:
        return self

    def __next__(self) -> StepBatch:
        """Wait for the next batch."""
        if self._closed or self._next_taken >= self._stop:
            self.close()
            raise StopIteration
        if not self._ahead:
            self._next_taken += 1
            return self._make(self._next_taken - 1).to(self._device)
        self._start()
        with self._changed:
            self._changed.wait_for(lambda: self._next_taken in self._made)
            item, error = self._made.pop(self._next_taken)
            self._next_taken += 1
            self._changed.notify_all()
        if error is not None:
            self.close()
            raise error
        return item if self._upload is None else self._upload.receive(*item)

    def close(self) -> None:
        """Stop the threads, once they have ended the batches that they are at, and forget what they made."""
        if self._threads and self._agree is not None and not self._closed:
            with self._changed:
                self._until = self._next_made
            until = self._agree(self._until)
            with self._changed:
                self._until = until
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._next_made >= until)
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        self._made.clear()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        if kind is not None and self._agree is not None:
            return  # its thread may wait for a rank that has failed: leave it to the process's end
        self.close()

    def _start(self) -> None:
        if not self._threads:
            self._threads = [
                threading.Thread(target=self._work, name=THREAD_NAME, daemon=True) for _ in range(self._num_threads)
            ]
            for thread in self._threads:
                thread.start()

    def _work(self) -> None:
        while (number := self._claim()) is not None:
            result: tuple[Any, BaseException | None]
            try:
                make = functools.partial(self._make, number)
                result = (make() if self._upload is None else self._upload.send(make), None)
            except BaseException as error:  # handed over to the caller, who raises it
                result = (None, error)
            with self._changed:
                self._made[number] = result
                self._changed.notify_all()

    def _claim(self) -> int | None:
        """Wait until another batch may be made; return its number, or None at the end."""

        def may_end_or_make() -> bool:
            end = self._next_taken + self._ahead if self._until is None else self._until
            return self._closed or self._next_made >= self._stop or self._next_made < end

        with self._changed:
            self._changed.wait_for(may_end_or_make)
            if self._closed or self._next_made >= self._stop:
                return None
            self._next_made += 1
            self._changed.notify_all()
            return self._next_made - 1


class Upload:
    """Copies batches to a GPU through page-locked memory, on a stream of its own, while the GPU is at a step.

    What `make` itself does on the GPU (`train.sampling=device`) is done on that stream too. Not yet run on a GPU.
    """

    def __init__(self, device: torch.device, cuda: Any = torch.cuda) -> None:
        """`cuda` stands in for torch.cuda in tests."""
        self.device = device
        self.cuda = cuda
        self.stream = cuda.Stream(device)

    def send(self, make: Callable[[], StepBatch]) -> tuple[StepBatch, Any]:
        """Make a batch and start copying (in any thread); return what `receive` wants."""
        # A thread's current device is number 0, and page-locking would open a context there.
        with self.cuda.device(self.device), self.cuda.stream(self.stream):
            # torch makes copies in page-locked memory, in blocks that it gives out again once the copies from them are
            # done.
            there = make().pin_memory().to(self.device)
            event = self.cuda.Event()
            event.record(self.stream)
        return there, event

    def receive(self, batch: StepBatch, event: Any) -> StepBatch:
        """Let the caller's stream wait for the copy; the CPU does not wait."""
        current = self.cuda.current_stream(self.device)
        current.wait_event(event)
        batch.record_stream(current)  # its memory belongs to the copying stream
        return batch
