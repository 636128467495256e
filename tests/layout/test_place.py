"""New points among those of a layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from configs.registry import MODELS
from tasks.arrays import Array
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


def test_points_without_samples_are_at_the_mean_of_their_neighbours() -> None:
    points = np.array([[0, 0], [4, 0], [0, 8]], np.float32)
    indptr, indices = np.array([0, 2, 3]), np.array([1, 2, 0], np.int32)
    placed = place_points(points, indptr, indices, np.array([3, 1, 7], np.float32), options(), rate=0.0)
    np.testing.assert_allclose(placed, [[3, 2], [0, 0]], atol=0.1)


def test_equal_new_points_part() -> None:
    _, points, _ = groups(100)
    indptr, indices = np.arange(0, 31, 3), np.tile(np.array([1, 2, 3], np.int32), 10)
    placed = place_points(points, indptr, indices, None, options())
    assert np.isfinite(placed).all()
    assert len(np.unique(placed, axis=0)) == 10


def test_no_new_points() -> None:
    mapped, points, _ = groups(30)
    assert place_vectors(mapped[:0], mapped, points, options()).shape == (0, 2)
    assert place_points(points, np.zeros(1, np.int64), np.zeros(0, np.int32), None, options()).shape == (0, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"indices": np.array([0, 30], np.int32)}, "rows of the layout, 0 to 29"),
        ({"indices": np.array([-1, 3], np.int32)}, "rows of the layout"),
        ({"indptr": np.array([0, 1, 3])}, "indptr goes from 0"),
        ({"indptr": np.array([0, 2, 2])}, "new point 1 has no neighbour"),
        ({"weight": np.array([1, 0], np.float32)}, "new point 1 has no neighbour"),
        ({"weight": np.array([1, np.nan], np.float32)}, "finite and none below 0"),
        ({"weight": np.array([1, -1], np.float32)}, "finite and none below 0"),
        ({"points": np.zeros((30, 3), np.float32)}, r"points \(n, 2\)"),
        ({"points": np.full((30, 2), np.nan, np.float32)}, "point 0 of the layout is not finite"),
    ],
)
def test_what_is_not_fit_is_named(change: dict[str, Any], message: str) -> None:
    fit = {
        "points": groups(30)[1],
        "indptr": np.array([0, 1, 2]),
        "indices": np.array([3, 4], np.int32),
        "weight": np.ones(2, np.float32),
    }
    with pytest.raises(ValueError, match=message):
        place_points(**{**fit, **change}, options=options())
    with pytest.raises(ValueError, match="30 points, and there are 29 vectors"):
        place_vectors(groups(5)[0], groups(29)[0], groups(30)[1], options())
