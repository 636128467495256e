"""Points without an edge around the others."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.layout.start import put_around


@pytest.mark.parametrize("dim", [2, 3])
def test_lonely_points_lie_around_all_others(dim: int) -> None:
    rng = np.random.default_rng(0)
    points = (5 * rng.standard_normal((501, dim)) + 100).astype(np.float32)
    alone = rng.random(501) < 0.3
    before = points.copy()
    put_around(points, alone, 7)
    np.testing.assert_array_equal(points[~alone], before[~alone])
    distance = np.linalg.norm(points - np.median(before[~alone], axis=0), axis=1)
    reach = np.quantile(distance[~alone], 0.99)
    assert distance[alone].min() >= 1.099 * reach
    assert distance[alone].max() <= 1.201 * reach
    sides = np.sign(points[alone] - np.median(before[~alone], axis=0)).mean(0)
    assert np.abs(sides).max() < 0.5
    again = before.copy()
    put_around(again, alone, 7)
    np.testing.assert_array_equal(again, points)


def test_directions_can_stay() -> None:
    rng = np.random.default_rng(0)
    points = rng.standard_normal((101, 2)).astype(np.float32)
    alone = np.arange(101) < 20
    middle = np.median(points[~alone], axis=0)
    points[0] = middle  # no direction to keep: one is drawn
    before = points.copy()
    put_around(points, alone, 1, keep_directions=True)
    for kept, moved in zip(before[1:20] - middle, points[1:20] - middle, strict=True):
        np.testing.assert_allclose(moved / np.linalg.norm(moved), kept / np.linalg.norm(kept), atol=1e-5)
    assert np.linalg.norm(points[0] - middle) > 1


def test_there_may_be_none_or_nothing_else() -> None:
    for alone in (np.zeros(4, bool), np.ones(4, bool)):
        points = np.arange(8, dtype=np.float32).reshape(4, 2)
        put_around(points, alone, 0)
        np.testing.assert_array_equal(points, np.arange(8).reshape(4, 2))
    points = np.ones((3, 2), np.float32)
    put_around(points, np.array([True, False, False]), 0)  # the others at one place
    assert np.linalg.norm(points[0] - 1) > 1
