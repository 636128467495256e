"""Machines of a training tell each other that they are there: one that falls silent ends the job on all others.

A rank that ends closes its connections, and its peers' collectives fail at once. A machine that loses its power, or the
network between two of them, closes nothing: collectives would wait for hours. So one rank of each machine counts up a
number of its own in the store by which ranks found each other, and looks at those of the others.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

import torch.distributed as dist

from tasks.train.ranks.rank_logs import GIVEN_UP
from tasks.train.strategies.base import Ranks

SILENCE_SECONDS = 20.0
"""A connection that is cut for less than this only slows the training."""
_BEAT_SECONDS = 2.0
LOST_CODE = 3
"""Exit code of a rank that ends because of another machine."""


class Heartbeat:
    """Watches the other machines: one thread talks to the store, which may not answer, and one looks at the clock."""

    def __init__(
        self,
        ranks: Ranks,
        connect: Callable[[], Any],
        lost: Callable[[str], None],
        silence_seconds: float = SILENCE_SECONDS,
        *,
        gathering: bool = False,
    ) -> None:
        """Begin.

        Args:
            ranks: of the job.
            connect: returns a store of torch.distributed.
            lost: called once, with the cause in a line, from a thread.
            silence_seconds: how long another machine may be silent.
            gathering: the machines are only coming together: one counts from when it was first heard of.
        """
        self._ranks, self._connect, self._lost, self._silence = ranks, connect, lost, silence_seconds
        self._machine = ranks.rank // ranks.local_size
        self._ended = threading.Event()
        self._name = "gathering" if gathering else "heartbeat"
        begun: float | None = None if gathering else time.monotonic()
        self._answered = begun
        self._heard: dict[int, float | None] = dict.fromkeys(range(ranks.world_size // ranks.local_size), begun)
        for work in (self._beat, self._watch):
            threading.Thread(target=work, name="heartbeat", daemon=True).start()

    def stop(self) -> None:
        """Watch no more."""
        self._ended.set()

    def _beat(self) -> None:
        store: Any = None
        counts = dict.fromkeys(self._heard, 0)
        while not self._ended.wait(_BEAT_SECONDS if store else 0.0):
            try:
                store = store or self._connect()
                for machine in counts:
                    count = store.add(f"{self._name}/{machine}", int(machine == self._machine))
                    if count != counts[machine]:
                        counts[machine], self._heard[machine] = count, time.monotonic()
                self._answered = time.monotonic()
            except (RuntimeError, OSError):  # rank 0 has ended, or cannot be reached: the clock tells for how long
                store = None
                time.sleep(_BEAT_SECONDS)

    def _watch(self) -> None:
        while not self._ended.wait(_BEAT_SECONDS / 2):
            cause = self._cause()
            if cause is not None and not self._ended.is_set():
                self.stop()
                self._lost(cause)

    def _cause(self) -> str | None:
        now, answered = time.monotonic(), self._answered
        if answered is None:
            return None
        if now - answered > self._silence:
            return f"machine 0 has not answered machine {self._machine} for {now - answered:.0f} seconds"
        for machine, heard in self._heard.items():
            # Until the last answer: after it the others may well be there, and this machine hear of none.
            if heard is not None and answered - heard > self._silence:
                ranks = machine * self._ranks.local_size, (machine + 1) * self._ranks.local_size - 1
                of = f"rank {ranks[0]}" if ranks[0] == ranks[1] else f"ranks {ranks[0]} to {ranks[1]}"
                return f"machine {machine} ({of}) has not been heard of for {now - heard:.0f} seconds"
        return None


def begin_heartbeat(ranks: Ranks) -> Heartbeat | None:
    """Watch the other machines of this job, from one rank of each; None where there is nothing to watch."""
    if ranks.local_size == ranks.world_size or ranks.local_rank:
        return None
    return Heartbeat(ranks, _connect, _end)


def _connect() -> Any:
    """Return a connection of its own to rank 0's store: others may wait in theirs."""
    store: Any = dist.TCPStore  # type: ignore[attr-defined]
    return store(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)


def _end(cause: str) -> NoReturn:
    print(f"warning: {cause}; {GIVEN_UP}", flush=True)
    os._exit(LOST_CODE)  # the main thread waits in a collective
