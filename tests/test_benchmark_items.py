"""Benchmarks go on after an item that fails; DistDGL's parts hold our graph, and trainers do what they are asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.distributed import summary
from benchmarks.distributed_side import SOCKET, Order, Pace, Side
from tests.sampling.part_graphs import rich_graph
from tests.support import WITHOUT_DGL

ROOT = Path(__file__).resolve().parent.parent
BENCHMARK = """
import argparse, os, sys, time
from pathlib import Path
from benchmarks.items import add_options, check_parts, run_items

def fail():
    raise RuntimeError("an illegal memory access was encountered")

def main(arguments):
    parser = argparse.ArgumentParser()
    add_options(parser, ("fast", "slow"), limit=10)
    args = parser.parse_args(arguments)
    check_parts(parser, args, ("fast", "slow"))
    items = {
        ("fast", "before"): os.getpid,
        ("fast", "too"): os.getpid,
        ("fast", "fails"): fail,
        ("fast", "after"): os.getpid,
        ("fast", "crashes"): os.abort,
        ("fast", "absent"): lambda: __import__("no_such_module"),
        ("slow", "hangs"): lambda: time.sleep(1000),
        ("slow", "last"): lambda: {"ms": 1.5},
    }
    return run_items("toy", arguments, args, items, Path("toy.json"), {"machine": "mine"})

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "toy.py").write_text(BENCHMARK)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    command = [sys.executable, "-m", "toy", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=250)


def test_an_item_costs_itself_only(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 1, done.stderr
    found = json.loads((tmp_path / "toy.json").read_text())
    fast = found["fast"]
    assert fast["before"] == fast["too"] != fast["after"], "one process until one fails"
    assert fast["fails"] == {"failed": "RuntimeError: an illegal memory access was encountered"}
    assert fast["crashes"] == {"failed": "its process ended with -6"}
    assert fast["absent"] == {"left out": "No module named 'no_such_module'"}
    assert found["slow"] == {"hangs": {"failed": "took longer than 10 s"}, "last": {"ms": 1.5}}
    assert found["machine"] == "mine"
    assert "slow: last: ms 1.500" in done.stdout


@pytest.mark.parametrize(("parts", "code", "words"), [("slow,quick", 2, "quick is none of"), ("slow", 1, "")])
def test_parts_have_names(tmp_path: Path, parts: str, code: int, words: str) -> None:
    done = run(tmp_path, "--parts", parts, "--limit", "1")
    assert (done.returncode, words in done.stderr) == (code, True)
    assert (tmp_path / "toy.json").exists() == (code == 1)
    if code == 1:
        assert "fast" not in json.loads((tmp_path / "toy.json").read_text())


@pytest.mark.skipif(WITHOUT_DGL, reason="DGL has no wheel for this Python")
@pytest.mark.parametrize("count", [2, 3])
def test_parts_hold_the_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    from benchmarks.distributed_dgl import NAME, dgl, write_parts
    from tasks.storage.graph_store import GraphStore

    parent = rich_graph(tmp_path / "graph")
    store = GraphStore.open(parent.folder)
    write_parts(parent.folder, count, tmp_path / "out")
    monkeypatch.setenv("DGL_DIST_DEBUG", "1")  # DGL verifies what it loads
    found, trained = [], []
    for part in range(count):
        loaded = dgl.distributed.load_partition(str(tmp_path / "out" / f"{NAME}.json"), part)
        graph, features, _, book = loaded[:4]
        src, dst, edge = (ends.numpy() for ends in graph.edges(form="all"))
        ids = graph.ndata[dgl.NID].numpy()
        found.append(np.stack([ids[src], ids[dst], graph.edata[dgl.EID].numpy()[edge]], 1))
        first, end = store.manifest.rank_bounds(count)[part : part + 2]
        assert book.partid2nids(part).tolist() == list(range(first, end))
        np.testing.assert_array_equal(features["_N/feat"].numpy(), store["feat"][first:end].astype(np.float32))
        np.testing.assert_array_equal(features["_N/label"].numpy(), store["label"][first:end])
        trained += [first + node for node in features["_N/train_mask"].numpy().nonzero()[0].tolist()]
    edges = np.concatenate(found)
    edges = edges[np.argsort(edges[:, 2])]
    np.testing.assert_array_equal(edges[:, 2], np.arange(store.manifest.num_edges))
    np.testing.assert_array_equal(edges[:, 0], store["csc_indices"])
    degree = np.diff(store["csc_indptr"])
    np.testing.assert_array_equal(edges[:, 1], np.repeat(np.arange(len(degree)), degree))
    assert trained == sorted(store["train_idx"].tolist())


class Cluster:
    """Stands in for `Machines`: trainers are threads."""

    def __init__(self, count: int, name: str) -> None:
        self.machines: list[Any] = []

    def close(self) -> None:
        """Nothing is left."""


def test_trainers_take_the_batches_that_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.distributed_side.Machines", Cluster)
    taken: list[tuple[int, str]] = []

    def trainer(rank: int) -> None:
        pace = Pace(rank)
        for stage in ("batches", "steps"):
            while pace.wants(stage):
                taken.append((rank, stage))
                time.sleep(0.05 if stage == "batches" and len(taken) < 5 else 0.0)
                pace.took(seeds=10 + rank)

    def start(_machines: Any, number: int, environment: dict[str, str], _log: Any) -> None:
        monkeypatch.setenv(SOCKET, environment[SOCKET])
        threading.Thread(target=trainer, args=(number,), daemon=True).start()

    with Side("toy", 2, start) as side:
        found = side.ask(Order("batches", 4, unclocked=3))
        assert found["seeds"] == 10.5, "the mean of both"
        assert found["wall_ms"] < 50, "the first ones, which were slow, do not count"
        assert sorted(taken) == [(rank, "batches") for rank in (0, 1) for _ in range(4)]
        side.ask(Order("steps", 2))
        assert taken[8:].count((1, "steps")) == taken[8:].count((0, "steps")) == 2


def test_ratios_are_of_as_many_seeds() -> None:
    rounds = {
        "ours": [{"cpu_ms": 10.0, "wall_ms": 5.0, "sent_mb": 1.0}] * 3,
        "dgl": [{"cpu_ms": value, "wall_ms": 5.0, "sent_mb": 2.0} for value in (40.0, 90.0, 60.0)],
    }
    found = summary(rounds, {"ours": {"seeds": 512.0}, "dgl": {"seeds": 1024.0}})
    assert found["cpu_ratios"] == [2.0, 4.5, 3.0]
    assert (found["cpu_ratio"], found["wall_ratio"], found["ours_sent_mb"]) == (3.0, 0.5, 2.0)
