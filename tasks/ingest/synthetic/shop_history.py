"""The history of a generated shop, quarter by quarter: who orders what, who reviews what, and who leaves.

- A product has a quality, N(0, 1), that stands in no table. A rating is `1 + quality + noise` around 3, rounded to 1
  to 5, by a customer who was drawn at random: what customers write says nothing about themselves.
- A customer joins in some quarter and orders in it. He orders in the next quarter too with probability
  sigmoid(base + plan_effect * plan + quality_effect * mean quality of the items of this quarter), plan = -1, 0 or 1;
  else he never comes back.
- All else (how many orders and items, which products, countries, prices, channels) is independent of that.

- With `styles`, four in five items are of the customer's own style; no column tells whose style is which.

So whether a customer leaves at a moment depends on his plan and on the quality of what he bought in the 90 days before,
which shows in the ratings that others gave these products by then, and nowhere else.

What can be known of who leaves the generated shop: by his row, by others' reviews, and if quality were known.

Each is the score that Bayes' rule gives, and its area under the ROC curve over the very customers that are predicted:

- `plan`: the customer's own row. Log odds rise with his plan, and nothing else of the row says anything.
- `reviews`: his items of the last 90 days and all ratings of these products so far. A product's quality is N(0, 1)
  beforehand, a rating's probability given the quality is a difference of normal distribution functions, and the chance
  to stay is the mean of the sigmoid over what is then known of the mean quality (as normal, by Gauss and Hermite).
- `quality`: the true chance to stay. No score that was made before the moment can be expected to do better.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tasks.arrays import Array
from tasks.evaluators.metrics import rocauc
from tasks.ingest.synthetic.configs import SyntheticShopConfig
from tasks.storage.manifests import SPLITS

DAY = 86400
START = 1_609_459_200  # 2021-01-01
QUARTER = 90 * DAY
BASE = 0.6
"""Log odds of staying of a customer of the middle plan with products of mean quality."""
RATING_NOISE = 1.0
OWN_STYLE = 0.8
"""Share of items that are of the customer's own style, where there are styles."""
_STYLES = 1_000_000
_MORE_ORDERS, _MORE_ITEMS = 0.7, 0.8


class People(NamedTuple):
    """Customers, by the time when they joined."""

    joined: Array
    """int64 (N,), seconds since 1970."""
    plan: Array
    """int64 (N,): -1, 0, 1."""


class Quarter(NamedTuple):
    """What happened in 90 days; orders, items and reviews lie in the order of their time."""

    start: int
    customers: Array
    """int64 (n,), ascending: those who ordered."""
    order_customer: Array
    """int64 (O,)."""
    order_time: Array
    item_order: Array
    """int64 (I,): which of this quarter's orders."""
    item_product: Array
    review_customer: Array
    """int64 (R,)."""
    review_product: Array
    review_time: Array
    rating: Array
    """int64 (R,): 1 to 5."""
    mean_quality: Array
    """float64 (n,): of the items of each of `customers`."""
    num_items: Array
    """int64 (n,)."""
    stays: Array
    """bool (n,): whether each of `customers` orders in the next quarter."""


def quality(config: SyntheticShopConfig) -> Array:
    """Return the products' quality, float64 (P,)."""
    return _random(config, 0).standard_normal(config.num_products)


def popularity(config: SyntheticShopConfig) -> Array:
    """Return the share of sales and reviews that each product has, cumulated, float64 (P,)."""
    weight = _random(config, 1).lognormal(0, 0.7, config.num_products)
    cumulated: Array = np.cumsum(weight / weight.sum())
    return cumulated


def people(config: SyntheticShopConfig) -> People:
    """Return the customers. The last quarter brings none: they would not be predicted."""
    random = _random(config, 2)
    span = (config.num_quarters - 1) * QUARTER
    joined = np.sort(random.integers(START, START + span, config.num_customers))
    return People(joined, random.integers(-1, 2, config.num_customers))


def quarters(config: SyntheticShopConfig) -> Iterator[Quarter]:
    """Yield the history; memory is a few arrays over customers and products, and one quarter."""
    who, share, good = people(config), popularity(config), quality(config)
    first = (who.joined - START) // QUARTER
    staying = np.zeros(0, np.int64)
    for number in range(config.num_quarters):
        random = _random(config, 3 + number)
        start = START + number * QUARTER
        customers = np.union1d(staying, np.flatnonzero(first == number))
        order_customer, order_time = _orders(random, customers, who.joined, start)
        counts = 1 + random.poisson(_MORE_ITEMS, len(order_customer))
        item_order = np.repeat(np.arange(len(order_customer)), counts)
        item_product = _products(random, share, len(item_order))
        if config.styles:
            _keep_to_styles(config, number, item_product, order_customer[item_order])
        place = np.searchsorted(customers, order_customer[item_order])
        num_items = np.bincount(place, minlength=len(customers))
        total = np.bincount(place, weights=good[item_product], minlength=len(customers))
        mean = total / np.maximum(num_items, 1)
        odds = log_odds(config, who.plan[customers], mean)
        stays = random.random(len(customers)) < 1 / (1 + np.exp(-odds))
        staying = customers[stays]
        yield Quarter(
            start, customers, order_customer, order_time, item_order, item_product,
            *_reviews(random, config, who.joined, share, good, start), mean, num_items, stays,
        )  # fmt: skip


def styles(config: SyntheticShopConfig) -> tuple[Array, Array]:
    """Return the style of each customer and of each product, int64 (N,) and (P,)."""
    random, count = _random(config, _STYLES), max(1, config.styles)
    return random.integers(0, count, config.num_customers), random.integers(0, count, config.num_products)


def _keep_to_styles(config: SyntheticShopConfig, number: int, item_product: Array, customer: Array) -> None:
    """Put products of the customers' own styles, drawn by popularity, in the place of four in five items, (I,)."""
    random = _random(config, _STYLES + 1 + number)
    of_customer, of_product = styles(config)
    items = np.flatnonzero(random.random(len(item_product)) < OWN_STYLE)
    items = items[np.isin(of_customer[customer[items]], of_product)]  # a style may have no product
    order = np.argsort(of_product, kind="stable")
    weight = np.diff(popularity(config), prepend=0.0)[order]
    cumulated = np.concatenate([[0.0], np.cumsum(weight)])
    first, last = (np.searchsorted(of_product[order], of_customer[customer[items]], side=s) for s in ("left", "right"))
    at = cumulated[first] + random.random(len(items)) * (cumulated[last] - cumulated[first])
    place = np.clip(np.searchsorted(cumulated, at, side="right") - 1, first, last - 1)
    item_product[items] = order[place]


def log_odds(config: SyntheticShopConfig, plan: Array, mean_quality: Array) -> Array:
    """Return the log odds of staying, float64."""
    odds: Array = BASE + config.plan_effect * plan + config.quality_effect * mean_quality
    return odds


def _random(config: SyntheticShopConfig, part: int) -> np.random.Generator:
    return np.random.default_rng([config.seed, part])


def _orders(random: np.random.Generator, customers: Array, joined: Array, start: int) -> tuple[Array, Array]:
    """Return customer and time of each order, oldest first: at least one for each, none before he joined."""
    counts = 1 + random.poisson(_MORE_ORDERS, len(customers))
    customer = np.repeat(customers, counts)
    earliest = np.maximum(joined[customer] + 1, start)
    time = earliest + (random.random(len(customer)) * (start + QUARTER - earliest)).astype(np.int64)
    time = np.minimum(time, start + QUARTER - 1)
    order = np.argsort(time, kind="stable")
    return customer[order], time[order]


def _products(random: np.random.Generator, share: Array, count: int) -> Array:
    return np.minimum(np.searchsorted(share, random.random(count)), len(share) - 1)


def _reviews(
    random: np.random.Generator, config: SyntheticShopConfig, joined: Array, share: Array, good: Array, start: int
) -> tuple[Array, Array, Array, Array]:
    """Return customer, product, time and rating of a quarter's reviews, oldest first."""
    count = config.reviews_a_quarter
    time = np.sort(random.integers(start, start + QUARTER, count))
    there = np.maximum(np.searchsorted(joined, time), 1)  # customers who joined before
    time = np.maximum(time, joined[0] + 1)
    customer = (random.random(count) * there).astype(np.int64)
    product = _products(random, share, count)
    rating = 3 + good[product] + RATING_NOISE * random.standard_normal(count)
    return customer, product, time, np.clip(np.rint(rating), 1, 5).astype(np.int64)


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
