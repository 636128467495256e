"""A small shop in which products are recommended to customers, as preprocess would write it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tasks.arrays import offsets
from tasks.stage import Parent
from tasks.storage.graph_store import ALWAYS, GraphStore
from tasks.storage.manifests import RankingTask, TypeColumns
from tests.shop_graph import write_typed

DAY = 86_400
NODE_TYPES = ("customers", "products", "task")
EDGE_TYPES = (
    "customers__buys__products",
    "task__of__customers",
    "task__links__products",
    "products__rev_buys__customers",
    "customers__rev_of__task",
    "products__rev_links__task",
)
ENDS = ((0, 1), (2, 0), (2, 1), (1, 0), (0, 2), (1, 2))
HORIZON = 50 * DAY
MOMENTS = tuple(range(100 * DAY, 401 * DAY, HORIZON))
"""The last one tests, the one before validates."""


def store_of(parent: Parent) -> GraphStore:
    """Open it."""
    return GraphStore(parent.folder, parent.manifest)


def ranked_shop(
    folder: Path,
    num_customers: int = 61,
    num_products: int = 31,
    buys: int = 2500,
    seed: int = 0,
    *,
    styles: int = 4,
    changed_after: int | None = None,
    **ranking: Any,
) -> Parent:
    """Customers buy products of their own style, four times in five, which no column tells.

    The price of a product is a column, and so is the age of a customer, and neither says anything. The last product is
    there from the middle on only. `changed_after`: what is bought later is something else.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    of_customer = rng.integers(0, styles, num_customers)  # product p is of style p % styles
    customer = rng.integers(0, num_customers, buys)
    any_product, own = rng.integers(0, num_products, buys), rng.random(buys) < 0.8
    own_product = rng.integers(0, num_products // styles, buys) * styles + of_customer[customer]
    product = np.where(own, own_product, any_product)
    time = rng.integers(0, MOMENTS[-1] + HORIZON, buys)
    born = np.full(num_products, ALWAYS)
    born[-1] = MOMENTS[3] + 1
    time[product == num_products - 1] = np.maximum(time[product == num_products - 1], born[-1] + 1)
    if changed_after is not None:
        later = np.flatnonzero(time >= changed_after)
        product[later] = np.random.default_rng(seed + 1).permutation(product[later])
    new_only = bool(ranking.get("new_only"))
    of, at, right = _tasks(customer, product, time, born, new_only=new_only)

    sizes = [num_customers, num_products, len(of)]
    first = offsets(sizes)
    feat, label = np.zeros((first[-1], 2), np.float32), np.full((first[-1], 1), np.nan, np.float32)
    feat[: first[1], 0], feat[first[1] : first[2], 1] = (
        rng.standard_normal(num_customers),
        rng.standard_normal(num_products),
    )
    label[first[2] :, 0] = [len(columns) for columns in right]
    pairs = np.array([(row, one) for row, columns in enumerate(right) for one in columns], np.int64).reshape(-1, 2)
    tails = [customer, first[2] + np.arange(len(of)), first[2] + pairs[:, 0]]
    none = TypeColumns()
    return write_typed(
        folder,
        sizes,
        (tails, [first[1] + product, of, first[1] + pairs[:, 1]]),
        np.concatenate([time, at, at[pairs[:, 0]]]),
        {"node_time": np.concatenate([np.full(num_customers, ALWAYS), born, at]), "feat": feat, "label": label},
        MOMENTS,
        seed=seed + 2,
        task_type="ranking",
        num_classes=0,
        metric="map@10",
        node_types=NODE_TYPES,
        edge_types=EDGE_TYPES,
        relation_ends=ENDS,
        type_columns={"customers": TypeColumns(numeric=(0,)), "products": TypeColumns(numeric=(1,)), "task": none},
        target_type="task",
        feature_dim=2,
        ranking=RankingTask(candidates="products", history=EDGE_TYPES[0], horizon=HORIZON, **ranking),
    )


def _tasks(
    customer: np.ndarray, product: np.ndarray, time: np.ndarray, born: np.ndarray, *, new_only: bool
) -> tuple[np.ndarray, np.ndarray, list[list[int]]]:
    """Return customer, moment and what is right of each task that has anything."""
    of, at, right = [], [], []
    for moment in MOMENTS:
        within = (time >= moment) & (time < moment + HORIZON) & (born[product] < moment)
        for one in np.unique(customer[within]).tolist():
            found = set(product[within & (customer == one)].tolist())
            found -= set(product[(customer == one) & (time < moment)].tolist()) if new_only else set()
            if found:
                of.append(one)
                at.append(moment)
                right.append(sorted(found))
    return np.array(of), np.array(at), right
