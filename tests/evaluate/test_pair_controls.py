"""Controls of pairs: neighbourhoods against networkx, EdgeBank against sets, and what degrees alone tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from tasks.arrays import Array
from tasks.controls.pairs import neighborhoods
from tasks.controls.pairs.links import DegreeRule, EdgeBank
from tasks.controls.pairs.neighborhoods import NeighborhoodControl
from tasks.storage.graph_store import ArrayWriter, GraphStore
from tests.support import as_partition, finish, link_graph, write_csc

NUM = 61


def store_of(folder: Path, edges: Array, symmetric: bool) -> GraphStore:
    """A link graph with these messages (m, 2): both ways, or as they are."""
    writer = ArrayWriter(folder)
    source, target = edges.T
    if symmetric:
        source, target = np.concatenate([source, target]), np.concatenate([target, source])
    num_edges = write_csc(writer, NUM, source, target)
    if not symmetric:
        order = np.argsort(source, kind="stable")
        writer.write("csr_indptr", np.concatenate([[0], np.bincount(source, minlength=NUM).cumsum()]))
        writer.write("csr_indices", target[order].astype(np.int32))
    kinds: Any = {"task": "link", "task_type": "link", "metric": "hits@20", "num_nodes": NUM, "num_edges": num_edges}
    graph = as_partition(finish(folder, writer, splits={}, symmetric=symmetric, **kinds))
    return GraphStore(graph.folder, graph.manifest)


@pytest.mark.parametrize("symmetric", [True, False])
def test_scores_are_those_of_networkx(tmp_path: Path, symmetric: bool) -> None:
    """With loops, edges in both directions, repeated edges and nodes without any."""
    rng = np.random.default_rng(4)
    edges = rng.integers(0, NUM - 3, (260, 2))
    edges = np.concatenate([edges, edges[:20], edges[20:40, ::-1], [[5, 5], [7, 7]]])
    graph = nx.Graph([(int(u), int(v)) for u, v in edges if u != v])
    graph.add_nodes_from(range(NUM))
    pairs = np.concatenate([rng.integers(0, NUM, (400, 2)), edges[:50], [[5, 5], [60, 60]]]).astype(np.int32)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    found = NeighborhoodControl(store_of(tmp_path, edges, symmetric)).scores(pairs)
    assert found is not None
    ends = [(int(u), int(v)) for u, v in pairs]
    np.testing.assert_array_equal(found["degree"], [graph.degree(u) * graph.degree(v) for u, v in ends])
    np.testing.assert_array_equal(found["common_neighbors"], [len(list(nx.common_neighbors(graph, *e))) for e in ends])
    expected = [score for *_, score in nx.adamic_adar_index(graph, ends)]
    np.testing.assert_allclose(found["adamic_adar"], expected, rtol=1e-5)


def test_it_says_so_where_pairs_are_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = as_partition(link_graph(tmp_path))
    control = NeighborhoodControl(GraphStore(graph.folder, graph.manifest))
    pairs = np.load(graph.folder / "test_edges.npy")
    degree = np.diff(np.load(graph.folder / "csc_indptr.npy"))
    assert control.steps(pairs) == degree[pairs].sum()
    monkeypatch.setattr(neighborhoods, "_MOST_STEPS", 10)
    assert control.scores(pairs) is None


@pytest.mark.parametrize("directed", [True, False])
def test_what_was_an_edge_will_be_one(directed: bool) -> None:
    """Nodes of the graph are in another order."""
    rng = np.random.default_rng(0)
    columns = {"split/train": rng.integers(0, 20, (2, 90))}
    order = rng.permutation(20)

    class Dataset:
        manifest: Any = type("Manifest", (), {"num_nodes": 20, "directed": directed})

        @staticmethod
        def column(table: str, column: str) -> np.ndarray:
            return columns[table][int(column == "dst")]

    graph: Any = type(
        "Graph", (), {"dataset": Dataset, "ids": type("Ids", (), {"dense": staticmethod(order.__getitem__)})}
    )
    asked = rng.integers(0, 20, (400, 2))
    known = {(int(a), int(b)) for a, b in columns["split/train"].T}
    known |= set() if directed else {(b, a) for a, b in known}
    expected = [(int(a), int(b)) in known for a, b in order[asked]]
    assert 0 < sum(expected) < 400
    np.testing.assert_array_equal(EdgeBank(graph).scores(asked), np.array(expected, np.float32))


NODES = 1000


def rule(folder: Path, train: np.ndarray, *, symmetric: bool = True) -> DegreeRule:
    writer = ArrayWriter(folder)
    writer.write("train_edges", train.astype(np.int32))
    parent = finish(folder, writer, task="link", symmetric=symmetric, num_nodes=NODES, num_edges=2 * len(train))
    return DegreeRule(GraphStore(parent.folder, parent.manifest))


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("wide", [False, True])
def test_random_pairs_are_told_by_chance(tmp_path: Path, symmetric: bool, wide: bool) -> None:
    """Also where a class has few pairs: what is counted on one half is applied to the other."""
    rng = np.random.default_rng(0)
    found = rule(tmp_path, (NODES * rng.random((3000, 2)) ** 3).astype(int), symmetric=symmetric)
    areas = []
    for _ in range(20):
        true, false = rng.integers(0, NODES, (200, 2)), rng.integers(0, NODES, (200, 5, 2) if wide else (2000, 2))
        areas.append(found.rocauc(true, false))
    assert abs(np.mean(areas) - 0.5) < 0.02


def test_negatives_of_nodes_without_edges_are_told(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    found = rule(tmp_path, rng.integers(0, 500, (3000, 2)))
    area = found.rocauc(rng.integers(0, 500, (400, 2)), rng.integers(0, NODES, (4000, 2)))
    assert 0.85 < area < 0.9  # three in four negatives have a node without edges
    assert found.note("test", area).endswith("tells who is joined often, not who is joined to whom")
    assert found.note("test", 0.5).endswith("ROC-AUC 0.5000")


def test_a_direction_has_degrees_of_its_own(tmp_path: Path) -> None:
    """All are joined alike often, but some are sources only."""
    rng = np.random.default_rng(0)
    train = np.stack([rng.integers(0, 500, 3000), rng.integers(500, NODES, 3000)], 1)
    true = np.stack([rng.integers(0, 500, 400), rng.integers(500, NODES, 400)], 1)
    false = rng.permuted(np.stack([rng.integers(0, 500, 4000), rng.integers(500, NODES, 4000)], 1), axis=1)
    for symmetric, least, most in ((True, 0.45, 0.55), (False, 0.7, 0.8)):
        assert least < rule(tmp_path, train, symmetric=symmetric).rocauc(true, false) < most
