"""Shards in a pool of processes: order, errors, and no worker that outlives its parent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from configs.schema import PreprocessConfig
from flows.pipeline.shards import make_map_shards, split_evenly
from tasks.stage import map_in_process
from tests.flows.conftest import ROOT, environment

PROCESS = os.getpid()


def where(number: int) -> tuple[int, int]:
    return number, os.getpid()


def test_split_evenly_keeps_order_and_leaves_nothing_out() -> None:
    for count in (1, 2, 3, 8, 100):
        for size in (0, 1, 2, 7, 8, 9):
            parts = split_evenly(list(range(size)), count)
            assert [item for part in parts for item in part] == list(range(size))
            assert all(parts)
            assert len(parts) == min(count, size)
            assert not parts or max(map(len, parts)) - min(map(len, parts)) <= 1


def test_small_jobs_stay_in_this_process() -> None:
    mapped = make_map_shards(PreprocessConfig(workers=2))
    assert [pid for _, pid in mapped(where, range(50))] == [PROCESS] * 50


def test_one_worker_needs_no_pool() -> None:
    assert make_map_shards(PreprocessConfig(workers=1)) is map_in_process


def test_a_pool_keeps_order_and_errors_and_leave_no_worker(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.flows.runner_script", str(tmp_path / "home")],
        capture_output=True,
        text=True,
        env=environment(),
        cwd=ROOT,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert [number for number, _ in found["results"]] == list(range(9))
    assert found["here"] not in {pid for _, pid in found["results"][2:]}, "the first two tell how long the rest takes"
    assert found["left"] == 0
    assert found["error"] == "shard (row 3): is wrong"
    assert "temporary server" not in done.stderr


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
    assert parent.stdout is not None
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
