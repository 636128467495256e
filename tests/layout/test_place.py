"""New points among those of a layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from configs.registry import MODELS
from tasks.arrays import Array
from tasks.layout import place
from tasks.layout.place import place_points, place_vectors

NAMES = ["largevis", *(pytest.param(name, marks=pytest.mark.slow) for name in ("umap", "tsne"))]


def options(name: str = "largevis", **given: Any) -> Any:
    return MODELS.config({"name": name, **given})


def groups(count: int, seed: int = 0, dim: int = 2) -> tuple[Array, Array, Array]:
    """Vectors of 6 groups, a layout of them where each group has a place, and their groups."""
    rng = np.random.default_rng(seed)
    group = rng.integers(6, size=count)
    vectors = (np.random.default_rng(9).normal(size=(6, 10)) * 6)[group] + rng.normal(size=(count, 10))
    places = np.zeros((6, dim))
    places[:, :2] = [(np.cos(turn), np.sin(turn)) for turn in np.linspace(0, 2 * np.pi, 6, endpoint=False)]
    points = 12 * places[group] + rng.normal(size=(count, dim))
    return vectors.astype(np.float32), points.astype(np.float32), group


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dim", [2, 3])
def test_new_vectors_come_to_their_group(name: str, dim: int) -> None:
    mapped, points, group = groups(600, dim=dim)
    new, _, own = groups(200, seed=1)
    before = points.copy()
    placed = place_vectors(new, mapped, points, options(name, dim=dim))
    assert placed.shape == (200, dim)
    assert placed.dtype == np.float32
    np.testing.assert_array_equal(points, before)
    nearest = np.linalg.norm(placed[:, None] - points, axis=-1).argmin(1)
    assert (group[nearest] == own).mean() > 0.99


def test_the_same_bits_from_run_to_run() -> None:
    mapped, points, _ = groups(300)
    new, _, _ = groups(50, seed=1)
    found = [place_vectors(new, mapped, points, options(), seed=seed).tobytes() for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]


def test_points_begin_at_the_mean_of_their_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "_RATE", 0.0)
    points = np.array([[0, 0], [4, 0], [0, 8]], np.float32)
    near, weight = np.array([[1, 2], [0, 0]], np.int32), np.array([[3, 1], [7, 0]], np.float32)
    np.testing.assert_allclose(place_points(points, near, weight, options(), seed=0), [[3, 2], [0, 0]], atol=0.1)


def test_equal_new_points_part() -> None:
    near = np.tile(np.array([1, 2, 3], np.int32), (10, 1))
    placed = place_points(groups(100)[1], near, np.ones((10, 3), np.float32), options(), seed=0)
    assert np.isfinite(placed).all()
    assert len(np.unique(placed, axis=0)) == 10


def test_no_new_points() -> None:
    mapped, points, _ = groups(30)
    assert place_vectors(mapped[:0], mapped, points, options()).shape == (0, 2)
