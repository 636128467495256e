"""Graphs in MATLAB files: what is read, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from configs.errors import DataError
from tests.ingest.conftest import Ingest
from tests.matlab_files import mat_file, sparse

BILLIONS = 2**31 - 1
NUM, GROUPS = 40, 5


def matrices(directed: bool = False, weighted: bool = False) -> dict[str, Any]:
    rng = np.random.default_rng(2)
    dense = (rng.random((NUM, NUM)) < 0.15) * (rng.integers(1, 9, (NUM, NUM)) / 4 if weighted else 1.0)
    dense[3, 3] = 1
    if not directed:
        dense = np.maximum(dense, dense.T)
    groups = rng.random((NUM, GROUPS)) < 0.4
    groups[7] = False
    return {"network": sp.csc_matrix(dense), "group": sp.csc_matrix(groups.astype(float))}


def ingest_mat(ingest: Ingest, folder: Path, values: dict[str, Any], compressed: bool = True, **options: Any) -> Any:
    scipy.io.savemat(folder / "g.mat", values, do_compression=compressed)
    return ingest(name="mat", path=str(folder / "g.mat"), **options)


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize(("directed", "weighted"), [(False, False), (False, True), (True, True)])
def test_a_graph_is_read_as_it_is(
    ingest: Ingest, folder: Path, directed: bool, weighted: bool, dense: bool, compressed: bool
) -> None:
    values = matrices(directed, weighted)
    given = {name: value.toarray() for name, value in values.items()} if dense else values
    store = ingest_mat(ingest, folder, given, compressed)
    manifest = store.manifest
    assert (manifest.task_type, manifest.num_tasks, manifest.directed) == ("multilabel", GROUPS, directed)
    edges = store.read("edges/node__to__node").to_pydict()
    found = np.zeros((NUM, NUM))
    found[edges["src"], edges["dst"]] = edges.get("weight", 1.0)
    if not directed:
        found = np.maximum(found, found.T)
    np.testing.assert_allclose(found, values["network"].toarray())
    label = np.array(store.read("nodes/node")["label"].to_pylist(), float)
    assert np.isnan(label[7]).all()
    known = ~np.isnan(label).any(1)
    np.testing.assert_array_equal(label[known], values["group"].toarray()[known])
    splits = [store.column(f"split/{name}", "node_id") for name in ("train", "valid", "test")]
    assert sorted(np.concatenate(splits).tolist()) == np.flatnonzero(known).tolist()
    assert [len(split) for split in splits] == [known.sum() - 8, 4, 4]


def spoilt(folder: Path, content: bytes) -> dict[str, Any]:
    (folder / "g.mat").write_bytes(content)
    return {"name": "mat", "path": str(folder / "g.mat")}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"network": np.eye(3)}, r"has no variable 'group'; it has network"),
        ({"network": np.ones((3, 4)), "group": np.ones((3, 2))}, r"\[network\].* has the shape \(3, 4\)"),
        ({"network": np.eye(4), "group": np.ones((3, 2))}, r"\[group\].* has the shape \(3, 2\)"),
        ({"network": np.full((40, 40), np.nan), "group": np.ones((40, 2))}, r"\[network\].* NaN or infinite"),
        ({"network": -np.eye(40), "group": np.ones((40, 2))}, r"network\] \(row 0, column 0\): the weight -1 .*\(40"),
        ({"network": np.eye(40) * 1e-60, "group": np.ones((40, 2))}, r"row 0, column 0\): .*1e-60 .* float32"),
        ({"network": np.eye(40) * 1e60, "group": np.ones((40, 2))}, r"the weight 1e\+60 is more than float32 can hold"),
        ({"network": np.eye(40), "group": np.zeros((40, 2))}, r"\[group\].*the train split is empty \(0 nodes"),
        ({"network": np.eye(40) * 1e39, "group": np.ones((40, 2))}, r"\[network\].* more than float32 can hold"),
        ({"network": "words", "group": np.ones((40, 2))}, r"\[network\].* no matrix of numbers"),
        ({"network": np.eye(40), "group": {"a": 1}}, r"\[group\].* no matrix of numbers"),
        ({"network": np.eye(40) * 1j, "group": np.ones((40, 2))}, r"\[network\].* no matrix of numbers"),
    ],
)
def test_what_is_no_graph(ingest: Ingest, folder: Path, values: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        ingest_mat(ingest, folder, values)


SHAPES = [
    (
        mat_file(
            sparse("network", (BILLIONS, 3), [0], [0, 1, 1, 1], [1.0]), sparse("group", (3, 1), [0], [0, 1], [1.0])
        ),
        r"\[network\].* has the shape \(2147483647, 3\); \(n, n\) is needed.* \(option network\)",
    ),
    (
        mat_file(sparse("network", (1, 1), [0], [0, 1], [1.0]), sparse("group", (BILLIONS, 1), [0], [0, 1], [1.0])),
        r"\[group\].* has the shape \(2147483647, 1\); \(1, groups\) is needed.* \(option groups\)",
    ),
]


@pytest.mark.parametrize(("content", "message"), SHAPES)
def test_shapes_are_compared_before_numbers_are_read(
    ingest: Ingest, folder: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, message: str
) -> None:
    monkeypatch.setattr("tasks.readers.arrays.matlab._MatReader.matrix", None)
    with pytest.raises(DataError, match=message):
        ingest(**spoilt(folder, content))


def test_labels_that_do_not_fit_into_memory(ingest: Ingest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of 0.3 MB asks for 0.4 GB."""
    num = 10_000
    groups = sp.csc_array((np.ones(num), (np.arange(num), np.arange(num))), shape=(num, num))
    monkeypatch.setattr("tasks.readers.limits.available_bytes", lambda: 300_000_000)
    with pytest.raises(DataError, match=r"\[group\].* the matrix of labels takes 0.4 GB of memory"):
        ingest_mat(ingest, folder, {"network": sp.eye_array(num, format="csc"), "group": groups})


def test_edges_that_do_not_fit_into_memory(ingest: Ingest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    num = 1_100_000
    values = {"network": sp.eye_array(num, format="csc", dtype=bool), "group": np.ones((num, 1), np.uint8)}
    monkeypatch.setattr("tasks.readers.limits.available_bytes", lambda: 65 << 20)
    with pytest.raises(DataError, match=r"\[network\].* the table of edges takes 0.1 GB of memory"):
        ingest_mat(ingest, folder, values)


def test_more_groups_than_a_row_may_have(ingest: Ingest, folder: Path) -> None:
    groups = sp.csc_array((3, (1 << 20) + 1))
    with pytest.raises(DataError, match=r"\[group\].* has 1,048,577 groups; a row may have 4,194,304 bytes"):
        ingest_mat(ingest, folder, {"network": np.eye(3), "group": groups})


def test_a_symmetric_matrix_but_for_rounding(ingest: Ingest, folder: Path) -> None:
    """Sums in another order differ by 1e-12 or so; that is no direction."""
    values = matrices(weighted=True)
    noise = 1 + 1e-12 * np.random.default_rng(1).random((NUM, NUM))
    noisy = sp.csc_matrix(values["network"].multiply(noise))
    assert (noisy != noisy.T).nnz
    one, other = (ingest_mat(ingest, folder, values | {"network": network}) for network in (noisy, values["network"]))
    assert not one.manifest.directed
    edges = [store.read("edges/node__to__node").to_pydict() for store in (one, other)]
    assert [edges[0][end] for end in ("src", "dst")] == [edges[1][end] for end in ("src", "dst")]
    np.testing.assert_allclose(edges[0]["weight"], edges[1]["weight"])
    apart = values["network"].toarray()
    apart[3, 5] = apart[5, 3] * 1.0001 + 1
    assert ingest_mat(ingest, folder, values | {"network": apart}).manifest.directed
