"""A small shop as a typed graph with times and tasks, as preprocess would write it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tasks.arrays import offsets
from tasks.stage import Parent
from tasks.storage.graph_store import ALWAYS, ArrayWriter
from tasks.storage.manifests import TypeColumns
from tests.support import as_partition, finish

DAY = 86_400
NODE_TYPES = ("customers", "orders", "products", "visits")
EDGE_TYPES = (
    "orders__customer__customers",
    "orders__product__products",
    "visits__of__customers",
    "customers__rev_customer__orders",
    "products__rev_product__orders",
    "customers__rev_of__visits",
)
ENDS = ((1, 0), (1, 2), (3, 0), (0, 1), (2, 1), (0, 3))
MOMENTS = tuple(100 * DAY * k for k in range(3, 9))
"""The last one tests, the one before validates."""


def shop_graph(
    folder: Path,
    num_customers: int = 80,
    orders_a_customer: int = 30,
    seed: int = 0,
    *,
    changed_after: int | None = None,
    dtype: Any = np.float32,
    **fields: Any,
) -> Parent:
    """Visits are tasks: does the customer like what is good, as of a moment?

    The label is whether the products of a customer's orders of the 100 days before the moment are good on average;
    quality is a column of products, so a model needs two hops, and times.

    `changed_after`: numbers of all rows of later times are drawn anew, and the ends of their edges too; `dtype`: of
    the numbers.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    num_products, num_orders = 25, num_customers * orders_a_customer
    num_visits = num_customers * len(MOMENTS)
    customer, product = rng.integers(0, num_customers, num_orders), rng.integers(0, num_products, num_orders)
    time = rng.integers(0, 900 * DAY, num_orders)
    quality = rng.standard_normal(num_products).astype(np.float32)
    joined = np.where(rng.random(num_customers) < 0.5, ALWAYS, -rng.integers(1, 50, num_customers) * DAY)
    of, at = np.repeat(np.arange(num_customers), len(MOMENTS)), np.tile(MOMENTS, num_customers)
    label = np.array([_liked(c, t, customer, product, time, quality) for c, t in zip(of, at, strict=True)])
    age = rng.standard_normal(num_customers).astype(np.float32)
    amount = rng.standard_normal((num_orders, 2)).astype(np.float32)
    color = rng.integers(0, 4, num_products)
    if changed_after is not None:
        later = np.flatnonzero(time >= changed_after)
        other = np.random.default_rng(seed + 1)
        amount[later] = 9 + other.standard_normal((len(later), 2))
        customer[later], product[later] = (
            other.integers(0, num_customers, len(later)),
            other.integers(0, 25, len(later)),
        )
        time[later] = other.integers(changed_after, 900 * DAY, len(later))

    sizes = [num_customers, num_orders, num_products, num_visits]
    first = offsets(sizes)
    feat = np.zeros((first[-1], 4), np.float32)
    feat[: first[1], 0], feat[first[1] : first[2], 1:3], feat[first[2] : first[3], 3] = age, amount, quality
    codes, labels = np.full((first[-1], 1), 4, np.int32), np.full(first[-1], -1, np.int64)
    codes[first[2] : first[3], 0], labels[first[3] :] = color, label
    node_time = np.concatenate([joined, time, np.full(num_products, ALWAYS), at])
    orders = first[1] + np.arange(num_orders)
    given: dict[str, Any] = {
        "task_type": "binary",
        "num_classes": 2,
        "metric": "rocauc",
        "node_types": NODE_TYPES,
        "edge_types": EDGE_TYPES,
        "relation_ends": ENDS,
        "type_columns": {
            "customers": TypeColumns(numeric=(0,)),
            "orders": TypeColumns(numeric=(1, 2)),
            "products": TypeColumns(numeric=(3,), categorical=(0,)),
            "visits": TypeColumns(),
        },
        "target_type": "visits",
        "categories": (5,),
        "feature_dim": 4,
    }
    return write_typed(
        folder,
        sizes,
        ([orders, orders, first[3] + np.arange(num_visits)], [customer, first[2] + product, of]),
        np.concatenate([time, time, at]),
        {"node_time": node_time, "feat": feat.astype(dtype), "feat_cat": codes, "label": labels},
        MOMENTS,
        seed=seed + 2,
        **{**given, **fields},
    )


def write_typed(
    folder: Path,
    sizes: list[int],
    ends: tuple[list[Any], list[Any]],
    edge_time: Any,
    arrays: dict[str, Any],
    moments: tuple[int, ...],
    *,
    seed: int,
    **fields: Any,
) -> Parent:
    """Write a typed graph whose last type are tasks at moments, as one part; nodes stand in random order.

    `ends`: sources and targets of each relation, which is followed by its reverse; `arrays`: of nodes, type by type.
    """
    first = offsets(sizes)
    place = np.random.default_rng(seed).permutation(first[-1])  # as a partition orders nodes
    (tails, heads), back = ends, np.argsort(place)
    src, dst = place[np.concatenate([*tails, *heads])], place[np.concatenate([*heads, *tails])]
    kind = np.repeat(np.arange(2 * len(tails)), [*map(len, tails), *map(len, heads)])
    order = np.lexsort((kind, src, dst))
    writer = ArrayWriter(folder)
    writer.write("csc_indptr", np.searchsorted(dst[order], np.arange(first[-1] + 1)).astype(np.int64))
    writer.write("csc_indices", src[order].astype(np.int32))
    writer.write("edge_type", kind[order].astype(np.int16))
    writer.write("edge_time", np.tile(edge_time, 2)[order])
    for name, array in {"node_type": np.repeat(np.arange(len(sizes)), sizes).astype(np.int16), **arrays}.items():
        writer.write(name, array[back])
    writer.write("node_ids", back.astype(np.int64))
    tasks, at = place[first[-2] :], arrays["node_time"][first[-2] :]
    cuts = {"train": at < moments[-2], "valid": at == moments[-2], "test": at == moments[-1]}
    for split, chosen in cuts.items():
        writer.write(f"{split}_idx", np.sort(tasks[chosen]).astype(np.int32))
    shape: dict[str, Any] = {
        "num_nodes": int(first[-1]),
        "num_edges": len(src),
        "splits": {split: int(chosen.sum()) for split, chosen in cuts.items()},
        "type_offsets": tuple(first.tolist()),
        "relation_columns": dict.fromkeys(fields["edge_types"], TypeColumns()),
        "fit_before": moments[-2],
        "time_unit": "seconds",
    }
    parent = as_partition(finish(folder, writer, **{**shape, **fields}))
    (folder / "manifest.json").write_text(parent.manifest.model_dump_json())
    return parent


def _liked(customer: int, moment: int, customers: Any, products: Any, time: Any, quality: Any) -> int:
    recent = (customers == customer) & (time < moment) & (time >= moment - 100 * DAY)
    return int(quality[products[recent]].mean() > 0) if recent.any() else 0
