"""Triples on their way through components and partition: relations stay beside their heads and tails."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tasks.components.filtering import write_edges
from tasks.partition.kernels.reorder import order_by_part, reorder
from tasks.storage.graph_store import ArrayWriter, GraphStore
from tests.knowledge_graphs import triple_graph


def triples_of(edges: np.ndarray, relations: np.ndarray) -> set[tuple[int, int, int]]:
    return {(int(head), int(relation), int(tail)) for (head, tail), relation in zip(edges, relations, strict=True)}


def two_rings() -> dict[str, np.ndarray]:
    """Two components: entities 0 to 9, and 10 to 19."""
    rows = [[v, v % 3, (v + 1) % 10] for v in range(10)] + [[10 + v, v % 3, 10 + (v + 1) % 10] for v in range(10)]
    triples = np.array(rows)
    return {"train": triples, "valid": triples[[1, 12]], "test": triples[[3, 4, 15]]}


def test_dropped_components_take_their_triples_along(tmp_path: Path) -> None:
    splits = two_rings()
    graph = triple_graph(tmp_path / "graph", splits, 20)
    folder = tmp_path / "filtered"
    folder.mkdir()
    writer = ArrayWriter(folder)
    new_id = np.arange(20, dtype=np.int32) - 10
    new_id[:10] = -1
    assert write_edges(GraphStore(graph.folder, graph.manifest), new_id, writer, "test") == (1, 2)
    assert triples_of(writer.read("test_edges"), writer.read("test_relation")) == {(5, 5 % 3, 6)}


def test_partition_renumbers_ends_and_leaves_relations(tmp_path: Path) -> None:
    splits = two_rings()
    graph = triple_graph(tmp_path / "graph", splits, 20)
    folder = tmp_path / "reordered"
    folder.mkdir()
    writer = ArrayWriter(folder)
    part = (np.arange(20) % 2).astype(np.int32)
    order = order_by_part(part, 2, np.dtype(np.int32))
    reorder(GraphStore(graph.folder, graph.manifest), writer, order)
    for split, rows in splits.items():
        new = order.old_to_new
        expected = {(int(new[head]), int(relation), int(new[tail])) for head, relation, tail in rows}
        assert triples_of(writer.read(f"{split}_edges"), writer.read(f"{split}_relation")) == expected
