"""Partitioning by workers: the same parts however many there are, whatever they forget, however often asked."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from tasks.partition import shard_work, sharded
from tasks.partition.base import Csr, PartitionContext
from tasks.partition.kernels.quality import count_cut
from tasks.partition.levels import Resources, _contract, finest_level
from tasks.partition.sharded import _Shards
from tasks.partition.waves import ThreadWaves
from tasks.stage import map_in_process
from tests.flows.conftest import ROOT, environment
from tests.partition.test_partitioners import csr_of, make, planted

Mapping = Callable[[Callable[[Any], Any], Sequence[Any]], Any]


class Workers:
    """A mapping whose workers last, as those of a task runner."""

    def __init__(self, count: int, mapping: Mapping) -> None:
        self.count, self.mapping = count, mapping

    def __call__(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Any:
        raise AssertionError("one call is not worth starting workers")

    @contextmanager
    def lasting(self) -> Iterator[tuple[Mapping, int]]:
        yield self.mapping, self.count


def forgetful(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """Every task meets a worker that knows nothing, in no order."""
    found = {}
    for i in reversed(range(len(items))):
        shard_work._states.clear()
        found[i] = function(items[i])
    return [found[i] for i in range(len(items))]


def twice(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """Every task is done again, as after an answer that was lost."""
    for item in items:
        function(item)
    return [function(item) for item in items]


def on_threads(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(function, items))


def split(csr: Csr, mapping: Any, scratch: Path) -> np.ndarray:
    context = PartitionContext(scratch=scratch, map_shards=mapping)
    return make("sharded", seed=2).partition(csr, 4, context)


@pytest.mark.parametrize(
    ("count", "mapping"), [(2, map_in_process), (16, map_in_process), (3, forgetful), (2, twice), (5, on_threads)]
)
def test_any_workers_find_the_same(count: int, mapping: Mapping, tmp_path: Path) -> None:
    csr = planted(5001)
    assert np.array_equal(split(csr, Workers(count, mapping), tmp_path), split(csr, map_in_process, tmp_path))
    assert list(tmp_path.iterdir()) == []
    assert shard_work._states == {}


@pytest.mark.slow
@pytest.mark.timeout(900)  # Prefect takes a tenth of a second for each task, and there are hundreds
def test_task_runners_find_the_same(tmp_path: Path) -> None:
    recipe = {
        "name": "shards",
        "dataset": {"name": "synthetic", "num_nodes": 5000, "num_edges": 40_000},
        "partition": {"name": "sharded", "num_parts": 4, "rounds": 2, "passes": 1},
        "model": {"name": "graphsage"},
    }
    (tmp_path / "shards.yaml").write_text(json.dumps(recipe))
    found = []
    for runner, workers in (("process", 1), ("process", 2)):
        home = tmp_path / f"{runner}-{workers}"
        command = [sys.executable, "-m", "flows.cli", "run", str(tmp_path / "shards.yaml"), "--home", str(home)]
        stages = "--only=ingest,preprocess,components,partition"
        options = [stages, f"preprocess.runner={runner}", f"preprocess.workers={workers}"]
        done = subprocess.run([*command, *options], capture_output=True, text=True, env=environment(), cwd=ROOT)
        assert done.returncode == 0, done.stderr
        assert f"{workers} workers look at" in done.stderr
        [path] = (home / "artifacts" / "partition").glob("*/manifest.json")
        found.append(json.loads(path.read_bytes())["files"])
    assert found[0] == found[1]


def test_clusters_are_those_of_threads(tmp_path: Path) -> None:
    csr = planted(5001)
    with _Shards(csr, PartitionContext(scratch=tmp_path), map_in_process, 3) as shards:
        found = shards.cluster(80, 3, seed=5)
    with ThreadWaves(csr, 1) as waves:
        expected = waves.cluster(80, 3, seed=5)
    for one, other in zip(found, expected, strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("piece_entries", [50, 1 << 23])
def test_the_graph_of_clusters_is_that_of_one_machine(
    piece_entries: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharded, "_PIECE_ENTRIES", piece_entries)
    rng = np.random.default_rng(0)
    csr = csr_of(*rng.integers(0, 900, (2, 4001)), 907)
    label = np.unique(rng.integers(0, 101, 907), return_inverse=True)[1].astype(np.int32)
    count = int(label.max()) + 1
    with _Shards(csr, PartitionContext(scratch=tmp_path), map_in_process, 3) as shards:
        graph = shards.contract(label, count)
    expected = _contract(finest_level(csr, None), label, count, np.empty(907, np.int32), Resources()).graph

    def dense(one: Any) -> np.ndarray:
        return sp.csr_matrix((one.edge_weight, one.indices, one.indptr), shape=(count, count)).toarray()

    assert np.array_equal(dense(graph), dense(expected))
    assert len(graph.indices) == len(expected.indices)


def test_cuts_little_more_than_one_machine(tmp_path: Path) -> None:
    csr = planted(12_000)
    cuts = [
        count_cut(csr.indptr, csr.indices, part)
        for part in (split(csr, map_in_process, tmp_path), make("coarsened", seed=2).partition(csr, 4))
    ]
    assert cuts[0] <= 1.08 * cuts[1]


def test_files_of_the_graph_are_read_where_they_are(tmp_path: Path) -> None:
    csr = planted(2001)
    np.save(tmp_path / "indices.npy", csr.indices)
    mapped = np.asarray(np.load(tmp_path / "indices.npy", mmap_mode="r"))
    other = tmp_path / "copy.npy"
    assert sharded._file_of(mapped, other) == str(tmp_path / "indices.npy")
    assert sharded._file_of(mapped[1:], other) == str(other)
    assert np.array_equal(np.load(other), mapped[1:])
