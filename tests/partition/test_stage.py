"""The stage as a whole: what it writes is the same graph under new names."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from configs.errors import DataError
from configs.registry import PARTITIONERS
from configs.schema import Recipe
from tasks.partition.simple import RandomPartitioner
from tasks.partition.stage import STAGE
from tasks.stage import Parent, StageOutcome, run_stage
from tasks.storage.graph_store import ArrayWriter, GraphStore
from tasks.storage.home import Home
from tests.support import finish, link_graph, molecule_graph, node_graph


def run(parent: Parent, home: Home, **options: Any) -> StageOutcome[Any]:
    recipe = Recipe.model_construct(partition=PARTITIONERS.config({"name": "auto", **options}))
    return run_stage(STAGE, recipe, {"components": parent}, home)


def store_of(outcome: StageOutcome[Any]) -> GraphStore:
    return GraphStore(outcome.folder, outcome.manifest)


def dense(store: GraphStore) -> np.ndarray:
    """Adjacency with entry [row node, neighbour]."""
    indptr, indices = np.asarray(store["csc_indptr"]), np.asarray(store["csc_indices"])
    n = len(indptr) - 1
    return np.asarray(sp.csr_matrix((np.ones(len(indices)), indices, indptr), shape=(n, n)).todense())


def directed_graph(folder: Path, num_nodes: int = 83, num_edges: int = 700, seed: int = 3) -> Parent:
    """A directed multigraph with self-loops, isolated nodes and all edge data."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, num_nodes - 5, (2, num_edges))
    order = np.lexsort((src, dst))
    src, dst = src[order], dst[order]
    writer = ArrayWriter(folder)
    writer.write("csc_indptr", np.concatenate([[0], np.cumsum(np.bincount(dst, minlength=num_nodes))]))
    writer.write("csc_indices", src.astype(np.int32))
    by_src = np.lexsort((dst, src))
    writer.write("csr_indptr", np.concatenate([[0], np.cumsum(np.bincount(src, minlength=num_nodes))]))
    writer.write("csr_indices", dst[by_src].astype(np.int32))
    writer.write("csr_eids", by_src.astype(np.int64))
    writer.write("edge_weight", rng.random(num_edges).astype(np.float32))
    writer.write("edge_feat", rng.random((num_edges, 3)).astype(np.float32))
    writer.write("edge_time", rng.integers(0, 99, num_edges))
    writer.write("label", rng.integers(0, 3, num_nodes))
    writer.write("node_time", rng.integers(0, 99, num_nodes))
    writer.write("node_ids", rng.permutation(num_nodes).astype(np.int64))
    writer.write("train_idx", np.arange(0, num_nodes, 2, dtype=np.int32))
    return finish(
        folder,
        writer,
        num_nodes=num_nodes,
        num_edges=num_edges,
        symmetric=False,
        edge_feature_dim=3,
        splits={"train": 42},
    )


def old_ids(before: GraphStore, after: GraphStore) -> np.ndarray:
    """Old id of each new node, found through node_ids."""
    inverse = np.argsort(before["node_ids"])
    return inverse[after["node_ids"]]


def test_one_part_is_linked(tmp_path: Path, home: Home) -> None:
    parent = node_graph(tmp_path / "graph")
    outcome = run(parent, home)
    assert outcome.manifest.num_parts == 1
    assert outcome.manifest.part_offsets == (0, 300)
    for entry in outcome.manifest.arrays.values():
        assert (outcome.folder / entry.path).samefile(parent.folder / entry.path)


@pytest.mark.parametrize("num_parts", [2, 3, 16])
def test_node_graph_is_the_same_under_new_ids(tmp_path: Path, home: Home, num_parts: int) -> None:
    parent = node_graph(tmp_path / "graph")
    outcome = run(parent, home, num_parts=num_parts)
    before, after = GraphStore(parent.folder, parent.manifest), store_of(outcome)
    old = old_ids(before, after)
    assert np.array_equal(dense(after), dense(before)[np.ix_(old, old)])
    for name in ("feat", "label"):
        assert np.array_equal(after[name], before[name][old])
    for split in ("train_idx", "valid_idx", "test_idx"):
        assert (np.diff(after[split]) > 0).all()
        assert np.array_equal(np.sort(old[after[split]]), before[split])
    offsets = np.array(outcome.manifest.part_offsets)
    assert offsets[0] == 0
    assert offsets[-1] == 300
    for low, high in itertools.pairwise(offsets):
        assert (np.diff(old[low:high]) > 0).all(), "the old order stays within a part"


def test_measures(tmp_path: Path, home: Home) -> None:
    outcome = run(node_graph(tmp_path / "graph"), home, name="random", num_parts=5)
    manifest, store = outcome.manifest, store_of(outcome)
    part = np.repeat(np.arange(5), np.diff(manifest.part_offsets))
    adjacency = dense(store)
    cut = adjacency[part[:, None] != part[None, :]].sum()
    assert manifest.edge_cut == pytest.approx(cut / adjacency.sum())
    matrix = np.array(manifest.report["partition"]["part_edges"])
    assert matrix.sum() == manifest.num_edges
    for p in range(5):
        for q in range(5):
            assert matrix[p, q] == adjacency[np.ix_(part == q, part == p)].sum()
    train = np.bincount(part[store["train_idx"]], minlength=5)
    assert manifest.train_balance == pytest.approx(train.max() / train.mean())
    assert manifest.node_balance == pytest.approx(1.0)


@pytest.mark.parametrize("num_parts", [2, 7])
def test_directed_edge_data_follows(tmp_path: Path, home: Home, num_parts: int) -> None:
    parent = directed_graph(tmp_path / "graph")
    outcome = run(parent, home, num_parts=num_parts)
    before, after = GraphStore(parent.folder, parent.manifest), store_of(outcome)
    old = old_ids(before, after)
    for name in ("label", "node_time"):
        assert np.array_equal(after[name], before[name][old])

    def edges(store: GraphStore, names: np.ndarray) -> np.ndarray:
        dst = np.repeat(np.arange(83), np.diff(store["csc_indptr"]))
        columns = [names[store["csc_indices"]], names[dst], store["edge_weight"], store["edge_time"]]
        table = np.stack([*columns, *store["edge_feat"].T], 1)
        return table[np.lexsort(table.T)]

    assert np.array_equal(edges(after, old), edges(before, np.arange(83)))
    # CSR: the same edges, and eids that point back at them
    src = np.repeat(np.arange(83), np.diff(after["csr_indptr"]))
    dst = np.repeat(np.arange(83), np.diff(after["csc_indptr"]))
    eids = after["csr_eids"]
    assert np.array_equal(np.sort(eids), np.arange(700))
    assert np.array_equal(after["csc_indices"][eids], src)
    assert np.array_equal(dst[eids], after["csr_indices"])
    for layout in ("csc", "csr"):
        for v in range(83):
            row = after[f"{layout}_indices"][after[f"{layout}_indptr"][v] : after[f"{layout}_indptr"][v + 1]]
            assert (np.diff(row) >= 0).all()


def test_link_edges_follow_and_those_of_training_lie_by_part(tmp_path: Path, home: Home) -> None:
    parent = link_graph(tmp_path / "graph", dim=8)
    writer = ArrayWriter(parent.folder)
    count = parent.manifest.splits["train"]
    writer.write("train_edge_weight", np.arange(count, dtype=np.float32))
    arrays = parent.manifest.arrays | writer.entries
    parent = Parent(parent.manifest.model_copy(update={"arrays": arrays}), parent.folder)
    outcome = run(parent, home, num_parts=3)
    before, after = GraphStore(parent.folder, parent.manifest), store_of(outcome)
    old = old_ids(before, after)
    for name in ("valid_edges", "test_edges", "valid_negative", "test_negative"):
        assert np.array_equal(old[after[name]], before[name])
    order = after["train_edge_weight"].astype(np.int64)
    assert np.array_equal(old[after["train_edges"]], before["train_edges"][order])
    part = np.searchsorted(outcome.manifest.part_offsets, after["train_edges"][:, 1], side="right") - 1
    assert len(np.unique(part)) == 3
    assert np.array_equal(np.lexsort((order, part)), np.arange(count))  # by part, and in the old order within
    assert outcome.manifest.train_balance == 1.0


def test_graph_tasks_pass_through(tmp_path: Path, home: Home) -> None:
    parent = molecule_graph(tmp_path / "graph")
    outcome = run(parent, home, name="metis", num_parts=4)
    assert outcome.manifest.num_parts == 1
    assert set(outcome.manifest.arrays) == set(parent.manifest.arrays)


def test_training_nodes_are_balanced(tmp_path: Path, home: Home) -> None:
    # Training nodes all lie in one community: without the constraint they end up in one part.
    parent = skewed_graph(tmp_path / "graph")
    plain = run(parent, home, name="metis", num_parts=4).manifest
    balanced = run(parent, home, name="metis", num_parts=4, balance_train=True).manifest
    assert plain.train_balance > 2
    assert balanced.train_balance < 1.1
    assert balanced.node_balance < 1.1


def skewed_graph(folder: Path) -> Parent:
    folder.mkdir()
    rng = np.random.default_rng(0)
    label = np.repeat(np.arange(4), 100)
    probability = np.where(label[:, None] == label[None, :], 0.2, 0.005)
    adjacency = sp.csr_matrix(np.triu(rng.random((400, 400)) < probability, 1))
    adjacency = (adjacency + adjacency.T).tocsr()
    writer = ArrayWriter(folder)
    writer.write("csc_indptr", adjacency.indptr.astype(np.int64))
    writer.write("csc_indices", adjacency.indices.astype(np.int32))
    writer.write("node_ids", np.arange(400))
    writer.write("train_idx", np.arange(80, dtype=np.int32))
    return finish(folder, writer, num_nodes=400, num_edges=adjacency.nnz, splits={"train": 80})


def test_balance_without_training_nodes_is_refused(tmp_path: Path, home: Home) -> None:
    with pytest.raises(DataError, match=r"balance_train needs training nodes.*set partition\.balance_train=false"):
        run(link_graph(tmp_path / "graph"), home, num_parts=2, balance_train=True)


def test_more_parts_than_nodes_is_refused(tmp_path: Path, home: Home) -> None:
    with pytest.raises(DataError, match=r"300 nodes.*301 parts.*num_parts to at most 300"):
        run(node_graph(tmp_path / "graph"), home, num_parts=301)


@pytest.mark.parametrize("balance_train", [False, True])
def test_graph_without_edges(tmp_path: Path, home: Home, balance_train: bool) -> None:
    folder = tmp_path / "graph"
    folder.mkdir()
    writer = ArrayWriter(folder)
    writer.write("csc_indptr", np.zeros(12, np.int64))
    writer.write("csc_indices", np.zeros(0, np.int32))
    writer.write("node_ids", np.arange(11))
    writer.write("train_idx", np.arange(5, dtype=np.int32))
    parent = finish(folder, writer, num_nodes=11, num_edges=0, splits={"train": 5})
    manifest = run(parent, home, num_parts=3, balance_train=balance_train).manifest
    assert manifest.edge_cut == 0.0
    assert sorted(np.diff(manifest.part_offsets)) == [3, 4, 4]


def test_unbalanced_parts_are_reported(tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        RandomPartitioner,
        "partition",
        lambda self, csr, num_parts, context: np.arange(csr.num_nodes, dtype=np.int32) ** 2 % num_parts,
    )
    manifest = run(node_graph(tmp_path / "graph"), home, name="random", num_parts=20).manifest
    assert any("times the mean number of nodes" in text for text in manifest.warnings)
    assert any("parts are empty: take fewer" in text for text in manifest.warnings)
