"""Splits of a NumPy archive: each form that `Npz.Config` promises, and what is none of them."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs.errors import DataError
from tests.ingest.conftest import Ingest

NUM = 9
TRAIN = [0, 2, 5, 8]


def mask(*rows: list[int]) -> Any:
    """Masks of nodes, bool (len(rows), NUM)."""
    masks = np.zeros((len(rows), NUM), bool)
    for one, nodes in zip(masks, rows, strict=True):
        one[nodes] = True
    return masks


def train_of(ingest: Ingest, folder: Path, train: Any, **options: Any) -> list[int]:
    """Write a graph, ingest it and return its training nodes."""
    edges = np.stack([np.arange(NUM), (np.arange(NUM) + 1) % NUM])
    arrays = {"y": (np.arange(NUM) % 3)[:, None], "train": train, "valid": np.array([1, 3]), "test": np.array([4])}
    np.savez(folder / "g.npz", edge_index=edges, **arrays)
    store = ingest(name="npz", path=str(folder / "g.npz"), **options)
    return store.column("split/train", "node_id").tolist()  # type: ignore[no-any-return]


FORMS: list[tuple[Any, dict[str, Any]]] = [
    (TRAIN, {}),
    (TRAIN[::-1], {"split_number": 7}),
    (np.array(TRAIN, np.uint8), {}),
    ([TRAIN], {}),
    ([TRAIN, [0, 2, 5, 6]], {}),
    ([[0, 2, 5, 6], TRAIN], {"split_number": 1}),
    ([[node] for node in TRAIN], {}),
    ([[node] for node in TRAIN], {"split_number": 7}),
    ([[0] * 4, [1] * 4, TRAIN, [2] * 4], {"split_number": 2}),
    (mask(TRAIN)[0], {}),
    (mask(TRAIN), {}),
    (mask(TRAIN).T, {}),
    (mask([6], TRAIN), {"split_number": 1}),
    (mask(*[[6]] * (NUM - 2), TRAIN), {"split_number": NUM - 2}),
    (mask(*[[6]] * NUM, TRAIN), {"split_number": NUM}),
]
ONE_NODE = [[7], [[7]], mask([7]), mask([7]).T]


@pytest.mark.parametrize(
    ("train", "options", "nodes"), [*((*form, TRAIN) for form in FORMS), *((train, {}, [7]) for train in ONE_NODE)]
)
def test_forms_of_a_split(ingest: Ingest, folder: Path, train: Any, options: Any, nodes: list[int]) -> None:
    assert train_of(ingest, folder, np.asarray(train), **options) == nodes


NOTHING = np.zeros(0, int)
NO_NODE = [NOTHING, NOTHING[:, None], NOTHING[None], NOTHING[None].repeat(3, 0), mask([]), mask([]).T]


@pytest.mark.parametrize(
    ("train", "options", "message"),
    [
        (mask(*[TRAIN] * NUM), {}, r"has the shape \(9, 9\); .* rows or columns cannot be told"),
        (mask(TRAIN, [6]).T, {}, r"has the shape \(9, 2\); .*\(splits, 9\).* save it transposed"),
        (np.ones((2, 5), bool), {}, r"has the shape \(2, 5\); a mask of 9 nodes is needed"),
        (np.ones((5, 1), bool), {}, r"has the shape \(5, 1\); a mask of 9 nodes"),
        (np.ones(5, bool), {}, r"has the shape \(5,\); a mask of 9 nodes is needed"),
        (np.zeros((0, 9), bool), {}, r"has the shape \(0, 9\)"),
        (np.zeros((0, 4), int), {}, r"has the shape \(0, 4\)"),
        (np.array(3), {}, r"has the shape \(\); node numbers or a mask"),
        (np.ones((1, 2, 9), bool), {}, r"has the shape \(1, 2, 9\); a mask of 9 nodes is needed"),
        (np.ones((9, 0), bool), {}, r"has the shape \(9, 0\)"),
        (np.zeros((2, 2, 2), int), {}, r"has the shape \(2, 2, 2\); node numbers or a mask"),
        (np.array([TRAIN, TRAIN]), {"split_number": 2}, r"has 2 splits; dataset\.split_number must be below that"),
        (mask(TRAIN), {"split_number": 1}, r"has 1 splits; dataset\.split_number must be below that"),
        (np.array([[0], [9]]), {}, r"node id 9 is not in 0\.\.8"),
        (np.array([[0], [0]]), {}, r"node 0 stands in the split twice"),
        *((train, {}, "the train split is empty") for train in NO_NODE),
    ],
)
def test_what_is_no_split(ingest: Ingest, folder: Path, train: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=r"g\.npz\[train\]: " + message):
        train_of(ingest, folder, train, **options)


PAIRS = np.array([[0, 1], [0, 0], [1, 1], [2, 0], [3, 2], [4, 0], [5, 1], [6, 2], [8, 0]])


def test_labels_as_pairs(ingest: Ingest, folder: Path) -> None:
    arrays = {"edge_index": np.stack([np.arange(9), (np.arange(9) + 1) % 9]), "y": PAIRS}
    np.savez("g.npz", **arrays, train=np.arange(3), valid=np.arange(3, 5), test=np.arange(5, 7))
    store = ingest(name="npz", path="g.npz", label_form="pairs")
    manifest = store.manifest
    assert (manifest.task_type, manifest.num_tasks, manifest.metric) == ("multilabel", 3, "f1")
    label = np.stack(store.column("nodes/node", "label"))
    assert label[[0, 1, 3]].tolist() == [[1, 1, 0], [0, 1, 0], [0, 0, 1]]
    assert np.isnan(label[7]).all()
    with pytest.raises(DataError, match=r"if these are pairs of a node and a label, dataset.label_form=pairs"):
        ingest(name="npz", path="g.npz")
    np.savez("h.npz", **arrays | {"x": np.ones((8, 2))}, train=np.arange(3), valid=[3, 4], test=[5, 6])
    with pytest.raises(DataError, match=r"\[y\] \(row 8\): node id 8 is not in 0..7"):
        ingest(name="npz", path="h.npz", label_form="pairs")
    np.savez("i.npz", **arrays | {"y": PAIRS - 1}, train=np.arange(3), valid=[3, 4], test=[5, 6])
    with pytest.raises(DataError, match=r"\[y\] \(row 0\): -1 is below 0"):
        ingest(name="npz", path="i.npz", label_form="pairs")


def header_of_zeros(archive: zipfile.ZipFile, name: str, rows: int, dtype: type) -> None:
    """Write an array of zeros that takes a thousandth of its size."""
    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
        head = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": (rows,)}
        np.lib.format.write_array_header_1_0(member, head)
        for _ in range(0, rows, 1 << 20):
            member.write(bytes((1 << 20) * np.dtype(dtype).itemsize))


@pytest.mark.parametrize("wrong", ["x", "train", "valid", "y"])
def test_shapes_are_compared_before_anything_is_unpacked(
    wrong: str, ingest: Ingest, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = 8 << 20
    with zipfile.ZipFile("g.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        small = {
            "edge_index": np.zeros((2, 9), int),
            "y": np.arange(9) % 3,
            "x": np.ones((9, 2)),
            "train": np.arange(3),
        }
        for name, values in {**small, "valid": np.array([3, 4]), "test": np.array([5, 6])}.items():
            if name == wrong:
                header_of_zeros(archive, name, rows, bool if name == "train" else np.int64)
                continue
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, values)
    monkeypatch.setattr("tasks.readers.arrays.npy.read_values", None)
    with pytest.raises(DataError, match="has the shape"):
        ingest(name="npz", path="g.npz")


@pytest.mark.parametrize("features", [{}, {"x": np.ones((NUM, 2))}])
@pytest.mark.parametrize("carried", [{}, {"edge_attr": np.arange(2 * NUM).reshape(NUM, 2)}])
def test_classes_of_edges(ingest: Ingest, folder: Path, features: dict[str, Any], carried: dict[str, Any]) -> None:
    edges, label = np.stack([np.arange(NUM), (np.arange(NUM) + 1) % NUM]), np.arange(NUM) % 4 - 1
    splits = {"train": [1, 2, 3], "valid": mask([5])[0], "test": [6, 7]}
    np.savez(folder / "g.npz", edge_index=edges.T, y=label, **splits, **features, **carried)
    store = ingest(name="npz", path=str(folder / "g.npz"), task="edge", directed=True, scored_edges="keep")
    manifest = store.manifest
    assert (manifest.task, manifest.num_classes) == ("edge", 3)
    assert manifest.keep_known_pairs
    assert manifest.ordered_ends
    assert manifest.node_types[0].num_nodes == NUM
    assert store.column("edge_labels/node__to__node", "label").tolist() == label.tolist()
    assert store.column("edges/node__to__node", "dst").tolist() == edges[1].tolist()
    assert [one.dim for one in manifest.edge_types[0].features] == ([2] if carried else [])
    if carried:
        np.testing.assert_array_equal(store.column("edges/node__to__node", "feat"), carried["edge_attr"])
    assert [store.column(f"split/{split}", "edge_id").tolist() for split in splits] == [[1, 2, 3], [5], [6, 7]]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"y": np.zeros(NUM - 1, int)}, "has 8 rows for 9 edges"),
        ({"edge_attr": np.zeros((3, 1))}, r"edge_attr\]: has the shape \(3, 1\); \(9, dim\) is needed"),
        ({"train": np.zeros(4, bool)}, "a mask of 9 edges is needed"),
        ({"train": [NUM]}, r"edge id 9 is not in 0\.\.8"),
    ],
)
def test_what_are_no_classes_of_edges(ingest: Ingest, folder: Path, change: dict[str, Any], words: str) -> None:
    edges, arrays = np.stack([np.arange(NUM), (np.arange(NUM) + 1) % NUM]), {"train": [1], "valid": [2], "test": [4]}
    np.savez(folder / "g.npz", **{"edge_index": edges, "y": np.arange(NUM) % 2, **arrays, **change})
    with pytest.raises(DataError, match=words):
        ingest(name="npz", path=str(folder / "g.npz"), task="edge")
