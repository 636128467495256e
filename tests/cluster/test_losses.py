"""Machines and commands that are lost; each test has a cluster of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from configs.errors import StageError
from tasks.cluster.connect import own_node
from tests.cluster.raylets import Cluster, begun, free_shift, processes
from tests.cluster.stages import assert_equal_to_one_machine, gone_within, graph_of, trained, two_ranks
from tests.flows.conftest import ROOT, command, write_recipe
from tests.train.test_training import reached, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
LONG = ("train.epochs=100", "train.schedule=cosine")


def while_training(act: Callable[[], object], ready: Callable[[], bool]) -> threading.Thread:
    """Act once it is time."""

    def run() -> None:
        wait_for(ready, 180)
        act()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def free_cpus(cluster: Cluster) -> list[float]:
    return [machine["free"]["cpus"] for machine in cluster.head.status()]


@pytest.mark.parametrize("apart", [False, True])
def test_a_training_waits_for_room_ends_and_goes_on(tmp_path: Path, apart: bool) -> None:
    """The second machine dies, then another takes its place."""
    with begun(tmp_path / "homes") as cluster:
        cluster.join(apart=apart)
        home = cluster.new_home("lost")
        graph, on_cluster = graph_of(home), ("cluster.address=auto", "cluster.wait_minutes=0.2")
        thread = while_training(cluster.second.kill, lambda: reached(home, 2))
        began = time.monotonic()
        with pytest.raises(StageError) as error:
            trained(home, two_ranks(*LONG, *on_cluster), graph)
        thread.join()
        assert time.monotonic() - began < 120
        assert str(error.value).startswith("no room for 2 ranks of 1 CPU, ")
        assert str(error.value).endswith("Running again goes on from the last checkpoint")
        assert "\n" not in str(error.value)
        assert not gone_within(5, lambda: processes(str(home.root), str(cluster.second.cache)))
        assert free_cpus(cluster) == [1]
        cluster.join(apart=apart)
        outcome, said = trained(home, two_ranks(*LONG, *on_cluster), graph)
        assert outcome.manifest.resumed_from_epoch >= 2
        print(said)
        assert_equal_to_one_machine(outcome, tmp_path / "alone", graph, two_ranks(*LONG))


@pytest.mark.parametrize("apart", [False, True])
def test_ranks_that_are_all_elsewhere_leave_all_in_the_home(tmp_path: Path, apart: bool) -> None:
    """Also where one is killed and they begin again from the checkpoint that came back."""
    with begun(tmp_path / "homes", "--cpus", "0") as cluster:
        cluster.join("--cpus", "2", apart=apart)
        home = cluster.new_home("elsewhere")
        graph, on_cluster = graph_of(home), ("cluster.address=auto", "cluster.wait_minutes=1")

        def kill_a_rank() -> None:
            ranks = [one for one in processes(str(cluster.second.cache)) if "tasks.train.worker" in one.cmdline()]
            ranks[-1].kill()

        thread = while_training(kill_a_rank, lambda: reached(home, 2))
        outcome, said = trained(home, two_ranks(*LONG, *on_cluster), graph)
        thread.join()
        assert outcome.manifest.restarts == 1
        assert 2 <= outcome.manifest.resumed_from_epoch < 100
        print(said)
        assert_equal_to_one_machine(outcome, tmp_path / "alone", graph, two_ranks(*LONG))


def test_a_run_goes_on_under_a_new_head(tmp_path: Path) -> None:
    """Begun on another machine, which joins the new head while the run waits."""
    with begun(tmp_path / "homes", "--cpus", "0") as cluster:
        cluster.join("--cpus", "2")
        home = cluster.second.home
        graph, longer = graph_of(home), ("train.epochs=1500", "train.schedule=cosine")

        def exchange_the_head() -> None:
            cluster.head.stop()
            options = cluster.head._options("start", free_shift())
            begun_anew = cluster.head(*options, "--cpus", "0", "--port", cluster.address.rpartition(":")[2])
            assert begun_anew.returncode == 0, begun_anew.stderr
            cluster.second.stop()
            cluster.join("--cpus", "2")

        thread = while_training(exchange_the_head, lambda: reached(home, 2))
        on_cluster = ("cluster.address=auto", "cluster.wait_minutes=3")
        outcome, said = trained(home, two_ranks(*longer, *on_cluster), graph)
        thread.join()
        assert "a machine was lost; starting again from the last checkpoint" in said
        assert outcome.manifest.restarts == 1
        assert_equal_to_one_machine(outcome, tmp_path / "alone", graph, two_ranks(*longer))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_a_command(tmp_path: Path, number: int) -> None:
    """On each machine all has ended, and what it took is free."""
    with begun(tmp_path / "homes") as cluster:
        cluster.join()
        home = cluster.new_home("command")
        recipe = write_recipe(tmp_path, train={"loader": "full", "epochs": 2000, "num_ranks": 2, "threads": 1})
        words = command(home.root, "run", str(recipe), "--cluster", "auto")
        with (tmp_path / "said").open("wb") as said:
            process = subprocess.Popen(words, cwd=ROOT, env=cluster.head.environment, stdout=said, stderr=said)
        wait_for(lambda: process.poll() is not None or reached(home, 2), 180)
        assert process.poll() is None, (tmp_path / "said").read_text()
        os.kill(process.pid, number)
        process.wait(timeout=30)
        assert not gone_within(20, lambda: processes(str(home.root), str(cluster.second.cache)))
        assert not gone_within(20, lambda: free_cpus(cluster) != [1, 1])


def at_least(count: int, folder: str) -> bool:
    return len(processes(folder)) >= count


def test_what_is_told_to_end_while_ray_begins_leaves_none(tmp_path: Path) -> None:
    with begun(tmp_path / "homes") as cluster:
        second, token = cluster.second, tmp_path / "token"
        token.write_text(cluster.token.read_text())
        words = ("cluster", "join", cluster.address, "--token-file", str(token), "--node-ip", "127.0.0.2")
        more = ("--cpus", "1", "--shift-ports", str(free_shift()), "--temp-dir", str(second.temp_dir))
        for number, count in ((signal.SIGTERM, 2), (signal.SIGTERM, 4), (signal.SIGINT, 2)):
            full = command(second.home.root, *words, *more)
            with subprocess.Popen(full, env=second.environment, stderr=subprocess.PIPE, text=True) as process:
                wait_for(partial(at_least, count, str(second.temp_dir)))
                process.send_signal(number)
                process.communicate(timeout=60)
            assert process.returncode not in (0, -number)
            assert not processes(str(second.temp_dir))
            assert not second.temp_dir.exists()
            assert not own_node(second.home)


def test_a_machine_that_stays_takes_part_until_it_is_told_to_end(tmp_path: Path) -> None:
    """`--block`, for a service or a container: SIGTERM ends Ray with it, and Ray's own end is told."""
    with begun(tmp_path / "homes") as cluster:
        second, token = cluster.second, tmp_path / "token"
        token.write_text(cluster.token.read_text())
        words = ("cluster", "join", cluster.address, "--token-file", str(token), "--node-ip", "127.0.0.2")
        for number, code, mode in ((signal.SIGTERM, 0, 0o644), (signal.SIGKILL, 1, 0o600)):
            token.chmod(mode)
            more = ("--cpus", "1", "--shift-ports", str(free_shift()), "--temp-dir", str(second.temp_dir), "--block")
            full = command(second.home.root, *words, *more)
            with subprocess.Popen(full, env=second.environment, stderr=subprocess.PIPE, text=True) as process:
                wait_for(lambda: len(free_cpus(cluster)) == 2)
                process.terminate() if number == signal.SIGTERM else second.kill()
                _, said = process.communicate(timeout=60)
            assert process.returncode == code
            assert ("Ray has ended by itself; see" in said) == bool(code)
            assert ("warning: others may read" in said) == (mode == 0o644)
            assert not processes(str(second.temp_dir))
            assert not own_node(second.home)
