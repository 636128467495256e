"""Which machine takes which ranks."""

from __future__ import annotations

import subprocess
import sys
import time

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.errors import StageError
from configs.load import build_recipe
from flows.cluster.machines import placement
from tasks.cluster.machines import Machine, Need, assign
from tasks.cluster.place import compare, versions
from tasks.cluster.survey import Looked
from tasks.processes.children import ROOT


def machine(name: str, cpus: float, gpus: float = 0, memory_bytes: float = 8e9, *, is_own: bool = False) -> Machine:
    return Machine(name, name, f"10.0.0.{ord(name[0])}", cpus, gpus, memory_bytes, is_own)


def counts(machines: list[Machine], ranks: int, need: Need, *, pack: bool = False) -> dict[str, int] | None:
    shares = assign(machines, ranks, need, pack=pack)
    return None if shares is None else {share.machine.name: share.count for share in shares}


def test_ranks_are_spread_or_packed() -> None:
    machines = [machine("a", 4, is_own=True), machine("b", 2), machine("c", 8)]
    one = Need(threads=1)
    assert counts(machines, 1, one) == counts(machines, 1, one, pack=True) == {"a": 1}
    assert counts(machines, 2, one) == {"a": 1, "c": 1}
    assert counts(machines, 9, one) == {"a": 4, "b": 2, "c": 3}
    assert counts(machines, 4, one, pack=True) == {"a": 4}
    assert counts(machines, 9, one, pack=True) == {"a": 4, "c": 5}
    assert counts(machines, 14, one) == {"a": 4, "b": 2, "c": 8}
    assert counts(machines, 15, one) is None
    assert counts([], 1, one) is None


def test_rank_0_is_elsewhere_where_this_machine_has_no_room() -> None:
    machines = [machine("a", 1, is_own=True), machine("b", 4)]
    shares = assign(machines, 2, Need(threads=2), pack=False)
    assert shares is not None
    assert [(share.machine.name, share.first, share.count) for share in shares] == [("b", 0, 2)]
    assert shares[0].text() == "ranks 0 to 1"


def test_gpus_and_memory_count() -> None:
    machines = [machine("a", 16, gpus=1, is_own=True), machine("b", 16, gpus=4), machine("c", 16)]
    assert counts(machines, 4, Need(threads=2, gpus=1)) == {"a": 1, "b": 3}
    assert counts(machines, 6, Need(threads=2, gpus=1)) is None
    assert counts(machines, 6, Need(threads=2, memory_bytes=4e9)) == {"a": 2, "b": 2, "c": 2}
    need = Need(threads=2, gpus=1, memory_bytes=4e9)
    assert need.resources(3) == {"CPU": 6.0, "GPU": 3.0, "memory": 12e9}
    assert need.text() == "2 CPUs, 1 GPU, 4.0 GB of memory"


def test_the_plan_counts_what_a_run_takes_where_it_begins() -> None:
    sections = {
        "name": "one",
        "dataset": {"name": "synthetic"},
        "model": {"name": "graphsage"},
        "cluster": {"rank_memory_gb": 1.5},
    }
    recipe = build_recipe(sections, ["train.num_ranks=2", "train.threads=1"])
    machines = [machine("a", 1, memory_bytes=2e9, is_own=True), machine("b", 1, memory_bytes=2e9)]
    own, other = placement(recipe, [Looked(one, one, "") for one in machines], 0)
    assert own.startswith("a: rank 0, 1 of 1 CPUs; about 2.6 GB of memory with Ray and the run itself, more than the 2")
    assert "let it lend fewer CPUs (graphmill cluster start --cpus N)" in own
    assert other == "b: rank 1, 1 of 1 CPUs; about 1.8 GB of memory with Ray"


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4)), max_size=6),
    st.integers(1, 30),
    st.builds(Need, st.integers(1, 3), st.integers(0, 1)),
    st.booleans(),
)
def test_all_ranks_have_a_place_and_no_machine_too_many(
    sizes: list[tuple[int, int]], ranks: int, need: Need, pack: bool
) -> None:
    machines = [machine(chr(97 + i), cpus, gpus, is_own=i == 0) for i, (cpus, gpus) in enumerate(sizes)]
    shares = assign(machines, ranks, need, pack=pack)
    room = {one.name: one.room(need) for one in machines}
    assert (shares is None) == (sum(room.values()) < ranks)
    if shares is None:
        return
    numbers = [share.first + i for share in shares for i in range(share.count)]
    assert numbers == list(range(ranks))
    taken = {one.name: 0 for one in machines} | {share.machine.name: share.count for share in shares}
    assert all(taken[name] <= room[name] for name in room)
    assert [share.machine for share in shares] == [one for one in machines if taken[one.name]]
    assert taken["a"] or not room["a"]
    unfilled = [taken[name] for name in room if taken[name] < room[name]]
    if pack:
        assert sum(map(bool, unfilled)) <= 1
    else:
        assert max(taken.values()) <= min(unfilled, default=ranks) + 1


def test_other_versions_are_named_with_their_machine() -> None:
    compare("node2", versions())
    other = {**versions(), "torch": "1.0.0", "Python": "2.7.18"}
    with pytest.raises(StageError, match=r"^node2 .*Python is 2\.7\.18 there and 3\..* here; torch is 1\.0\.0 there"):
        compare("node2", other)


def test_an_actor_ends_with_the_process_that_began_it() -> None:
    actor = "import time; from tasks.cluster.machines import end_with_raylet; end_with_raylet(); time.sleep(100)"
    raylet = f"import subprocess, sys, time; print(subprocess.Popen([sys.executable, '-c', {actor!r}]).pid, flush=True)"
    with subprocess.Popen(
        [sys.executable, "-c", f"{raylet}; time.sleep(100)"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        while len(child.threads()) == 1:  # not there yet
            time.sleep(0.1)
        time.sleep(1.5)
        assert child.is_running()
        parent.kill()
    assert not psutil.wait_procs([child], timeout=20)[1]
