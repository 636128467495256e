"""A small shop as a typed graph with times and tasks, as preprocess would write it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tasks.stage import Parent
from tasks.storage.graph_store import ALWAYS, Array, ArrayWriter
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


def write_messages(
    writer: ArrayWriter, place: Array, tails: list[Array], heads: list[Array], times: list[Array]
) -> int:
    """Write edges of each kind, then their reverse, in CSC; nodes are numbered by `place`. Returns how many."""
    src = place[np.concatenate([*tails, *heads])]
    dst = place[np.concatenate([*heads, *tails])]
    kind = np.repeat(np.arange(2 * len(tails)), [*map(len, tails), *map(len, heads)])
    order = np.lexsort((kind, src, dst))
    writer.write("csc_indptr", np.searchsorted(dst[order], np.arange(len(place) + 1)).astype(np.int64))
    writer.write("csc_indices", src[order].astype(np.int32))
    writer.write("edge_type", kind[order].astype(np.int16))
    writer.write("edge_time", np.tile(np.concatenate(times), 2)[order])
    return len(src)


def write_moments(writer: ArrayWriter, tasks: Array, at: Array, moments: tuple[int, ...]) -> dict[str, int]:
    """Write splits of tasks by their moments; returns their sizes."""
    cuts = {"train": at < moments[-2], "valid": at == moments[-2], "test": at == moments[-1]}
    for split, chosen in cuts.items():
        writer.write(f"{split}_idx", np.sort(tasks[chosen]).astype(np.int32))
    return {split: int(chosen.sum()) for split, chosen in cuts.items()}


def finish_partition(folder: Path, writer: ArrayWriter, **fields: Any) -> Parent:
    parent = as_partition(finish(folder, writer, **{"time_unit": "seconds", **fields}))
    (folder / "manifest.json").write_text(parent.manifest.model_dump_json())
    return parent


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
        customer[later] = other.integers(0, num_customers, len(later))
        product[later] = other.integers(0, 25, len(later))
        time[later] = other.integers(changed_after, 900 * DAY, len(later))

    sizes = [num_customers, num_orders, num_products, num_visits]
    first = np.concatenate([[0], np.cumsum(sizes)])
    num_nodes = int(first[-1])
    place = np.random.default_rng(seed + 2).permutation(num_nodes)  # as a partition orders nodes
    node_type = np.empty(num_nodes, np.int16)
    node_type[place] = np.repeat(np.arange(4), sizes)
    node_time = np.empty(num_nodes, np.int64)
    node_time[place] = np.concatenate([joined, time, np.full(num_products, ALWAYS), at])
    feat = np.zeros((num_nodes, 4), np.float32)
    feat[place[: first[1]], 0] = age
    feat[place[first[1] : first[2]], 1:3] = amount
    feat[place[first[2] : first[3]], 3] = quality
    codes = np.full((num_nodes, 1), 4, np.int32)
    codes[place[first[2] : first[3]], 0] = color

    tails = [first[1] + np.arange(num_orders), first[1] + np.arange(num_orders), first[3] + np.arange(num_visits)]
    heads = [customer, first[2] + product, of]
    writer = ArrayWriter(folder)
    num_edges = write_messages(writer, place, tails, heads, [time, time, at])
    visits = place[first[3] :]
    labels = np.full(num_nodes, -1, np.int64)
    labels[visits] = label
    arrays = {"node_type": node_type, "node_time": node_time, "feat": feat.astype(dtype), "feat_cat": codes}
    for name, array in {**arrays, "label": labels, "node_ids": np.argsort(place).astype(np.int64)}.items():
        writer.write(name, array)
    none = TypeColumns()
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
            "visits": none,
        },
        "relation_columns": dict.fromkeys(EDGE_TYPES, none),
        "type_offsets": tuple(int(n) for n in first),
        "target_type": "visits",
        "fit_before": MOMENTS[-2],
        "categories": (5,),
        "feature_dim": 4,
        "num_nodes": num_nodes,
        "num_edges": num_edges,
        "splits": write_moments(writer, visits, at, MOMENTS),
    }
    return finish_partition(folder, writer, **{**given, **fields})


def _liked(customer: int, moment: int, customers: Any, products: Any, time: Any, quality: Any) -> int:
    recent = (customers == customer) & (time < moment) & (time >= moment - 100 * DAY)
    return int(quality[products[recent]].mean() > 0) if recent.any() else 0
