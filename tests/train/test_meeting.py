"""What machines of a job tell each other while their ranks run; here they are threads of one process."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from configs.errors import DataError, RecipeError, StageError
from tasks.supervise import read_error, write_error
from tasks.train.ranks import meeting, torchrun
from tasks.train.ranks.agreement import STAGE, difference
from tasks.train.ranks.meeting import Meeting, Member
from tasks.train.ranks.tell import tell_others
from tests.ports import free_port
from tests.train.test_training import recipe

FACTS = {"train.epochs": 3, "train.learning_rate": 0.01}


def told_to(work: Path, number: int, port: int, count: int, **options: Any) -> Meeting:
    told: dict[str, Any] = {
        "machine": number,
        "machines": count,
        "num_ranks": 1,
        "rendezvous": f"127.0.0.1:{port}",
        "patience_seconds": 1.0,
        "reach_seconds": 1.0,
        "began": time.time(),
        "facts": FACTS,
        "result": str(work / "result.json"),
        "error": str(work / "error.json"),
        "own_home": True,
        **options,
    }
    return Meeting.parse(Meeting(**told).dump())


class Machine:
    """A machine that takes part, and with which codes it was told to leave."""

    def __init__(self, folder: Path, number: int, port: int, count: int = 2, **options: Any) -> None:
        self.codes: list[int] = []
        self.work = folder / f"machine-{number}"
        self.work.mkdir()
        self.member = Member(told_to(self.work, number, port, count, **options), self.codes.append)
        self.member.__enter__()

    @property
    def error(self) -> Exception | None:
        return read_error(self.work / "error.json")


def wait_until(true: Callable[[], object], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "_LAST_WORDS_SECONDS", 0.5)
    monkeypatch.setattr(meeting, "_LINGERING_SECONDS", 1.0)


def test_machines_with_other_jobs_are_told_what_differs(tmp_path: Path) -> None:
    port = free_port()
    machines = [Machine(tmp_path, 0, port), Machine(tmp_path, 1, port, facts={**FACTS, "train.epochs": 4})]
    wait_until(lambda: all(machine.codes for machine in machines))
    for machine in machines:
        assert isinstance(machine.error, RecipeError)
        assert "train.epochs is 3 on machine 0 and 4 on machine 1" in str(machine.error)
        machine.member.end(failed=False)


def test_machines_with_the_same_job_are_left_alone(tmp_path: Path) -> None:
    port = free_port()
    machines = [Machine(tmp_path, number, port, 3) for number in range(3)]
    time.sleep(2)
    for machine in machines:
        assert not machine.codes
        assert machine.error is None
        machine.member.end(failed=False)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_what_a_rank_raised_reaches_machines_with_homes_of_their_own(tmp_path: Path, number: int) -> None:
    port = free_port()
    machines = [Machine(tmp_path, other, port, 3) for other in range(3)]
    write_error(machines[number].work / "error.json", DataError("a value is none", path="features.csv", row=3))
    wait_until(lambda: all(machine.error for machine in machines))
    for machine in machines:
        assert isinstance(machine.error, DataError)
        assert str(machine.error) == "features.csv (row 3): a value is none"
        machine.member.end(failed=True)


def test_a_machine_whose_ranks_failed_ends_those_of_the_others(tmp_path: Path) -> None:
    port = free_port()
    machines = [Machine(tmp_path, number, port) for number in (0, 1)]
    machines[0].member.wait_for_all()
    machines[1].member.end(failed=True)
    wait_until(lambda: machines[0].codes)
    assert machines[0].codes[0] == 1
    assert machines[0].error is None  # nothing that another attempt would meet again
    machines[0].member.end(failed=False)


def test_a_machine_leaves_though_the_store_answers_no_more(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 0, free_port())
    wait_until(lambda: machine.member._store)

    class Cut:
        """A store behind a network that is cut: it neither answers nor fails."""

        def __getattr__(self, name: str) -> Callable[..., None]:
            return lambda *_: time.sleep(30)

    machine.member._store = Cut()
    began = time.monotonic()
    machine.member.end(failed=True)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("done", [True, False])
def test_torchrun_does_not_stay_when_its_ranks_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: bool
) -> None:
    ranks = [True]
    monkeypatch.setattr(meeting, "has_children", lambda _: ranks[0])
    machine = Machine(tmp_path, 0, free_port())
    if done:
        (machine.work / "result.json").write_text("{}")
    time.sleep(2)
    assert not machine.codes
    ranks[0] = False
    wait_until(lambda: machine.codes)
    assert machine.codes[0] == (0 if done else 1)
    machine.member.end(failed=False)


def test_machines_wait_for_each_other_and_not_for_ever(tmp_path: Path) -> None:
    port = free_port()
    second = Machine(tmp_path, 1, port, 3)
    with pytest.raises(StageError, match="within 1 seconds: no sign of machine 0 and machine 2; running again"):
        second.member.wait_for_all()
    first = Machine(tmp_path, 0, port, 3, patience_seconds=20.0, reach_seconds=20.0)
    wait_until(lambda: first.member._there == {1})
    third = Machine(tmp_path, 2, port, 3, patience_seconds=20.0, reach_seconds=20.0)
    for machine in (first, third):
        machine.member.wait_for_all()
    for machine in (first, second, third):
        assert not machine.codes
        machine.member.end(failed=False)


def test_who_is_missing_is_said_long_before_the_wait_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torchrun, "_SILENT_SECONDS", 0.5)
    told = told_to(tmp_path, 0, free_port(), 3, patience_seconds=2.0, reach_seconds=2.0)
    with pytest.raises(StageError, match="no sign of machine 1 and machine 2"):
        torchrun.run_with(told, [])
    wanted = f"message: waiting for machine 1 and machine 2 at {told.rendezvous}, 2 seconds at the most"
    assert capsys.readouterr().out.startswith(wanted)


def test_a_machine_does_not_join_an_attempt_that_has_failed(tmp_path: Path) -> None:
    port = free_port()
    machines = [Machine(tmp_path, number, port) for number in (0, 1)]
    for machine in machines:
        machine.member.wait_for_all()
    for machine in reversed(machines):
        machine.member.end(failed=True)
    (tmp_path / "again").mkdir()
    again = Machine(tmp_path / "again", 1, port)
    with pytest.raises(StageError, match="no sign of machine 0;"):
        again.member.wait_for_all()
    again.member.end(failed=True)


def test_differences_are_named_and_not_too_many() -> None:
    assert difference(FACTS, json.loads(json.dumps(FACTS)), 1) is None
    found = difference({**FACTS, "a": 1, "b": 2, "c": 3}, {**FACTS, "a": 2, "train.epochs": 4, "d": "x"}, 2)
    assert found is not None
    assert "a is 1 on machine 0 and 2 on machine 2; b is 2 on machine 0 and not there on machine 2" in found
    assert ", and 2 more. Give all machines the same code, recipe" in found


@pytest.mark.parametrize("number", [0, 1])
def test_a_run_that_ends_before_its_ranks_come_tells_who_waits(tmp_path: Path, number: int) -> None:
    port = free_port()
    place = ("train.num_machines=2", f"train.rendezvous=127.0.0.1:{port}", f"train.machine_rank={number}")
    waiting = Machine(tmp_path, 1 - number, port)
    tell_others(recipe("node", *place, "train.shared_home=false").train, DataError("no such column"))
    wait_until(lambda: waiting.error)
    assert isinstance(waiting.error, DataError)
    assert str(waiting.error) == f"machine {number} has ended: no such column"
    waiting.member.end(failed=True)


def test_machines_at_other_stages_are_told_which() -> None:
    found = difference({**FACTS, STAGE: "evaluate"}, {**FACTS, STAGE: "train"}, 1)
    assert found.startswith("machine 0 has come to evaluate and machine 1 to train")
    assert "--force train" in found


def test_a_port_that_another_program_has_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "_PORT_SECONDS", 0.5)
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        port = other.getsockname()[1]
        words = rf"port {port} of machine 0 cannot be had.*train\.rendezvous=127\.0\.0\.1:{port + 1}"
        with pytest.raises(StageError, match=words):
            Machine(tmp_path, 0, port)


def test_a_port_that_becomes_free_is_taken(tmp_path: Path) -> None:
    other = socket.socket()
    other.bind(("", 0))
    other.listen()
    threading.Timer(1.0, other.close).start()
    machine = Machine(tmp_path, 0, other.getsockname()[1])
    machine.member.end(failed=False)


def test_two_machines_of_one_number_are_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    machines = [Machine(tmp_path, number, port) for number in (0, 1)]
    for machine in machines:
        machine.member.wait_for_all()
    (tmp_path / "again").mkdir()
    again = Machine(tmp_path / "again", 1, port)  # the command on the same machine, once more
    again.member.wait_for_all()
    assert not again.codes
    monkeypatch.setattr(socket, "gethostname", lambda: "node7")
    (tmp_path / "other").mkdir()
    other = Machine(tmp_path / "other", 1, port)
    wait_until(lambda: other.codes)
    assert isinstance(other.error, RecipeError)
    assert "is machine 1 of this job already, and so is node7: give all machines the same hosts" in str(other.error)
    for machine in (*machines, again, other):
        assert machine is other or not machine.codes
        machine.member.end(failed=False)
