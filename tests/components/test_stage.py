"""The components stage: which nodes stay, and that everything else follows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs.base import ComponentConfig
from configs.errors import RecipeError
from configs.schema import ComponentsConfig, PreprocessConfig, Recipe
from tasks.components.build import choose_components, size_report
from tasks.components.stage import STAGE
from tasks.stage import Listener, Parent, StageOutcome, run_stage
from tasks.storage.graph_store import ArrayWriter, GraphStore
from tasks.storage.home import Home
from tests.support import finish, molecule_graph

# Components: {0..7} (a ring with chords), {8, 9, 10}, {11, 12}, {13}, {14, 15, 16}; 17 is alone, too.
GROUPS = [list(range(8)), [8, 9, 10], [11, 12], [13], [14, 15, 16], [17]]
PAIRS = np.array([[i, (i + 1) % 8] for i in range(8)] + [[0, 4], [8, 9], [10, 9], [12, 11], [14, 16], [16, 15]])
N = 18


def make_graph(folder: Path, symmetric: bool, task: str = "node", **arrays: np.ndarray) -> Parent:
    folder.mkdir(parents=True)
    writer = ArrayWriter(folder)
    order = np.random.default_rng(0).permutation(N)  # components are not contiguous
    src, dst = order[PAIRS.T]
    if symmetric:
        src, dst = np.concatenate([src, dst]), np.concatenate([dst, src])
    num_edges = len(src)
    by_dst = np.lexsort((src, dst))
    src, dst = src[by_dst], dst[by_dst]
    writer.write("csc_indptr", np.concatenate([[0], np.cumsum(np.bincount(dst, minlength=N))]))
    writer.write("csc_indices", src.astype(np.int32))
    by_src = np.lexsort((dst, src))
    if not symmetric:
        writer.write("csr_indptr", np.concatenate([[0], np.cumsum(np.bincount(src, minlength=N))]))
        writer.write("csr_indices", dst[by_src].astype(np.int32))
    writer.write("csr_eids", by_src)
    # Data that tells which edge or node it belongs to.
    writer.write("edge_weight", (src * 100 + dst).astype(np.float32))
    writer.write("edge_time", src * 1000 + dst)
    writer.write("edge_feat", np.stack([src, dst], 1).astype(np.float32))
    writer.write("node_ids", np.arange(N))
    writer.write("feat", np.arange(N * 3, dtype=np.float32).reshape(N, 3))
    splits = {}
    if task == "node":
        writer.write("label", np.where(np.arange(N) % 5 == 0, -1, np.arange(N) % 2))
        for k, split in enumerate(("train", "valid", "test")):
            index = np.sort(order[k::3]).astype(np.int32)
            writer.write(f"{split}_idx", index)
            splits[split] = len(index)
    for name, array in arrays.items():
        writer.write(name, order.astype(np.int32)[array] if "weight" not in name else array)
        if name.endswith("_edges"):
            splits[name[:-6]] = len(array)
    return finish(
        folder,
        writer,
        task=task,
        task_type="link" if task == "link" else "multiclass",
        num_nodes=N,
        num_edges=num_edges,
        symmetric=symmetric,
        feature_dim=3,
        edge_feature_dim=2,
        splits=splits,
    )


def run(parent: Parent, keep: str, home: Home) -> StageOutcome[Any]:
    recipe = Recipe.model_construct(
        name="test",
        dataset=ComponentConfig(name="test"),
        preprocess=PreprocessConfig(),
        components=ComponentsConfig(keep=keep),
    )
    return run_stage(STAGE, recipe, {"preprocess": parent}, home, listener=Listener(), force=True)


def groups(names: list[int]) -> set[int]:
    order = np.random.default_rng(0).permutation(N)
    return {int(order[i]) for k in names for i in GROUPS[k]}


# The two components of three nodes: which of them holds the smallest node decides the tie.
FIRST_OF_THREE = min((1, 4), key=lambda k: min(groups([k])))


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(
    ("keep", "stay"),
    [
        ("largest", [0]),
        ("min_size=2", [0, 1, 2, 4]),
        ("min_size=3", [0, 1, 4]),
        ("top_k=2", [0, FIRST_OF_THREE]),
        ("top_k=3", [0, 1, 4]),
    ],
)
def test_everything_follows_the_kept_nodes(
    tmp_path: Path, home: Home, symmetric: bool, keep: str, stay: list[int]
) -> None:
    parent = make_graph(tmp_path / "graph", symmetric)
    before = GraphStore(parent.folder, parent.manifest)
    outcome = run(parent, keep, home)
    graph, manifest = GraphStore(outcome.folder, outcome.manifest), outcome.manifest
    ids = graph["node_ids"]
    assert set(ids.tolist()) == groups(stay)
    assert (np.diff(ids) > 0).all()
    assert manifest.num_nodes == len(ids) == len(graph["csc_indptr"]) - 1
    assert manifest.num_edges == len(graph["csc_indices"])
    np.testing.assert_array_equal(graph["feat"], before["feat"][ids])
    np.testing.assert_array_equal(graph["label"], before["label"][ids])
    dst = np.repeat(np.arange(len(ids)), np.diff(graph["csc_indptr"]))
    src, dst_ids = ids[graph["csc_indices"]], ids[dst]
    all_dst = np.repeat(np.arange(N), np.diff(before["csc_indptr"]))
    expected = [(s, d) for s, d in zip(before["csc_indices"].tolist(), all_dst.tolist(), strict=True) if d in set(ids)]
    assert list(zip(src.tolist(), dst_ids.tolist(), strict=True)) == expected
    np.testing.assert_array_equal(graph["edge_weight"], src * 100 + dst_ids)
    np.testing.assert_array_equal(graph["edge_time"], src * 1000 + dst_ids)
    np.testing.assert_array_equal(graph["edge_feat"], np.stack([src, dst_ids], 1))
    csr_src = np.repeat(np.arange(len(ids)), np.diff(graph["csr_indptr"]))
    np.testing.assert_array_equal(graph["csc_indices"][graph["csr_eids"]], csr_src)
    np.testing.assert_array_equal(dst[graph["csr_eids"]], graph["csr_indices"])
    dropped = manifest.report["components"]["dropped"]
    for split in ("train", "valid", "test"):
        original = before[f"{split}_idx"]
        kept = original[np.isin(original, ids)]
        np.testing.assert_array_equal(ids[graph[f"{split}_idx"]], kept)
        assert manifest.splits[split] == len(kept) == len(original) - dropped[split]
        told = [text for text in manifest.warnings if f" {split} nodes" in text]
        assert bool(told) == (split != "train" and dropped[split] > 0)
    gone = np.setdiff1d(np.arange(N), ids)
    assert dropped["labelled"] == int((before["label"][gone] >= 0).sum())
    assert manifest.report["components"]["dropped_nodes"] == len(gone)
    assert manifest.report["components"]["log2_sizes"] == [2, 3, 0, 1]


@pytest.mark.parametrize("keep", ["all", "min_size=1", "top_k=9"])
def test_nothing_dropped_is_linked_not_copied(tmp_path: Path, home: Home, keep: str) -> None:
    parent = make_graph(tmp_path / "graph", symmetric=False)
    outcome = run(parent, keep, home)
    assert outcome.manifest.arrays == parent.manifest.arrays
    for entry in parent.manifest.arrays.values():
        assert (parent.folder / entry.path).samefile(outcome.folder / entry.path)
    assert outcome.manifest.report["components"]["count"] == 6
    assert outcome.manifest.warnings == ()


def link_arrays() -> dict[str, np.ndarray]:
    return {
        "train_edges": np.array([[0, 1], [8, 9], [2, 3]]),
        "train_edge_weight": np.array([1.0, 2.0, 3.0], np.float32),
        "valid_edges": np.array([[0, 2], [4, 13]]),
        "valid_negative": np.array([[0, 5], [0, 13], [11, 12], [6, 2]]),
        "test_edges": np.array([[1, 3], [1, 4], [14, 15], [2, 4]]),
        # Candidates 13 and 17 go; the third row goes with its edge, the last one has no candidate left.
        "test_negative": np.array(
            [
                [[1, 5], [1, 13], [1, 6]],
                [[1, 2], [1, 7], [1, 17]],
                [[14, 0], [14, 1], [14, 2]],
                [[2, 13], [2, 17], [2, 8]],
            ]
        ),
    }


def test_held_out_edges_follow(tmp_path: Path, home: Home) -> None:
    parent = make_graph(tmp_path / "graph", True, "link", **link_arrays())
    outcome = run(parent, "largest", home)
    graph = GraphStore(outcome.folder, outcome.manifest)
    order = np.random.default_rng(0).permutation(N)
    ids = graph["node_ids"]

    def original(name: str) -> list[Any]:
        back = np.argsort(order)
        return back[ids[graph[name]]].tolist()

    assert original("train_edges") == [[0, 1], [2, 3]]
    assert graph["train_edge_weight"].tolist() == [1.0, 3.0]
    assert original("valid_edges") == [[0, 2]]
    assert original("valid_negative") == [[0, 5], [6, 2]]
    assert original("test_edges") == [[1, 3], [1, 4]]
    assert original("test_negative") == [[[1, 5], [1, 6], [1, 6]], [[1, 2], [1, 7], [1, 2]]]
    assert outcome.manifest.splits == {"train": 2, "valid": 1, "test": 2}
    assert outcome.manifest.report["components"]["dropped"] == {"train": 1, "valid": 1, "test": 2}
    assert len(outcome.manifest.warnings) == 2
    assert "2 of 4 test edges (50.00%)" in outcome.manifest.warnings[0]


@pytest.mark.parametrize("keep", ["min_size=9", "min_size=1000"])
def test_nothing_left_is_refused(tmp_path: Path, home: Home, keep: str) -> None:
    with pytest.raises(RecipeError, match="largest component has 8 nodes"):
        run(make_graph(tmp_path / "graph", True), keep, home)


def test_an_empty_split_is_refused(tmp_path: Path, home: Home) -> None:
    arrays = {**link_arrays(), "valid_edges": np.array([[8, 9]])}
    with pytest.raises(RecipeError, match="none of the 1 valid edges"):
        run(make_graph(tmp_path / "graph", True, "link", **arrays), "largest", home)


def test_graph_tasks_pass_through(tmp_path: Path, home: Home) -> None:
    parent = molecule_graph(tmp_path / "graph")
    outcome = run(parent, "largest", home)
    assert outcome.manifest.num_nodes == parent.manifest.num_nodes
    assert outcome.manifest.arrays == parent.manifest.arrays


def test_choosing() -> None:
    sizes = np.array([2, 5, 1, 5, 3])
    for keep, expected in {
        "all": [0, 1, 2, 3, 4],
        "largest": [1],
        "top_k=2": [1, 3],
        "top_k=99": [0, 1, 2, 3, 4],
        "min_size=3": [1, 3, 4],
    }.items():
        assert np.flatnonzero(choose_components(sizes, keep)).tolist() == expected
    assert size_report(sizes) == {"count": 5, "largest": 5, "log2_sizes": [1, 2, 2]}
    assert size_report(np.empty(0, np.int64)) == {"count": 0, "largest": 0, "log2_sizes": []}
