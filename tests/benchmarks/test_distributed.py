"""The comparison with DistDGL: its files hold our graph, and trainers do what they are asked to."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.distributed_side import SOCKET, Order, Pace, Side
from tests.sampling.part_graphs import rich_graph
from tests.support import WITHOUT_DGL


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
