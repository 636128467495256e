"""Degrees in both directions, and the warning of nodes without an edge."""

from pathlib import Path

import numpy as np
import pytest

from tasks.sampling.degrees import degrees, warn_of_isolated
from tasks.storage.graph_store import GraphStore
from tests.support import ArrayWriter, finish


@pytest.mark.parametrize(("symmetric", "expected"), [(True, [0, 1, 2, 0]), (False, [1, 2, 3, 0])])
def test_nodes_without_an_edge_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], symmetric: bool, expected: list[int]
) -> None:
    """Edges 0-2, 1-2, 2-1: nothing goes to node 0, and only node 3 has no edge in a directed graph."""
    writer = ArrayWriter(tmp_path)
    writer.write("csc_indptr", np.array([0, 0, 1, 3, 3]))
    writer.write("csc_indices", np.array([2, 0, 1], np.int32))
    writer.write("csr_indptr", np.array([0, 1, 2, 3, 3]))
    graph = finish(tmp_path, writer, num_nodes=4, num_edges=3, symmetric=symmetric)
    store = GraphStore(graph.folder, graph.manifest)
    assert degrees(store).tolist() == expected
    warn_of_isolated(store, "their vectors say nothing")
    assert f"warning: {expected.count(0)} of 4 nodes have no edge" in capsys.readouterr().out
