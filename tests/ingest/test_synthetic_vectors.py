"""Generated vectors: groups apart from each other, and in order within."""

from __future__ import annotations

import numpy as np

from tests.ingest.conftest import Ingest


def test_groups_lie_apart_and_say_what_they_are(ingest: Ingest) -> None:
    store = ingest(name="synthetic_vectors", num_rows=600, dim=20, num_groups=7)
    vectors, label = store.column("nodes/vector", "feat"), store.column("nodes/vector", "label")
    assert vectors.shape == (600, 20)
    assert store.read("classes").column("name").to_pylist() == [f"group {g}" for g in range(7)]
    families = store.read("nodes/vector", ["family"]).column(0).to_pylist()
    assert families == [f"family {g // 3}" for g in label]
    gaps = np.linalg.norm(vectors[:, None] - vectors[None], axis=2) + 1e9 * np.eye(600)
    assert (label[gaps.argmin(1)] == label).mean() > 0.99
    along = store.column("nodes/vector", "along")
    assert np.abs(along[gaps.argmin(1)] - along).mean() < 0.15  # of random pairs it is 1/3


def test_options_say_it_all(ingest: Ingest) -> None:
    first, again, other = (
        ingest(name="synthetic_vectors", num_rows=100, dim=5, seed=seed).column("nodes/vector", "feat")
        for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
