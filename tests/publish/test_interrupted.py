"""A publication that ends at any step: the champion's alias and the run's record say the same, and a rerun mends it."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from configs.schema import Recipe
from flows.commands.runs.versions import champion_history
from flows.pipeline.tracking import note_champion, settle_champion
from flows.records.run_record import RunRecord, now_text
from tasks.processes.ending import TerminatedError, held_back
from tasks.processes.run_context import RunContext, publishing_from
from tasks.publish.champion.comparison import Judge
from tasks.publish.gate.rules import Decision
from tasks.publish.tracking.mlflow_store import Tracker
from tasks.publish.tracking.registered import model_versions
from tasks.publish.tracking.registry import open_registry
from tasks.storage.home import Home
from tests.publish.line import Line, customers, write_customers

pytestmark = pytest.mark.usefixtures("whole_line_in_this_process")

STEPS = (
    "create_model_version",
    "log_artifact",
    "set_model_version_tag",
    "set_registered_model_tag",
    "set_registered_model_alias",
    "set_terminated",
)


def recipe(folder: Path, epochs: int) -> Recipe:
    return customers(folder, f"train.epochs={epochs}")


def always_better(self: Judge, version: str, champion: str | None) -> Decision:
    return Decision(True, "so says the test")


def test_alias_and_record_say_the_same(tracked_home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One start after the other is ended a step later than the one before."""
    home, call = tracked_home, Tracker.call
    write_customers(tmp_path, count=200)
    Line(home).run(recipe(tmp_path, 2))
    monkeypatch.setattr(Judge, "__call__", always_better)
    moved = False
    for step, after in itertools.product(STEPS, (False, True)):
        moved |= (step, after) == ("set_registered_model_alias", True)

        def ends(
            self: Any, function: Any, *arguments: Any, step: str = step, after: bool = after, **options: Any
        ) -> Any:
            if function.__name__ == step and not after:
                raise TerminatedError
            found = call(self, function, *arguments, **options)
            if function.__name__ == step:
                raise TerminatedError
            return found

        record = RunRecord(id="one", recipe="customers", started_at=now_text())
        monkeypatch.setattr(Tracker, "call", ends)
        context = RunContext(note_champion=partial(note_champion, home, record))
        with publishing_from(context), contextlib.suppress(TerminatedError):
            Line(home).run(recipe(tmp_path, 3))
        monkeypatch.setattr(Tracker, "call", call)
        registry = open_registry(home)
        assert registry.aliases("customers") == {"champion": "2" if moved else "1"}, (step, after)
        if record.becoming:
            assert step.startswith("set_registered_model")
            assert record.champion.startswith("customers version 2 was about to become champion (graphmill versions")
            settle_champion(home, record)
            word = "champion" if moved else "not champion, as the run was killed before it was"
            assert (record.champion, record.becoming) == (f"customers version 2: {word}", "")
        moves = champion_history(home, "customers")
        assert [move["version"] for move in moves] == ["1", *(["2"] if moved else [])], (step, after)
    Line(home).run(recipe(tmp_path, 3))
    assert [one.version for one in model_versions(open_registry(home), "customers")] == ["2", "1"]
    assert open_registry(home).aliases("customers") == {"champion": "2"}
    assert [move["reason"] for move in champion_history(home, "customers")][1] == "so says the test"


def test_a_signal_waits_for_what_belongs_together() -> None:
    done: list[None] = []

    def end(number: int, frame: object) -> None:
        raise TerminatedError

    former = signal.signal(signal.SIGTERM, end)
    try:
        with pytest.raises(TerminatedError), held_back():
            done.append(os.kill(os.getpid(), signal.SIGTERM))
        assert done == [None]
        assert signal.getsignal(signal.SIGTERM) is end
    finally:
        signal.signal(signal.SIGTERM, former)
