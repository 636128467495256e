"""Rows of length 1: in both norms, with a row of zeros, a column at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

NODE = ("node", "to", "node")


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_rows_get_length_one(make_dataset: Any, node_splits: Any, preprocess: Any, norm: str) -> None:
    words = np.array([[1, 1, 0], [0, -4, 0], [0, 0, 0], [1, 2, 3], [1e6, 1, 1]], np.float32)
    other = np.full((5, 1), 7, np.float32)
    edges = {"src": np.array([0, 1, 2, 3]), "dst": np.array([1, 2, 3, 4])}
    dataset = make_dataset({"node": (5, {"words": words, "other": other})}, {NODE: edges}, node_splits(5))
    feat = preprocess(dataset, transforms=[{"name": "normalize_rows", "norm": norm}])["feat"]
    found = np.linalg.norm(feat[:, :3], ord=1 if norm == "l1" else 2, axis=1)
    np.testing.assert_allclose(found, [1, 1, 0, 1, 1], rtol=1e-6)
    np.testing.assert_array_equal(np.sign(feat[:, :3]), np.sign(words))
    np.testing.assert_array_equal(feat[:, 3], 1)  # another column's numbers do not count
