"""The linear models of controls, and the features that they see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs.label_types import label_type
from tasks.arrays import sample_rows
from tasks.controls import features as own
from tasks.controls import linear
from tasks.controls.features import MOST_CODES, OwnFeatures, read_rows, training_sample
from tasks.ingest.writer import DatasetWriter
from tasks.storage.artifacts import describe_files
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.manifests import DatasetManifest, FeatureColumn, NodeType
from tests.support import COMMON

RNG = np.random.default_rng(0)
X = RNG.standard_normal((400, 3)).astype(np.float32)


def test_ridge_finds_a_line_in_any_unit() -> None:
    values = np.stack([X @ [1.0, 2.0, 0.0] + 7, 1e6 * (X @ [0.0, 0.0, 3.0]) - 5e6], 1)
    values[::3, 1] = np.nan  # missing ones do not count
    model = linear.fit(X, values, label_type("regression"), 2)
    truth = np.nan_to_num(1e6 * (X @ [0.0, 0.0, 3.0]) - 5e6)
    np.testing.assert_allclose(model(X)[:, 0], X @ [1.0, 2.0, 0.0] + 7, atol=0.05)
    np.testing.assert_allclose(model(X)[:, 1], truth, atol=5e4)


@pytest.mark.parametrize("present", [(0, 1, 2, 4), (1, 4), (3,)])
def test_classes_that_no_row_has_are_never_predicted(present: tuple[int, ...]) -> None:
    kind = (X[:, 0] > 0) + 2 * (X[:, 1] > 0)
    label = np.asarray(present)[kind % len(present)]
    label[:20] = -1
    model = linear.fit(X, label, label_type("multiclass"), 5)
    scores = model(X)
    assert scores.shape == (400, 5)
    assert np.isfinite(scores).all()
    assert set(scores.argmax(1)) == set(present)
    assert np.mean(scores.argmax(1)[20:] == label[20:]) > 0.9


def test_several_labels_are_fitted_one_by_one() -> None:
    label = np.stack([X[:, 0] > 0, X[:, 1] > 0, np.ones(400), np.zeros(400)], 1).astype(np.float32)
    label[::2, 1] = np.nan
    model = linear.fit(X, label, label_type("multilabel"), 4)
    right = (model(X) > 0) == (np.nan_to_num(label, nan=9) == 1)
    assert right[:, 0].mean() > 0.95
    assert right[1::2, 1].mean() > 0.95
    assert right[:, 2:].all()
    as_class = linear.fit(X, (X[:, 0] > 0).astype(np.int64), label_type("binary"), 1)
    assert np.mean((as_class(X)[:, 0] > 0) == (X[:, 0] > 0)) > 0.95


def test_the_same_rows_give_the_same_bits() -> None:
    label = (X[:, 0] > 0).astype(np.int64)
    one, two = (linear.fit(X, label, label_type("multiclass"), 2) for _ in range(2))
    assert one.weight.tobytes() == two.weight.tobytes()


def test_numbers_are_standardized_and_codes_get_columns() -> None:
    numbers = np.stack([np.arange(10), np.full(10, 3), np.arange(10) * 1e30], 1).astype(np.float32)
    codes = np.array([0, 0, 1, 1, 2, 2, 3, 9, 9, 9], np.int32)[:, None]
    features = OwnFeatures(numbers, codes)
    features.fit(np.arange(7))  # code 9 is not among the training rows
    [(_, x)] = features.parts(np.arange(10))
    assert x.shape == (10, features.width) == (10, 3 + 4)
    np.testing.assert_allclose(x[:7, 0].mean(), 0, atol=1e-6)
    np.testing.assert_allclose(x[:7, 0].std(), 1, atol=1e-6)
    assert (x[:, 1] == 0).all()
    np.testing.assert_array_equal(x[:7, 3:].argmax(1), [0, 0, 1, 1, 2, 2, 3])
    assert (x[7:, 3:] == 0).all()
    features = OwnFeatures(np.array([[0], [1], [1e38]], np.float32), np.empty((3, 0), np.int32))
    features.fit(np.array([0, 1]))
    [(_, x)] = features.parts(np.array([2]))
    assert x == 100  # an outlier decides nothing


def test_of_many_codes_the_most_frequent_get_columns() -> None:
    codes = np.concatenate([np.arange(500), np.repeat(np.arange(100, 100 + MOST_CODES), 2)]).astype(np.int32)[:, None]
    features = OwnFeatures(np.empty((len(codes), 0), np.float32), codes)
    features.fit(np.arange(len(codes)))
    assert features.width == MOST_CODES
    [(_, x)] = features.parts(np.arange(500))
    assert set(np.flatnonzero(x.any(1))) == set(range(100, 100 + MOST_CODES))


def test_a_graph_has_the_means_over_its_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers, codes = np.arange(6, dtype=np.float32)[:, None], np.array([0, 1, 1, 0, 0, 0], np.int32)[:, None]
    offsets = np.array([0, 1, 3, 3, 6])  # the third graph has no nodes
    for at_a_time in (1, 1 << 23):
        monkeypatch.setattr(own, "_NUMBERS_AT_A_TIME", at_a_time)
        features = OwnFeatures(numbers, codes, offsets)
        features.fit(np.array([0, 1, 3]))
        x = np.concatenate([part for _, part in features.parts(np.array([3, 2, 1, 0]))])
        raw = np.array([[4, 1, 0], [0, 0, 0], [1.5, 0, 1], [0, 1, 0]])
        train = raw[[3, 2, 0]]
        np.testing.assert_allclose(x, (raw - train.mean(0)) / train.std(0), atol=1e-6)


def test_rows_are_read_from_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.ingest.writer.SHARD_ROWS", 8)
    monkeypatch.setattr("tasks.ingest.writer.GROUP_ROWS", 4)
    pair, number = RNG.standard_normal((50, 2)).astype(np.float32), np.arange(50, dtype=np.float32)
    code = RNG.integers(0, 5, 50).astype(np.int32)
    columns: dict[str, Any] = {"node_id": np.arange(50), "pair": pair, "number": number, "code": code}
    with DatasetWriter(tmp_path) as writer:
        writer.write("nodes/node", columns)
        tables = writer.tables
    found = tuple(
        FeatureColumn(column=name, kind=kind, dim=dim)
        for name, kind, dim in (("pair", "numeric", 2), ("code", "categorical", 1), ("number", "numeric", 1))
    )
    manifest = DatasetManifest(
        **COMMON,
        stage="ingest",
        files=describe_files(tmp_path),
        dataset="test",
        task="node",
        task_type="binary",
        metric="accuracy",
        directed=False,
        node_types=(NodeType(name="node", num_nodes=50, features=found),),
        edge_types=(),
        target_type="node",
        splits={},
        tables=tables,
    )
    store = DatasetStore(tmp_path, manifest)
    assert len(store.shards("nodes/node")) > 3
    rows = np.array([0, 3, 4, 17, 18, 49])
    (tmp_path / "scratch").mkdir()
    numbers, codes = read_rows(store, "nodes/node", found, rows, tmp_path / "scratch")
    np.testing.assert_array_equal(numbers, np.column_stack([pair, number])[rows])
    np.testing.assert_array_equal(codes[:, 0], code[rows])


def test_samples_are_bounded_and_always_the_same() -> None:
    rows = np.arange(10**6)
    some = sample_rows(rows, 1000)
    assert len(np.unique(some)) == 1000
    np.testing.assert_array_equal(some, sample_rows(rows, 1000))
    wide = (FeatureColumn(column="x", kind="numeric", dim=128),)
    assert len(training_sample(rows, wide, 40)) == 200_000_000 // (128 * 40)
    assert len(training_sample(rows, wide, 10**6)) == 1000
    assert len(training_sample(rows[:10], wide, 40)) == 10
