"""Common neighbours, Adamic-Adar and degrees of pairs, against networkx."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from tasks.arrays import Array
from tasks.controls.pairs import neighborhoods
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
