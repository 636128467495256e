"""Machines that fall silent."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch.distributed as dist

from tasks.train.ranks import collectives
from tasks.train.ranks.heartbeat import Heartbeat, begin_heartbeat
from tasks.train.strategies.base import Ranks
from tests.ports import free_port


class Machine:
    """One rank of each of three machines with two ranks, and what it was told."""

    def __init__(self, number: int, port: int) -> None:
        self.causes: list[str] = []
        self.reachable = True
        self._port = port
        self.heartbeat = Heartbeat(Ranks(2 * number, 6, 0, 2), self._connect, self.causes.append, silence_seconds=6.0)

    def _connect(self) -> Any:
        store: Any = dist.TCPStore("127.0.0.1", self._port, is_master=False)
        machine = self

        class Line:
            """Its connection, which may be cut."""

            def add(self, key: str, amount: int) -> int:
                while not machine.reachable:
                    time.sleep(0.1)
                return int(store.add(key, amount))

        return Line()


def wait_for(machines: list[Machine]) -> None:
    deadline = time.monotonic() + 30
    while not all(machine.causes for machine in machines):
        assert time.monotonic() < deadline, [machine.causes for machine in machines]
        time.sleep(0.1)


def test_a_machine_that_is_cut_off_and_the_others_end() -> None:
    port = free_port()
    store = dist.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
    machines = [Machine(number, port) for number in range(3)]
    time.sleep(9)  # longer than a silence
    assert not any(machine.causes for machine in machines)
    machines[2].reachable = False
    wait_for(machines)
    for other in machines[:2]:
        assert other.causes[0].startswith("machine 2 (ranks 4 to 5) has not been heard of for ")
    assert machines[2].causes[0].startswith("machine 0 has not answered machine 2 for ")
    assert all(len(machine.causes) == 1 for machine in machines)
    del store


def test_a_machine_that_leaves_in_peace_is_not_watched() -> None:
    port = free_port()
    store = dist.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
    machine = Machine(1, port)
    machine.heartbeat.stop()
    del store
    time.sleep(8)
    assert not machine.causes


def test_ranks_of_one_machine_are_not_watched() -> None:
    assert begin_heartbeat(Ranks(0, 2, 0, 2)) is None
    assert begin_heartbeat(Ranks(3, 4, 1, 2)) is None


def test_ranks_that_do_not_reach_each_other_say_so_and_end(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(collectives, "_LONG_SECONDS", 0.1)
    monkeypatch.setattr(collectives, "_TOO_LONG_SECONDS", 0.5)
    monkeypatch.setattr(collectives.os, "_exit", ended.append)
    with collectives._impatient(Ranks(3, 4, 1, 2)):
        time.sleep(0.3)
        assert capfd.readouterr().out.startswith("warning: rank 3 still waits for the others")
        assert not ended
        time.sleep(0.5)
    assert ended == [1]
    with collectives._impatient(Ranks(3, 4, 1, 2)):
        pass
    time.sleep(0.7)
    assert (ended, capfd.readouterr().out) == ([1], "rank 3 gives up\n")
