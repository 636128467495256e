"""In a shared home the commands of a job over several machines say that they are there, what they run, how they end.

Machine 0 prepares the graph, trains, evaluates and publishes; the others wait for its jobs. Each command keeps a small
file in the home's `locks`, and a lock for as long as it lives: where the lock is free and the file says of no end, the
command was killed or its machine is lost. So nobody waits for a machine that is gone, or for one that runs another job.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from configs.errors import GraphmillError, RecipeError, StageError, error_of, kind_of
from configs.schema import Recipe
from tasks.processes import ending
from tasks.storage.artifacts import is_locked, try_lock, write_atomic
from tasks.storage.file_names import file_name
from tasks.storage.home import Home
from tasks.train.ranks.agreement import data_difference, difference, evaluates_together, facts_of
from tasks.train.ranks.tell import tell_others

GONE_SECONDS = 45.0
"""A command that was killed may come back for so long."""
_LOOK_SECONDS = 1.0
_OWN_WORDS_SECONDS = 3.0
"""For machine 0 to end by itself, where a mistake ends all machines."""
_LOCK_SECONDS = 5.0


@dataclass(frozen=True)
class Sign:
    """What a command says of itself."""

    token: str
    """Of this start of it."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What decides the outcome of all its stages (`agreement.facts_of`)."""
    keys: dict[str, str] = field(default_factory=dict)
    """Of the stages that are done."""
    other: str = ""
    """Token of the command of machine 0 that this machine helps."""
    refuses: str = ""
    """Why it does not help that one."""
    ended: dict[str, str] | None = None
    """How it ended: nothing, or `kind` and `message` of an error."""
    place: str = ""
    """Host and process, for people."""


class Post:
    """Where the machines of a job put their signs."""

    def __init__(self, home: Home, recipe: Recipe) -> None:
        self._home, self._rendezvous = home, recipe.train.rendezvous or ""

    def read(self, number: int) -> tuple[Sign | None, bool]:
        """Return a machine's sign, and whether its command lives; None: it has left none."""
        path = self.path(number)
        alive = is_locked(path.with_suffix(".lock"))
        try:
            return Sign(**json.loads(path.read_text(encoding="utf-8"))), alive
        except (OSError, ValueError, TypeError):  # none, or of another version
            return None, alive

    def write(self, number: int, sign: Sign) -> None:
        """Leave a machine's sign."""
        write_atomic(self.path(number), json.dumps(asdict(sign)).encode())

    @contextlib.contextmanager
    def holding(self, number: int) -> Iterator[bool]:
        """Hold a machine's lock; gives False where another command has it."""
        until = time.monotonic() + _LOCK_SECONDS
        while True:
            with try_lock(self.path(number).with_suffix(".lock")) as held:
                if held or time.monotonic() > until:  # who looks at a lock takes it for a moment
                    yield held
                    return
            time.sleep(0.05)

    def path(self, number: int) -> Path:
        """Return where a machine's sign is."""
        return self._home.locks / f"{file_name(f'machine-{number}-{self._rendezvous}')}.json"


class Here:
    """This machine's command."""

    def __init__(self, post: Post, number: int, sign: Sign, *, shown: bool) -> None:
        """`shown`: others are to see it."""
        self.post, self.number, self.sign, self.shown = post, number, sign, shown
        self.change()

    def change(self, **values: Any) -> None:
        """Say something else."""
        self.sign = replace(self.sign, **values)
        if self.shown:
            self.post.write(self.number, self.sign)

    def note(self, stage: str, key: str) -> None:
        """A stage is done."""
        self.change(keys={**self.sign.keys, stage: key})


_announced: dict[Path, Here] = {}
"""Of this process, by their signs."""


@contextlib.contextmanager
def announced(home: Home, recipe: Recipe) -> Iterator[Here | None]:
    """Say during the block that this command is there, and after it how it ended; None where nobody looks.

    Blocks inside of another one share its sign.

    Args:
        home: that all machines see.
        recipe: of the job, with the versions of all that it names.

    Raises RecipeError: another command that lives lends ranks under this machine's number.
    """
    train = recipe.train
    if train.num_machines == 1 or not train.shared_home:
        yield None
        return
    last = "evaluate" if evaluates_together(recipe) else "train"
    post = Post(home, recipe)
    place = post.path(train.machine_rank)
    if place in _announced:
        yield _announced[place]
        return
    with post.holding(train.machine_rank) as held:
        if train.machine_rank and not held:  # a second machine 0 waits for the first one's stages
            raise _taken(post, train.machine_rank)
        place_here = f"on {socket.gethostname()}, process {os.getpid()}"
        sign = Sign(secrets.token_hex(8), facts_of(recipe, last), place=place_here)
        here = Here(post, train.machine_rank, sign, shown=held)
        _announced[place] = here
        try:
            yield here
        except GraphmillError as error:
            here.change(ended={"kind": kind_of(error), "message": str(error)})
            raise
        except BaseException as error:
            why = ending.reason() or error
            kind = kind_of(why) if isinstance(why, GraphmillError) else "StageError"
            here.change(ended={"kind": kind, "message": str(why) or "it was interrupted"})
            raise
        else:
            here.change(ended={})
        finally:
            del _announced[place]


def _taken(post: Post, number: int) -> RecipeError:
    sign, _ = post.read(number)
    where = f" ({sign.place})" if sign is not None and sign.place else ""
    return RecipeError(
        f"another command is machine {number} of this job already{where}, and would lend its ranks a second time: end "
        "one of the two, or give all machines the same hosts in the same order, each machine once. Where that one's "
        "machine was lost, its lock goes by itself within two minutes"
    )


@contextlib.contextmanager
def _alone_in(post: Post, number: int, machines: int) -> Iterator[None]:
    """Refuse a home that several machines work in, where each is to have one of its own. Raises RecipeError."""
    locks = [post.path(machine).with_suffix(".lock") for machine in range(machines)]
    with post.holding(number) as held:
        others = [machine for machine, lock in enumerate(locks) if machine != number and is_locked(lock)]
        try:
            if others:
                raise RecipeError(
                    f"train.shared_home=false, and machines {others[0]} and {number} work in one home, where they "
                    "would wait for each other: set train.shared_home=true, or give each machine a home of its own "
                    "(--home)"
                )
            yield
        finally:
            if held:
                locks[number].unlink(missing_ok=True)


@contextlib.contextmanager
def present(home: Home, recipe: Recipe) -> Iterator[Here | None]:
    """Be announced during the block.

    Machine 0 looks at the others meanwhile, and gives up (`ending.give_up`) where one refuses the job, has ended with
    an error, or was killed and does not come back. Without a shared home an error that comes before the training is
    told to those who wait for this machine's ranks.
    """
    train = recipe.train
    if train.num_machines > 1 and not train.shared_home:
        own = Here(Post(home, recipe), train.machine_rank, Sign(""), shown=False)
        try:
            with _alone_in(own.post, train.machine_rank, train.num_machines):
                yield own
        except GraphmillError as error:
            if "partition" not in own.sign.keys:  # later the ranks' meeting tells (`meeting.py`)
                tell_others(train, error)
            raise
        return
    with announced(home, recipe) as here:
        over = threading.Event()
        if here is not None and here.shown and not train.machine_rank:
            threading.Thread(target=_look, args=(here, train.num_machines, over), daemon=True, name="presence").start()
        try:
            yield here
        finally:
            over.set()


def _look(here: Here, machines: int, over: threading.Event) -> None:
    """Watch the other machines until one of them ends the job."""
    watched = [_Watched(here, number) for number in range(1, machines)]
    while not over.wait(_LOOK_SECONDS):
        for one in watched:
            error = one.error()
            if error is not None and not over.wait(_OWN_WORDS_SECONDS):
                ending.give_up(error)
                return


class _Watched:
    """Another machine, as machine 0 sees it."""

    def __init__(self, here: Here, number: int) -> None:
        self._here, self._number = here, number
        self._seen, self._gone_since = False, 0.0

    def error(self) -> GraphmillError | None:
        """Return why the job cannot go on for this machine."""
        sign, alive = self._here.post.read(self._number)
        if sign is None or sign.other != self._here.sign.token:
            return None  # it has not come to this job, or begins anew
        if sign.refuses:
            return RecipeError(sign.refuses)
        if sign.ended:
            return _ended_with(sign.ended, self._number)
        if alive or sign.ended is not None:
            self._gone_since = 0.0
            return None
        self._gone_since = self._gone_since or time.monotonic()
        if time.monotonic() - self._gone_since < GONE_SECONDS:
            return None
        return gone(self._number, self._gone_since)


def _ended_with(ended: Mapping[str, str], number: int) -> GraphmillError:
    """Return the error that a machine has ended with; what speaks of a machine already is left as it is."""
    message = ended["message"]
    named = message.startswith("machine")
    return error_of(ended["kind"], message if named else f"machine {number} has ended: {message}")


def gone(number: int, since: float) -> StageError:
    """Return the error of a machine whose command was killed."""
    seconds = time.monotonic() - since
    return StageError(
        f"machine {number} is gone: its command was killed, or the machine lost, {seconds:.0f} seconds ago; running "
        "again goes on from the last checkpoint"
    )


class FirstMachine:
    """Machine 0, as a machine sees it that lends it ranks."""

    def __init__(self, here: Here | None) -> None:
        self._here = here
        self.alive = True
        """Whether its command was there at the last look, as far as can be seen."""
        self._unseen_since = 0.0
        self._seen: str | None = None
        self._gone_since = 0.0

    def check(self, keys: Mapping[str, str]) -> None:
        """Look at machine 0's sign; `keys` are those of stages as this machine's recipe has them.

        Raises:
            RecipeError: it runs another job; it is told so.
            StageError: it was killed and has not come back.
            GraphmillError: what it ended with.
        """
        if self._here is None:
            return
        sign, alive = self._here.post.read(0)
        self._unseen_since = 0.0 if alive else self._unseen_since or time.monotonic()
        if sign is None:
            return
        self.alive = alive
        if alive and sign.ended is None:
            self._gone_since = 0.0
            self._compare(sign, keys)
        elif sign.token == self._here.sign.other:
            self._ended(sign)

    def unseen_seconds(self) -> float:
        """Return for how long no command of machine 0 has been seen in this home; 0 while there is one."""
        return time.monotonic() - self._unseen_since if self._unseen_since else 0.0

    def _compare(self, sign: Sign, keys: Mapping[str, str]) -> None:
        here = self._here
        assert here is not None
        if self._seen != sign.token:  # a new one may have the lock, and not have written yet
            self._seen = sign.token
            return
        if here.sign.other != sign.token:
            here.change(other=sign.token)
        said = difference(sign.facts, here.sign.facts, here.number)
        for stage, key in keys.items() if said is None else ():
            if sign.keys.get(stage, key) != key:
                said = data_difference(stage, here.number)
                break
        if said is not None:
            here.change(refuses=said)
            raise RecipeError(said)

    def _ended(self, sign: Sign) -> None:
        if sign.ended:
            raise _ended_with(sign.ended, 0)
        self._gone_since = self._gone_since or time.monotonic()
        if time.monotonic() - self._gone_since > GONE_SECONDS:
            if sign.ended is None:
                raise gone(0, self._gone_since)
            raise StageError("machine 0 has ended without what this machine waits for; its own output says why")
