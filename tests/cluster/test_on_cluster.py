"""Two machines that see the same folders."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from configs.errors import RecipeError
from configs.values.cluster import ClusterConfig
from tasks.cluster.connect import TOKEN_FILE, check_reached, cluster_folder, own_node
from tasks.cluster.survey import surveyed
from tasks.storage.home import Home
from tests.cluster.raylets import Cluster, Raylet, free_shift, processes, running
from tests.cluster.stages import (
    ON_CLUSTER,
    assert_equal_to_one_machine,
    gone_within,
    graph_of,
    trained,
    two_ranks,
    vectors,
)
from tests.flows.conftest import called
from tests.train.test_training import reached, wait_for


@pytest.fixture
def other(cluster: Cluster, tmp_path: Path) -> Raylet:
    """A machine that has not joined, nor the token."""
    return Raylet(tmp_path / "other", cluster.sockets, "r2")


def test_status_shows_the_machines(cluster: Cluster) -> None:
    done = cluster.head("cluster", "status")
    assert done.returncode == 0, done.stderr
    title, *rows = done.stdout.splitlines()
    assert title.split() == ["machine", "address", "CPUs", "free", "GPUs", "free", "memory"]
    assert [row.split()[-7:-2] for row in rows] == [
        [cluster.address.rpartition(":")[0], "1", "1", "0", "0"],
        ["127.0.0.2", "1", "1", "0", "0"],
    ]
    assert ["(here)" in row for row in rows] == [True, False]
    machines = cluster.second.status()
    assert [one["machine"]["address"] for one in machines] == ["127.0.0.2", cluster.address.rpartition(":")[0]]
    assert [one["machine"]["is_own"] for one in machines] == [True, False]
    assert [one["unlike"] for one in machines] == ["", ""]


def test_who_has_no_token_or_another_is_refused_at_once(cluster: Cluster, other: Raylet) -> None:
    def refused(*asks: str) -> str:
        began = time.monotonic()
        done = other("cluster", *asks)
        assert time.monotonic() - began < 20
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        return done.stderr

    there = f"error: the cluster at {cluster.address}"
    assert refused("join", cluster.address).startswith(f"{there} asks for a token, and there is none here; give the ")
    (cluster_folder(other.home) / TOKEN_FILE).write_text("0" * 64)
    assert refused("status", "--cluster", cluster.address).startswith(f"{there} has another token; give the token ")
    assert not own_node(other.home)


def test_a_machine_takes_part_once(cluster: Cluster) -> None:
    done = cluster.head("cluster", "start")
    assert done.returncode == 2
    assert done.stderr == (
        f"error: this machine's Ray runs already (cluster {cluster.address}); end it first: graphmill cluster stop\n"
    )


def test_stop_ends_its_own_processes_and_no_others(cluster: Cluster, other: Raylet) -> None:
    others = len(processes(str(cluster.head.temp_dir))), len(processes(str(cluster.second.temp_dir)))
    with running(other):
        other.join(cluster.address, cluster.token, "--node-ip", "127.0.0.3")
        group = own_node(other.home)["group"]
        assert len(list(members(group))) > 1
    assert not list(members(group))
    assert not other.temp_dir.exists()
    assert (len(processes(str(cluster.head.temp_dir))), len(processes(str(cluster.second.temp_dir)))) == others
    done = other("cluster", "stop")
    assert (done.returncode, done.stdout) == (0, "no Ray of this home runs on this machine\n")


def members(group: int) -> Iterator[int]:
    for pid in psutil.pids():
        try:
            if os.getpgid(pid) == group and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                yield pid
        except (ProcessLookupError, psutil.Error):
            continue


@pytest.fixture
def open_cluster(cluster: Cluster, tmp_path: Path) -> Iterator[str]:
    """The address of a head that asks for no token."""
    shift = free_shift()
    options = f"--head --port={6379 + shift} --num-cpus=1 --include-dashboard=false --temp-dir={cluster.sockets}/r3"
    options += f" --node-manager-port={6380 + shift} --object-manager-port={6381 + shift} --include-log-monitor=false"
    options += f" --min-worker-port={6400 + shift} --max-worker-port={6599 + shift}"  # Ray's own may hold the others
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", *options.split(), "--disable-usage-stats"]
    environment = {**cluster.head.environment, "RAY_AUTH_MODE": "disabled"}
    log = tmp_path / "ray.log"
    with log.open("w") as output:
        process = subprocess.Popen(command, env=environment, start_new_session=True, stdout=output, stderr=output)
    try:
        assert process.wait() == 0, log.read_text()
        yield f"127.0.0.1:{6379 + shift}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)


def test_a_cluster_that_anybody_may_enter_is_refused_unless_it_is_wanted(
    open_cluster: str, cluster: Cluster, other: Raylet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", open_cluster)
    with pytest.raises(RecipeError, match=r"asks for no token: .*cluster\.require_token=false takes it as it is"):
        check_reached(open_cluster, ClusterConfig(address=open_cluster), other.home)
    config = ClusterConfig(address=open_cluster, require_token=False)
    (machine,) = surveyed(config, other.home)
    assert (machine.machine.is_own, machine.machine.cpus) == (True, 1)
    (machine,) = surveyed(config, cluster.new_home("token"))
    assert machine.machine.is_own


def kill_a_rank(cluster: Cluster, home: Home) -> None:
    """Kill the second machine's once there is a checkpoint."""
    wait_for(lambda: reached(home, 2), 180)
    for process in processes(str(cluster.second.cache)):
        if "tasks.train.worker" in process.cmdline():
            process.kill()


def test_ranks_go_on_after_one_was_killed_with_the_bits_of_one_machine(cluster: Cluster, tmp_path: Path) -> None:
    home = cluster.new_home("killed")
    graph, options = graph_of(home), ("train.epochs=60", "train.schedule=cosine")
    killer = threading.Thread(target=kill_a_rank, args=(cluster, home))
    killer.start()
    outcome, said = trained(home, two_ranks(*options, *ON_CLUSTER), graph)
    killer.join()
    run = outcome.manifest
    assert (run.world_size, run.restarts) == (2, 1)
    assert 2 <= run.resumed_from_epoch < 60
    assert [(one.ranks, one.cpu_percent > 0) for one in run.machines] == [("rank 0", True), ("rank 1", True)]
    assert run.peak_bytes >= max(one.peak_bytes for one in run.machines) > 1e7
    assert [one.fetched_bytes > 1e4 for one in run.machines] == [False, True]
    assert "a rank died (signal SIGKILL (out of memory?)); starting again from the last checkpoint" in said
    assert f"{cluster.address.rpartition(':')[0]}: rank 0" in said
    assert said.count("127.0.0.2: rank 1") == 2
    assert_equal_to_one_machine(outcome, tmp_path / "alone", graph, two_ranks(*options))
    assert not gone_within(5, lambda: [one.cmdline() for one in processes(str(home.root), str(cluster.second.cache))])
    assert [one["free"]["cpus"] for one in cluster.head.status()] == [1, 1]
    assert not list((cluster.second.cache / "graphmill" / "cluster" / "work").iterdir())


def test_files_over_ray(cluster: Cluster, tmp_path: Path) -> None:
    home = cluster.new_home("files")
    command = [sys.executable, "-m", "tests.cluster.files_over_ray", str(home.root), str(tmp_path)]
    done = called(command, env=cluster.head.environment, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == 9, done.stdout


@pytest.mark.slow
def test_ranks_that_exchange_files_have_the_bits_of_one_machine(cluster: Cluster, tmp_path: Path) -> None:
    home = cluster.new_home("blocks")
    graph = graph_of(home)
    outcome, said = trained(home, vectors(*ON_CLUSTER), graph)
    assert said.count("127.0.0.2: rank 1") == 1
    assert_equal_to_one_machine(outcome, tmp_path / "alone", graph, vectors())
