"""Labels, splits, held-out edges and triples; what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs.errors import DataError
from tasks.components.filtering import write_edges
from tasks.partition.kernels.graphs import order_by_part, reorder
from tasks.preprocess.build import degree_report
from tasks.storage.graph_store import ArrayWriter, GraphStore
from tests.knowledge_graphs import triple_graph

NODE = ("node", "to", "node")
EDGES = {NODE: {"src": np.array([0, 1, 2]), "dst": np.array([1, 2, 3])}}


def test_labels_times_and_ids(make_dataset: Any, node_splits: Any, preprocess: Any) -> None:
    columns = {"label": np.array([0, 1, -1, 1] * 5), "time": np.arange(20) + 2000}
    graph = preprocess(make_dataset({"node": (20, columns)}, EDGES, node_splits(20)))
    assert graph["label"].tolist() == columns["label"].tolist()
    assert graph["label"].dtype == np.int64
    assert graph["node_time"].tolist() == columns["time"].tolist()
    assert graph["node_ids"].tolist() == list(range(20))
    assert graph["valid_idx"].tolist() == list(range(1, 20, 3))
    assert graph["valid_idx"].dtype == np.int32
    assert graph.manifest.splits == {"train": 7, "valid": 7, "test": 6}


@pytest.mark.parametrize("kind", ["int", "float"])
def test_labels_that_are_no_classes_are_floats(make_dataset: Any, node_splits: Any, preprocess: Any, kind: str) -> None:
    label = np.array([[0, 1], [1, -1], [1, 1], [0, 0]])
    expected = np.where(label < 0, np.nan, label).astype(np.float32)
    columns = {"label": label if kind == "int" else expected}
    dataset = make_dataset({"node": (4, columns)}, EDGES, node_splits(4), task_type="multilabel", num_tasks=2)
    np.testing.assert_array_equal(preprocess(dataset)["label"], expected)


def link_tables() -> dict[str, Any]:
    return {
        "split/train": {"src": np.array([0, 1]), "dst": np.array([2, 3]), "weight": np.array([2.0, 5.0])},
        "split/valid": {"src": np.array([0, 3]), "dst": np.array([3, 3])},
        "split/test": {"src": np.array([0, 1]), "dst": np.array([0, 1])},
        "split/valid_negative": {"src": np.array([3, 3, 3]), "dst": np.array([0, 1, 2])},
        "split/test_negative": {"src": np.array([0, 1]), "dst": np.array([[1, 2, 3], [0, 2, 3]])},
    }


def test_held_out_edges(make_dataset: Any, preprocess: Any) -> None:
    graph = preprocess(make_dataset({"node": (4, {})}, EDGES, link_tables(), task="link", task_type="link"))
    assert graph["train_edges"].tolist() == [[0, 2], [1, 3]]
    assert graph["train_edge_weight"].tolist() == [2.0, 5.0]
    assert graph["valid_negative"].tolist() == [[3, 0], [3, 1], [3, 2]]
    assert graph["test_negative"].tolist() == [[[0, 1], [0, 2], [0, 3]], [[1, 0], [1, 2], [1, 3]]]
    assert graph.manifest.splits == {"train": 2, "valid": 2, "test": 2}


@pytest.mark.parametrize(
    ("table", "columns", "words"),
    [
        ("split/test", {"src": np.array([0, 9]), "dst": np.array([1, 1])}, r"split/test \(row 1, column src\): id 9"),
        (
            "split/valid",
            {"src": np.array([0, 1]), "dst": np.array([1, -1])},
            r"split/valid \(row 1, column dst\): id -1",
        ),
        ("split/test_negative", {"src": np.array([0]), "dst": np.array([[1, 2, 3]])}, "candidates for 1 edges"),
    ],
)
def test_held_out_edges_that_are_refused(
    make_dataset: Any, preprocess: Any, table: str, columns: Any, words: str
) -> None:
    tables = {**link_tables(), table: columns}
    with pytest.raises(DataError, match=words):
        preprocess(make_dataset({"node": (4, {})}, EDGES, tables, task="link", task_type="link"))


@pytest.mark.parametrize(
    ("split", "ids", "words"),
    [
        ("test", [2, 40], r"split/test \(row 1, column node_id\): id 40 is not in 0\.\.19"),
        ("test", [2, 0], r"split/test \(row 1\): 0 is in the train split too"),
        ("valid", [1, 4, 1], "1 is in the split twice"),
    ],
)
def test_splits_that_are_refused(
    make_dataset: Any, node_splits: Any, preprocess: Any, split: str, ids: list[int], words: str
) -> None:
    tables = {**node_splits(20), f"split/{split}": {"node_id": np.array(ids)}}
    with pytest.raises(DataError, match=words):
        preprocess(make_dataset({"node": (20, {})}, EDGES, tables))


def test_link_task_over_several_relations_is_refused(make_dataset: Any, preprocess: Any) -> None:
    edges = {("a", "to", "b"): {"src": [0], "dst": [0]}, ("b", "to", "a"): {"src": [0], "dst": [0]}}
    with pytest.raises(DataError, match="several node types"):
        preprocess(make_dataset({"a": (4, {}), "b": (4, {})}, edges, link_tables(), task="link", task_type="link"))


def test_graph_task_learns_from_training_graphs(make_dataset: Any, preprocess: Any) -> None:
    x = np.array([1.0, 3.0, 100.0, 200.0, 5.0, 900.0])
    tables = {
        "graphs": {"graph_id": np.arange(4), "num_nodes": np.array([2, 2, 1, 1]), "label": np.array([0.5, 1, 1, 2])},
        "split/train": {"graph_id": np.array([2, 0])},
        "split/valid": {"graph_id": np.array([1])},
        "split/test": {"graph_id": np.array([3])},
    }
    edges = {NODE: {"src": np.array([0, 2]), "dst": np.array([1, 3])}}
    dataset = make_dataset(
        {"node": (6, {"x": x})}, edges, tables, shard_rows=4, task="graph", task_type="regression", num_graphs=4
    )
    graph = preprocess(dataset, transforms=[{"name": "min_max", "clip": False}])
    np.testing.assert_allclose(graph["feat"][:, 0], (x - 1) / 4)
    assert graph["train_idx"].tolist() == [0, 2]
    assert graph["graph_label"].tolist() == [[0.5], [1.0], [1.0], [2.0]]


def test_degree_report() -> None:
    degree = np.array([0, 0, 1, 2, 3, 4, 7, 8])
    report = degree_report(np.concatenate([[0], np.cumsum(degree)]))
    assert report == {"log2_bins": [2, 1, 2, 2, 1], "mean": 3.125, "max": 8, "isolated": 2}
    assert degree_report(np.zeros(1, np.int64)) == {"log2_bins": [], "mean": 0.0, "max": 0, "isolated": 0}


def test_the_cut_into_shards_does_not_matter(make_dataset: Any, node_splits: Any, preprocess: Any) -> None:
    rng = np.random.default_rng(5)
    src, dst = rng.integers(0, 50, (2, 400))
    small = make_dataset({"node": (50, {})}, {NODE: {"src": src, "dst": dst}}, node_splits(50), shard_rows=3)
    wide = make_dataset({"node": (50, {})}, {NODE: {"src": src, "dst": dst}}, node_splits(50), 10**6, name="w")
    assert preprocess(small).manifest.digest == preprocess(wide).manifest.digest


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
