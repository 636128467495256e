"""The generated shop: its tables hold the history it was made of, and its signal lies where it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from configs.errors import RecipeError
from configs.load import build_recipe, load_recipe
from configs.registry import DATASETS
from tasks.evaluators.metrics import rocauc
from tasks.ingest.ids.id_index import hash_ids
from tasks.ingest.synthetic.shop import write_shop
from tasks.ingest.synthetic.shop_history import QUARTER, START, ceilings, known_quality, quality, quarters
from tasks.storage.dataset_store import DatasetStore
from tests.ingest.conftest import Ingest

SMALL: dict[str, Any] = {
    "name": "synthetic_shop",
    "num_customers": 4000,
    "num_products": 300,
    "reviews_a_quarter": 3000,
    "num_quarters": 7,
    "seed": 5,
}


def options(**change: Any) -> Any:
    return DATASETS.config(SMALL | change)


def edges(store: DatasetStore, name: str) -> tuple[np.ndarray, ...]:
    columns = ("src", "dst", "time")
    return tuple(store.column(f"edges/{name}", column).astype(np.int64) for column in columns)


def test_tables_hold_the_history_and_labels_are_who_left(ingest: Ingest) -> None:
    store = ingest(**SMALL)
    task, _, _ = edges(store, "task__of__customers")
    assert (task == np.arange(len(task))).all()
    entity = store.column("edges/task__of__customers", "dst")
    moment, label = store.column("nodes/task", "time"), store.column("nodes/task", "label")[:, 0]
    last = SMALL["num_quarters"] - 1
    for number, quarter in enumerate(quarters(options())):
        here = moment == START + (number + 1) * QUARTER
        if number in (0, last):
            assert not here.any()
            continue
        np.testing.assert_array_equal(entity[here], quarter.customers)
        np.testing.assert_array_equal(label[here] == 1, ~quarter.stays)
    assert store.manifest.splits["test"] == len(list(quarters(options()))[last - 1].customers)
    assert store.manifest.adjusted == {}
    assert store.manifest.warnings == ()


def test_the_same_options_give_the_same_tables(ingest: Ingest, tmp_path: Path) -> None:
    sizes = [write_shop(options(), tmp_path / name) for name in ("a", "b")]
    assert sizes[0] == sizes[1]
    for name in sizes[0]:
        one, other = ((tmp_path / folder / f"{name}.parquet").read_bytes() for folder in ("a", "b"))
        assert one == other, name
    write_shop(options(seed=6), tmp_path / "c")
    assert (tmp_path / "a/orders.parquet").read_bytes() != (tmp_path / "c/orders.parquet").read_bytes()


def test_ceilings_are_apart() -> None:
    found = ceilings(options())
    for split, known in found.items():
        assert 0.53 < known["plan"] < 0.63, split
        assert known["plan"] + 0.2 < known["reviews"] <= known["quality"] + 0.005, split
        assert 0.8 < known["quality"] < 0.92, split
    without = ceilings(options(quality_effect=0.0, plan_effect=0.0))["train"]
    assert all(abs(area - 0.5) < 0.03 for area in without.values())


def test_quality_given_ratings_is_what_counting_says() -> None:
    """Of many draws with the very ratings, the mean quality is the posterior's."""
    rng = np.random.default_rng(0)
    good = rng.standard_normal(400_000)
    ratings = np.clip(np.rint(3 + good[:, None] + rng.standard_normal((len(good), 3))), 1, 5)
    same = (np.sort(ratings, axis=1) == [3, 4, 5]).all(axis=1)
    mean, variance = known_quality(np.array([[0, 0, 1, 1, 1], [0, 0, 0, 0, 0]]))
    assert abs(mean[0] - good[same].mean()) < 0.02
    assert abs(variance[0] - good[same].var()) < 0.02
    assert abs(mean[1]) < 1e-6
    assert abs(variance[1] - 1) < 1e-3


def ratings_of(store: DatasetStore) -> np.ndarray:
    known = {int(h): i + 1 for i, h in enumerate(hash_ids(pa.array(list("12345"))).view(np.int64))}
    return np.array([known[code] for code in store.column("nodes/reviews", "reviews.rating").tolist()])


def scores_by_reviews(store: DatasetStore, split: str, *, until: int | None) -> float:
    """Area of the mean rating of the products of a customer's last quarter, by the reviews before `until`."""
    review, product, written = edges(store, "reviews__product_id__products")
    order, item, _ = edges(store, "orders__items__products")
    placed, customer, at = edges(store, "orders__customer_id__customers")
    rows = store.column(f"split/{split}", "node_id")
    moment = int(store.column("nodes/task", "time")[rows[0]])
    entity, label = store.column("edges/task__of__customers", "dst")[rows], store.column("nodes/task", "label")[rows, 0]
    rating = ratings_of(store)[review]
    seen = written < (moment if until is None else moment + until)
    num_products, num_customers = SMALL["num_products"], SMALL["num_customers"]
    count = np.bincount(product[seen], minlength=num_products)
    mean = np.bincount(product[seen], rating[seen] - 3.0, num_products) / np.maximum(count, 1)
    owner = np.full(len(placed), -1)
    recent = (at < moment) & (at >= moment - QUARTER)
    owner[placed[recent]] = customer[recent]
    mine = owner[order] >= 0
    total = np.bincount(owner[order[mine]], mean[item[mine]], num_customers)
    bought = np.bincount(owner[order[mine]], minlength=num_customers)
    return rocauc(label.astype(int), -(total / np.maximum(bought, 1))[entity])


def test_the_signal_is_in_others_reviews_before_the_moment(ingest: Ingest) -> None:
    store = ingest(**SMALL)
    known = ceilings(options())["test"]
    found = scores_by_reviews(store, "test", until=None)
    assert known["plan"] + 0.15 < found < known["reviews"]
    assert found > known["reviews"] - 0.06  # a mean of ratings does nearly what Bayes' rule does
    # Those who write say nothing of what they themselves bought: quality is none of their own.
    review, author, _ = edges(store, "reviews__customer_id__customers")
    _, product, _ = edges(store, "reviews__product_id__products")
    order, item, _ = edges(store, "orders__items__products")
    _, customer, _ = edges(store, "orders__customer_id__customers")
    good = quality(options())
    bought = np.bincount(customer[order], good[item], SMALL["num_customers"])
    written = np.bincount(author, good[product], SMALL["num_customers"])
    assert abs(np.corrcoef(bought, written)[0, 1]) < 0.06
    assert len(review) == len(author)


def test_the_shipped_recipe_is_the_shop() -> None:
    recipe = load_recipe("shop")
    assert recipe.dataset.name == "synthetic_shop"
    assert recipe.model.name == "heterosage"
    with pytest.raises(RecipeError, match=r"preprocess\.deduplicate merges edges"):
        build_recipe({"name": "x", "dataset": SMALL, "model": "heterosage", "preprocess": {"deduplicate": True}})
