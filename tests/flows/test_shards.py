"""Shards in a pool of processes: order, errors, and no worker that outlives its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any

import psutil
import pytest

from configs.errors import DataError, StageError
from configs.load import load_recipe
from flows.pipeline.shards import PoolMap, make_map_shards
from tasks.stage import map_in_process
from tasks.storage.home import Home
from tests.flows.conftest import ROOT, environment

PROCESS = os.getpid()


def where(number: int) -> tuple[int, int]:
    return number, os.getpid()


def refuse_three(number: int) -> int:
    if number == 3:
        raise DataError("is wrong", path="shard", row=number)
    return number


def test_a_pool_keeps_order_and_errors_and_leaves_no_worker() -> None:
    mapped = PoolMap(2, start_seconds=0)
    results = list(mapped(where, range(9)))
    assert [number for number, _ in results] == list(range(9))
    assert PROCESS not in {pid for _, pid in results[2:]}, "the first two tell how long the rest takes"
    with pytest.raises(DataError, match=r"shard \(row 3\): is wrong"):
        list(mapped(refuse_three, range(6)))
    assert not [one for one in psutil.Process().children() if "spawn_main" in " ".join(one.cmdline())]


def kill_on_three(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_a_killed_worker_is_told_in_words() -> None:
    with pytest.raises(StageError, match=r"was killed, .* run again .* preprocess\.workers=1"):
        list(PoolMap(2, start_seconds=0)(kill_on_three, range(6)))


def map_shards(home: Home, *overrides: str) -> Any:
    return make_map_shards(load_recipe("quickstart", overrides), home)


@pytest.mark.parametrize("option", ["preprocess.workers=2", "cluster.address=node1.invalid:6379"])
def test_small_jobs_stay_in_this_process(home: Home, option: str) -> None:
    """No cluster is asked for them either."""
    assert [pid for _, pid in map_shards(home, option)(where, range(50))] == [PROCESS] * 50


def test_one_worker_needs_no_pool(home: Home) -> None:
    assert map_shards(home, "preprocess.workers=1") is map_in_process


def test_workers_end_with_a_killed_parent() -> None:
    code = """
import multiprocessing, sys, time
from concurrent.futures import ProcessPoolExecutor
from flows.pipeline.shards import end_with_parent
if __name__ == "__main__":
    pool = ProcessPoolExecutor(2, multiprocessing.get_context("spawn"), end_with_parent)
    futures = [pool.submit(time.sleep, 600) for _ in range(2)]
    time.sleep(2)
    print("ready", flush=True)
    time.sleep(600)
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment(), cwd=ROOT
    )
    assert parent.stdout.readline() == "ready\n"
    workers = psutil.Process(parent.pid).children(recursive=True)
    assert len(workers) >= 2
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and any(worker.is_running() for worker in workers):
        time.sleep(0.05)
    assert not [worker for worker in workers if worker.is_running()]
