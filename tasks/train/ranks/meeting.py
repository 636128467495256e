"""What the machines of a job tell each other beside their ranks: what they run, that they are there, why they end.

The ranks' connections come late and break without a word. So what starts a machine's ranks (`torchrun.py`) takes part
in a meeting too: a store at the rendezvous, which lives with machine 0's part of the attempt. There

- a machine whose job is not machine 0's is told so, and machine 0 as well, before they wait for each other;
- what a rank raised on purpose reaches every machine in its own words, also where each has a home of its own;
- a machine that was there and falls silent, or whose ranks ended, ends the attempt on the others, in whatever state it
  is: torchrun's own waits are minutes long and gloo's are hours.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

from configs.errors import RecipeError, StageError
from tasks.processes.children import has_children
from tasks.storage.artifacts import write_atomic
from tasks.supervise import write_error
from tasks.train.ranks.agreement import difference

_LOOK_SECONDS = 0.2
_ANSWER_SECONDS = 10.0
"""For a store's answer: one that takes longer is asked again."""
_PORT_SECONDS = 10.0
"""For the port to become free: the attempt before may be ending."""
_NO_PORT = ("EADDRINUSE", "EACCES")
_LINGERING_SECONDS = 5.0
"""torchrun may wait for another machine long after its own ranks have ended."""
_LAST_WORDS_SECONDS = 3.0
"""Machine 0 stays for so long after a failure, to hear of the others why."""
PREFIX, ERROR_KEY, _OVER = "graphmill", "error", "over"
UNREACHED_CODE = 4
"""Exit code of a machine that lends its ranks, and cannot reach machine 0."""
MEETING = "GRAPHMILL_MEETING"
"""Variable of the environment that holds a `Meeting`."""


@dataclass(frozen=True)
class Meeting:
    """One machine's part in one attempt; travels as JSON."""

    machine: int
    machines: int
    num_ranks: int
    """Of each machine."""
    rendezvous: str
    patience_seconds: float
    """For all machines to be there."""
    reach_seconds: float
    """For machine 0 to be there."""
    began: float
    """By this machine's `time.time`: when it was started."""
    facts: dict[str, Any]
    """What decides the outcome (`agreement.facts_of`)."""
    result: str
    """File that the job leaves on this machine when it is done."""
    error: str
    """File with what a rank raised on purpose (`supervise.write_error`); what other machines say goes there too."""
    own_home: bool
    """Whether other machines do not see that file."""

    def dump(self) -> str:
        """Return it as text."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> Meeting:
        """Read what `dump` wrote."""
        return cls(**json.loads(text))


class Member:
    """Takes part in a meeting while torchrun runs in this process."""

    def __init__(self, meeting: Meeting, leave: Callable[[int], None] | None = None) -> None:
        """Machine 0 opens the store. `leave`: ends the process, whatever its main thread does."""
        self.meeting = meeting
        self._leave = leave or _leave
        self._host, _, port = meeting.rendezvous.rpartition(":")
        self._host, self._port = self._host.strip("[]"), int(port)
        self._others = [number for number in range(meeting.machines) if number != meeting.machine]
        self._there: set[int] = set()
        """Other machines that have said what they run."""
        self._before: dict[int, int] = {}
        """How often others had failed when all were there."""
        self._joined, self._gathered = threading.Event(), threading.Event()
        self._ended = threading.Event()
        self._store: Any = None
        if not meeting.machine:
            self.server = self._open_store()

    def __enter__(self) -> Member:
        from tasks.train.ranks.heartbeat import LOST_CODE, Heartbeat
        from tasks.train.ranks.rank_logs import GIVEN_UP
        from tasks.train.strategies.base import Ranks

        meeting = self.meeting
        size = meeting.num_ranks
        ranks = Ranks(meeting.machine * size, meeting.machines * size, 0, size)

        def lost(cause: str) -> None:
            print(f"warning: {cause}; {GIVEN_UP}", flush=True)
            self._leave(LOST_CODE)

        self._heartbeat = Heartbeat(ranks, self._connect, lost, gathering=True)
        for work in (self._talk, self._look):
            threading.Thread(target=work, name="meeting", daemon=True).start()
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        self.end(failed=kind is not None)

    def wait_for_all(self) -> None:
        """Return once all machines are there. Raises StageError where they are not in time."""
        meeting = self.meeting
        if self._joined.wait(self._left(meeting.reach_seconds)) and self._gathered.wait(
            self._left(meeting.patience_seconds)
        ):
            return
        patience = meeting.patience_seconds if self._joined.is_set() else meeting.reach_seconds
        raise StageError(
            f"the {meeting.machines} machines did not come together at {meeting.rendezvous} within {patience:.0f} "
            f"seconds: no sign of {self.missing()}; running again goes on from the last checkpoint"
        )

    def missing(self) -> str:
        """Name the machines that have not been heard of yet."""
        return " and ".join(f"machine {number}" for number in self._others if number not in self._there)

    def _left(self, seconds: float) -> float:
        """Return how much is left of so many seconds since this machine was started; its imports count."""
        return max(1.0, self.meeting.began + seconds - time.time())

    def end(self, *, failed: bool) -> None:
        """Say how this machine's ranks ended, hear why those of others did, and take part no more."""
        self._ended.set()
        self._heartbeat.stop()
        if failed and self._store is not None:
            # In a thread: where the network is cut a store's answer may take minutes.
            last_words = threading.Thread(target=self._say_why, args=(self._store,), name="meeting", daemon=True)
            last_words.start()
            last_words.join(2 * _LAST_WORDS_SECONDS)

    def _say_why(self, store: Any) -> None:
        with contextlib.suppress(RuntimeError, OSError):  # machine 0 is gone
            self._say_own_error(store)
            store.add(self._failures(self.meeting.machine), 1)
            if not self.meeting.machine:
                store.set(_OVER, "")
            until = time.monotonic() + (_LAST_WORDS_SECONDS if not self.meeting.machine else 0.0)
            while time.monotonic() < until and not all(store.add(self._failures(n), 0) for n in self._others):
                time.sleep(_LOOK_SECONDS)
            self._hear_error(store)

    # ---- the store

    def _open_store(self) -> Any:
        """Open the store that torchrun of this process will use too."""
        import torch.distributed as dist

        made: Any = dist.TCPStore  # type: ignore[attr-defined]
        until = time.monotonic() + _PORT_SECONDS
        while True:
            try:
                return made(self._host, self._port, is_master=True, wait_for_workers=False, multi_tenant=True)
            except dist.DistNetworkError as error:
                if not any(word in str(error) for word in _NO_PORT):
                    raise
                if time.monotonic() > until:
                    raise self._no_port(error) from error
            time.sleep(_LOOK_SECONDS)

    def _no_port(self, error: Exception) -> StageError:
        return StageError(
            f"the machines are to meet at {self.meeting.rendezvous}, and port {self._port} of machine 0 cannot be had "
            f"({_first_line(error)}): another program has it, another training perhaps, for each needs one of its own. "
            f"End that, or give all machines another one, such as train.rendezvous={self._host}:{self._port + 1}"
        )

    def _connect(self) -> Any:
        import torch.distributed as dist

        made: Any = dist.TCPStore  # type: ignore[attr-defined]
        patience = datetime.timedelta(seconds=_ANSWER_SECONDS)
        store = made(self._host, self._port, is_master=False, wait_for_workers=False, timeout=patience)
        return dist.PrefixStore(PREFIX, store)  # type: ignore[attr-defined]

    @staticmethod
    def _failures(number: int) -> str:
        return f"failed/{number}"

    # ---- threads

    def _talk(self) -> None:
        """Say what this machine runs, and look at what the others say; the store may not answer for a while."""
        failed_since: float | None = None
        while not self._ended.wait(_LOOK_SECONDS):
            try:
                store = self._join()
                self._say_own_error(store)
                if self._hear_error(store) or self._differs(store):
                    time.sleep(_LAST_WORDS_SECONDS)  # torchrun may end by itself, and others want to hear of it
                    self._leave(1)
                failures = {number: store.add(self._failures(number), 0) for number in self._others}
                if not self._gathered.is_set():
                    self._before = failures
                    if self._there.issuperset(self._others):
                        self._gathered.set()
                elif failures != self._before:
                    failed_since = failed_since or time.monotonic()
            except (RuntimeError, OSError):  # the heartbeat tells for how long
                self._store = None
            if failed_since is not None and time.monotonic() - failed_since > _LINGERING_SECONDS:
                self._leave(1)

    def _join(self) -> Any:
        """Return the attempt's store; this machine has said there what it runs. Raises RuntimeError: there is none."""
        if self._store is None:
            store = self._connect()
            if store.check([_OVER]):
                raise RuntimeError("this is the attempt before, which has failed")
            self._refuse_another(store)
            store.set(f"facts/{self.meeting.machine}", json.dumps(self.meeting.facts))
            self._store, self._there = store, set()
            self._joined.set()
        return self._store

    def _refuse_another(self, store: Any) -> None:
        """End where another machine is here under this one's number: two ranks of one number would wait for ever."""
        number, name = self.meeting.machine, socket.gethostname()
        other = store.compare_set(f"host/{number}", "", name).decode()
        if other == name:
            return
        said = (
            f"{other} is machine {number} of this job already, and so is {name}: give all machines the same hosts in "
            "the same order, or each a train.machine_rank of its own"
        )
        write_error(Path(self.meeting.error), RecipeError(said))
        self._leave(1)

    def _look(self) -> None:
        """End torchrun where its ranks have ended long ago."""
        alone_since: float | None = None
        ranks_seen = False
        while not self._ended.wait(_LOOK_SECONDS):
            if has_children(os.getpid()):
                ranks_seen, alone_since = True, None
            elif ranks_seen:
                alone_since = alone_since or time.monotonic()
                if time.monotonic() - alone_since > _LINGERING_SECONDS:
                    self._leave(0 if Path(self.meeting.result).exists() else 1)

    def _say_own_error(self, store: Any) -> None:
        if self.meeting.own_home and Path(self.meeting.error).exists() and not store.check([ERROR_KEY]):
            store.set(ERROR_KEY, Path(self.meeting.error).read_text())

    def _hear_error(self, store: Any) -> bool:
        """Keep what another machine's rank raised; returns whether there is something."""
        if not store.check([ERROR_KEY]):
            return False
        if not Path(self.meeting.error).exists():
            write_atomic(Path(self.meeting.error), store.get(ERROR_KEY))
        return True

    def _differs(self, store: Any) -> bool:
        """Look who else is there; returns whether another machine runs another job: both then say so by themselves."""
        meeting, mine = self.meeting, self.meeting.facts
        for number in set(self._others) - self._there:
            if not store.check([f"facts/{number}"]):
                continue
            self._there.add(number)
            theirs = json.loads(store.get(f"facts/{number}"))
            said = None
            if not meeting.machine:
                said = difference(mine, theirs, number)
            elif not number:
                said = difference(theirs, mine, meeting.machine)
            if said is not None:
                write_error(Path(meeting.error), RecipeError(said))
                return True
        return False


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:200]


def _leave(code: int) -> NoReturn:
    os._exit(code)  # the ranks ask the kernel to go with this process
