"""What commands of a job say of themselves in a home that they share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from configs.errors import DataError, RecipeError, StageError
from configs.schema import Recipe
from tasks.processes import ending
from tasks.storage.home import Home
from tasks.train.ranks import agreement, presence
from tasks.train.ranks.presence import FirstMachine, Post, announced, present
from tests.train.test_training import recipe

MACHINES = ("train.num_machines=2", "train.rendezvous=node1:29400")


def made(number: int, *options: str) -> Recipe:
    return recipe("node", *MACHINES, f"train.machine_rank={number}", *options)


@pytest.fixture(autouse=True)
def given_up(monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """Why machine 0 gave up."""
    found: list[Exception] = []
    monkeypatch.setattr(ending, "give_up", found.append)
    monkeypatch.setattr(presence, "GONE_SECONDS", 1.0)
    monkeypatch.setattr(presence, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(presence, "_OWN_WORDS_SECONDS", 0.2)
    return found


def check(first: FirstMachine, seconds: float = 3.0, **keys: str) -> None:
    """Look again and again, as a machine does that waits."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        first.check(keys)
        time.sleep(0.05)


def end_with(error: Exception, there: Any, work: Callable[[Any], None]) -> None:
    """Have a command do something, and end with an error."""

    def run() -> None:
        with there as here:
            work(here)
            raise error

    with pytest.raises(type(error)):
        run()


def wait_for(found: list[Any]) -> Any:
    until = time.monotonic() + 20
    while not found:
        assert time.monotonic() < until
        time.sleep(0.02)
    return found[0]


def test_another_recipe_is_told_on_both_sides(home: Home, given_up: list[Exception]) -> None:
    with present(home, made(0)), present(home, made(1, "train.learning_rate=0.5")) as here:
        with pytest.raises(RecipeError, match=r"train\.learning_rate is 0\.01 on machine 0 and 0\.5 on machine 1"):
            check(FirstMachine(here))
        error = wait_for(given_up)
    assert isinstance(error, RecipeError)
    assert "0.5 on machine 1" in str(error)


def test_other_data_is_told_on_both_sides(home: Home, given_up: list[Exception]) -> None:
    with present(home, made(0)) as first, present(home, made(1)) as here:
        first.note("ingest", "aaaa")
        check(FirstMachine(here), 0.5, ingest="aaaa")
        with pytest.raises(RecipeError, match="ingest reads other data on machine 1"):
            check(FirstMachine(here), ingest="bbbb")
        assert "ingest reads other data" in str(wait_for(given_up))


def test_what_only_says_where_and_how_work_is_done_may_differ(home: Home, given_up: list[Exception]) -> None:
    with present(home, made(0)), present(home, made(1, "train.max_restarts=5", "train.prefetch=7")) as here:
        check(FirstMachine(here), 0.5)
    assert not given_up


def test_what_ends_one_is_told_to_the_other(home: Home, given_up: list[Exception]) -> None:
    with present(home, made(1)) as here:
        first = FirstMachine(here)
        end_with(DataError("no such column"), present(home, made(0)), lambda _: check(first, 0.3))
        with pytest.raises(DataError, match="machine 0 has ended: no such column"):
            check(first)
    with present(home, made(0)):
        error = DataError("a value is none")
        end_with(error, present(home, made(1)), lambda here: check(FirstMachine(here), 0.3))
        assert str(wait_for(given_up)) == "machine 1 has ended: a value is none"


def killed(number: int, home: Home) -> ExitStack:
    """What a command that is there has said; closing it leaves what is left when it is killed."""
    post, stack = Post(home, made(number)), ExitStack()
    stack.enter_context(post.holding(number))
    return stack


def test_one_that_was_killed_is_waited_for_a_while(home: Home, given_up: list[Exception]) -> None:
    with present(home, made(1)) as here:
        first = FirstMachine(here)
        with killed(0, home):
            Post(home, made(0)).write(0, presence.Sign("first", here.sign.facts if here else {}))
            check(first, 0.3)
            assert first.alive
        began = time.monotonic()
        first.check({})
        assert not first.alive
        with pytest.raises(StageError, match="machine 0 is gone: its command was killed"):
            check(first)
        assert time.monotonic() - began >= 1
        with killed(0, home):  # it comes back
            check(first, 0.3)
    with present(home, made(0)) as here:
        assert here is not None
        with killed(1, home):
            Post(home, made(1)).write(1, presence.Sign("second", other=here.sign.token))
            time.sleep(1.5)
            assert not given_up
        assert "machine 1 is gone" in str(wait_for(given_up))


def test_one_that_has_done_its_part_may_leave(home: Home, given_up: list[Exception]) -> None:
    with present(home, made(0)):
        with present(home, made(1)) as here:
            check(FirstMachine(here), 0.3)
        time.sleep(1.5)
    assert not given_up


def test_what_an_earlier_run_has_left_is_no_sign(home: Home, given_up: list[Exception]) -> None:
    end_with(DataError("of yesterday"), present(home, made(0)), lambda _: None)
    with present(home, made(1)) as here:
        check(FirstMachine(here), 1.5)
    with present(home, made(0)):
        time.sleep(1.5)
    assert not given_up


def test_where_there_is_no_shared_home_nothing_is_left(home: Home) -> None:
    before = threading.active_count()
    with present(home, recipe("node")) as here, present(home, made(0, "train.shared_home=false")):
        assert here is None
        assert threading.active_count() == before
    assert not list(Path(home.locks).glob("machine*"))


@pytest.mark.parametrize("stage", ["ingest", "partition"])
def test_with_homes_of_their_own_errors_before_the_training_are_told(
    home: Home, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    told: list[str] = []
    monkeypatch.setattr(presence, "tell_others", lambda train, error: told.append(str(error)))
    there = present(home, made(1, "train.shared_home=false"))
    end_with(DataError("no such column"), there, lambda here: here.note(stage, "key"))
    assert told == (["no such column"] if stage == "ingest" else [])


def test_a_command_is_seen_before_its_pipeline_begins(home: Home) -> None:
    with announced(home, made(0)) as early:
        assert Post(home, made(0)).read(0)[1]
        with present(home, made(0)) as here:
            assert here is early
        assert Post(home, made(0)).read(0)[0].ended is None
    sign, alive = Post(home, made(0)).read(0)
    assert sign.ended == {}
    assert not alive


def test_a_number_is_lent_by_one_command(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "_LOCK_SECONDS", 0.2)
    with killed(1, home):
        Post(home, made(1)).write(1, presence.Sign("second", place="on node7, process 77"))
        there = present(home, made(1))
        with pytest.raises(RecipeError, match=r"is machine 1 of this job already \(on node7, process 77\)"), there:
            pass
    with present(home, made(1)) as here:
        assert here.shown
    with killed(0, home), present(home, made(0)):  # waits for the other one's stages, as everywhere
        pass


def test_other_code_is_told(home: Home, given_up: list[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    with present(home, made(0)):
        monkeypatch.setattr(agreement, "code_digest", lambda: "other")
        words = "graphmill's code is '.*' on machine 0 and 'other' on machine 1.*the same code"
        with present(home, made(1)) as here, pytest.raises(RecipeError, match=words):
            check(FirstMachine(here))
        wait_for(given_up)
    assert "graphmill's code" not in agreement.facts_of(recipe("node"), "train")


def test_homes_of_their_own_are_several(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "tell_others", lambda *_: None)
    own = "train.shared_home=false"
    words = r"machines 0 and 1 work in one home.*set train\.shared_home=true"
    with present(home, made(0, own)), pytest.raises(RecipeError, match=words), present(home, made(1, own)):
        pass
    with present(home, made(1, own)):  # the other one has ended
        pass
    assert not list(Path(home.locks).glob("machine*"))
