"""What can be known of who leaves the generated shop: by his row, by others' reviews, and if quality were known.

Each is the score that Bayes' rule gives, and its area under the ROC curve over the very customers that are predicted:

- `plan`: the customer's own row. Log odds rise with his plan, and nothing else of the row says anything.
- `reviews`: his items of the last 90 days and all ratings of these products so far. A product's quality is N(0, 1)
  beforehand, a rating's probability given the quality is a difference of normal distribution functions, and the chance
  to stay is the mean of the sigmoid over what is then known of the mean quality (as normal, by Gauss and Hermite).
- `quality`: the true chance to stay. No score that was made before the moment can be expected to do better.
"""

from __future__ import annotations

import math

import numpy as np

from tasks.arrays import Array
from tasks.evaluators.metrics import rocauc
from tasks.ingest.synthetic.configs import SyntheticShopConfig
from tasks.ingest.synthetic.shop_history import RATING_NOISE, Quarter, log_odds, people, quarters
from tasks.storage.manifests import SPLITS

_GRID = np.linspace(-4.5, 4.5, 181)
_POINTS, _WEIGHTS = np.polynomial.hermite_e.hermegauss(24)


def ceilings(config: SyntheticShopConfig) -> dict[str, dict[str, float]]:
    """Return the area under the ROC curve by split and by what is known: `plan`, `reviews`, `quality`."""
    parts: dict[str, list[Array]] = {split: [] for split in SPLITS}
    plan = people(config).plan
    counts = np.zeros((config.num_products, 5), np.int64)
    for number, quarter in enumerate(quarters(config)):
        np.add.at(counts, (quarter.review_product, quarter.rating - 1), 1)
        if number < 1 or number == config.num_quarters - 1:
            continue  # nobody is predicted after the first quarter, nor after the last
        split = {config.num_quarters - 2: "test", config.num_quarters - 3: "valid"}.get(number, "train")
        plans = plan[quarter.customers]
        leaves = {
            "plan": -plans.astype(np.float64),
            "reviews": -_stays_by_reviews(config, quarter, plans, counts),
            "quality": -log_odds(config, plans, quarter.mean_quality),
        }
        parts[split].append(np.stack([~quarter.stays, *leaves.values()]))
    areas_of: dict[str, dict[str, float]] = {}
    for split, arrays in parts.items():
        label, *scores = np.concatenate(arrays, axis=1)
        areas = (rocauc(label.astype(np.int64), score) for score in scores)
        areas_of[split] = dict(zip(("plan", "reviews", "quality"), areas, strict=True))
    return areas_of


def known_quality(counts: Array) -> tuple[Array, Array]:
    """Return mean and variance of products' quality, float64 (P,), by how often each rating was given, int64 (P, 5)."""
    edges = np.array([-np.inf, 1.5, 2.5, 3.5, 4.5, np.inf])
    places = (edges[None, :] - 3 - _GRID[:, None]) / RATING_NOISE
    below = np.array([0.5 * (1 + math.erf(x / math.sqrt(2))) for x in places.ravel().tolist()]).reshape(places.shape)
    log_chance = np.log(np.maximum(np.diff(below, axis=1), 1e-300))  # (grid, 5)
    logs = counts @ log_chance.T - _GRID**2 / 2
    weight = np.exp(logs - logs.max(axis=1, keepdims=True))
    weight /= weight.sum(axis=1, keepdims=True)
    mean = weight @ _GRID
    return mean, weight @ _GRID**2 - mean**2


def _stays_by_reviews(config: SyntheticShopConfig, quarter: Quarter, plan: Array, counts: Array) -> Array:
    mean, variance = known_quality(counts)
    place = np.searchsorted(quarter.customers, quarter.order_customer[quarter.item_order])
    size = len(quarter.customers)
    total = np.bincount(place, weights=mean[quarter.item_product], minlength=size)
    spread = np.bincount(place, weights=variance[quarter.item_product], minlength=size)
    center, deviation = total / quarter.num_items, np.sqrt(spread) / quarter.num_items
    at = center[:, None] + deviation[:, None] * _POINTS
    chance = 1 / (1 + np.exp(-log_odds(config, plan[:, None], at)))
    stays: Array = chance @ (_WEIGHTS / _WEIGHTS.sum())
    return stays
