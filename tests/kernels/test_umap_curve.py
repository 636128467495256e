"""The curve of UMAP's layouts."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import curve_fit

from models.kernels.layout.umap_curve import umap_curve


@pytest.mark.parametrize(
    ("min_dist", "spread"), [(0.1, 1.0), (0.0, 1.0), (0.5, 1.0), (0.99, 1.0), (0.2, 3.0), (0.001, 0.1)]
)
def test_curve_is_the_nearest_one(min_dist: float, spread: float) -> None:
    x = np.linspace(0, 3 * spread, 300)
    wanted = np.where(x < min_dist, 1, np.exp(-(x - min_dist) / spread))
    start = (spread**-2, 1.0)
    expected, _ = curve_fit(lambda x, a, b: 1 / (1 + a * x ** (2 * b)), x, wanted, p0=start, bounds=(0, np.inf))
    np.testing.assert_allclose(umap_curve(min_dist, spread), expected, rtol=2e-4)


def test_usual_curve_is_that_of_umaps_authors() -> None:
    assert umap_curve(0.1) == pytest.approx((1.5769434603, 0.8950608780), rel=1e-6)


def test_every_curve_is_found() -> None:
    for near in np.linspace(0, 1, 21):
        assert np.isfinite(umap_curve(near)).all()
        assert min(umap_curve(near)) > 0


@pytest.mark.parametrize(
    ("min_dist", "spread"), [(-0.1, 1), (1.1, 1), (0.1, 0), (0.1, -1), (np.nan, 1), (0.1, np.inf), (0, np.nan)]
)
def test_numbers_out_of_range_are_refused(min_dist: float, spread: float) -> None:
    with pytest.raises(ValueError, match="must be from 0 to spread="):
        umap_curve(min_dist, spread)
