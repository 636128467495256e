"""A generated shop: the tables of a database, and a signal that lies behind two foreign keys and a table of reviews."""

from __future__ import annotations

import datetime
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.parquet as pq

from configs.registry import DATASETS
from tasks.arrays import Array
from tasks.ingest.base import GeneratedDataset
from tasks.ingest.database.configs import DatabaseConfig
from tasks.ingest.synthetic.configs import SyntheticShopConfig
from tasks.ingest.synthetic.shop_history import QUARTER, START, Quarter, people, quarters
from tasks.stage import StageContext

PLANS = ("basic", "plus", "pro")
_COUNTRIES, _CHANNELS = ("AT", "BE", "DE", "FR", "IT", "NL"), ("app", "phone", "web")
_CATEGORIES, _BRANDS = 12, 40
_OTHERS = 10_000  # random numbers of what says nothing


@DATASETS.register("synthetic_shop")
class SyntheticShop(GeneratedDataset):
    """Generated shop: customers, orders, items, products, reviews; reviews by others tell which customers leave.

    Its tables are written as Parquet and go through the data set `database`; what is predicted is which customers who
    ordered within 90 days will not in the next 90. `shop_history` says how it comes about, and what
    score is possible: by a customer's own row, by the reviews that are older than the moment, and if the quality of
    products were known. With `predict: products` it is what they will order (`styles`).
    """

    config: SyntheticShopConfig

    def ingest(self, context: StageContext) -> dict[str, Any]:
        """Write the shop's tables into a folder that goes, and read them as a database."""
        from tasks.ingest.database.ingest import ingest_database
        from tasks.ingest.synthetic.shop_history import ceilings
        from tasks.ingest.tables.intake import Intake

        folder = context.work / "tables"
        try:
            write_shop(self.config, folder)
            fields = ingest_database(shop_database(self.config, folder), context, Intake())
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if self.config.predict != "churn":
            return fields
        scores = ceilings(self.config)["test"]
        context.message(
            f"test rocauc possible: {scores['plan']:.3f} by a customer's own row, {scores['reviews']:.3f} by the "
            f"reviews before the moment, {scores['quality']:.3f} if quality were known"
        )
        return fields


def shop_database(config: SyntheticShopConfig, folder: Path) -> DatabaseConfig:
    """Return the options by which `database` reads the shop's files in a folder."""
    section = shop_section(config, folder)
    options = DATASETS.config({"name": "database", **section})
    assert isinstance(options, DatabaseConfig)
    return options


def shop_section(config: SyntheticShopConfig, folder: Path) -> dict[str, Any]:
    """Return them as a recipe's section `dataset` has them."""
    customer, product = {"customer_id": "customers"}, {"product_id": "products"}
    tables: dict[str, dict[str, Any]] = {
        "customers": {"key": "customer_id", "time": "joined_at"},
        "products": {"key": "product_id"},
        "orders": {"key": "order_id", "time": "placed_at", "foreign": customer},
        "items": {"foreign": {"order_id": "orders", **product}},
        "reviews": {"key": "review_id", "time": "written_at", "foreign": customer | product},
    }
    targets = {
        "churn": {"none": "orders"},
        "products": {"links": "items.product_id"},
        "together": {"together": "items.product_id", "by": "order_id"},
    }
    predict: dict[str, Any] = {
        "table": "products" if config.predict == "together" else "customers",
        "target": targets[config.predict],
        "at": {"first": _date(2), "last": _date(config.num_quarters - 1), "every": "90d"},
        "horizon": "90d",
        "data_end": _date(config.num_quarters),
    }
    if config.predict != "together":
        predict["active"] = {"any": "orders", "within": "90d"}
    files = {name: {"files": [str(folder / f"{name}.parquet")], **table} for name, table in tables.items()}
    return {"title": "shop", "tables": files, "predict": predict}


def _date(quarter: int) -> str:
    return datetime.datetime.fromtimestamp(START + quarter * QUARTER, datetime.UTC).strftime("%Y-%m-%d")


def write_shop(config: SyntheticShopConfig, folder: Path) -> dict[str, int]:
    """Write the tables as Parquet files, quarter by quarter; return the number of rows of each."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng([config.seed, _OTHERS])
    sizes = dict.fromkeys(("customers", "products", "orders", "items", "reviews"), 0)

    def put(writers: dict[str, pq.ParquetWriter], name: str, columns: dict[str, Any]) -> None:
        rows = pa.table(columns)
        if name not in writers:
            writers[name] = pq.ParquetWriter(folder / f"{name}.parquet", rows.schema)
        writers[name].write_table(rows)
        sizes[name] += rows.num_rows

    writers: dict[str, pq.ParquetWriter] = {}
    try:
        put(writers, "customers", _customers(config, random))
        put(writers, "products", _products(config, random))
        for quarter in quarters(config):
            for name, columns in _events(quarter, sizes, random).items():
                put(writers, name, columns)
    finally:
        for writer in writers.values():
            writer.close()
    return sizes


def _times(seconds: Array) -> pa.Array:
    return pa.array(seconds, pa.timestamp("s"))


def _customers(config: SyntheticShopConfig, random: np.random.Generator) -> dict[str, Any]:
    who, count = people(config), config.num_customers
    age = np.clip(random.normal(42, 14, count), 18, 95).round()
    return {
        "customer_id": np.arange(count),
        "joined_at": _times(who.joined),
        "plan": np.array(PLANS)[who.plan + 1],
        "country": np.array(_COUNTRIES)[random.integers(0, len(_COUNTRIES), count)],
        "age": pa.array(age, mask=random.random(count) < 0.1),
    }


def _products(config: SyntheticShopConfig, random: np.random.Generator) -> dict[str, Any]:
    count = config.num_products
    names = pa.array([f"p{number}" for number in range(count)])
    return {
        "product_id": names,
        "category": np.array([f"category {i}" for i in range(_CATEGORIES)])[random.integers(0, _CATEGORIES, count)],
        "brand": np.array([f"brand {i}" for i in range(_BRANDS)])[random.integers(0, _BRANDS, count)],
        "price": random.lognormal(3, 0.8, count).round(2),
    }


def _events(quarter: Quarter, sizes: dict[str, int], random: np.random.Generator) -> dict[str, dict[str, Any]]:
    orders, items, reviews = (len(column) for column in (quarter.order_time, quarter.item_order, quarter.rating))
    return {
        "orders": {
            "order_id": sizes["orders"] + np.arange(orders),
            "customer_id": quarter.order_customer,
            "placed_at": _times(quarter.order_time),
            "channel": np.array(_CHANNELS)[random.integers(0, len(_CHANNELS), orders)],
        },
        "items": {
            "order_id": sizes["orders"] + quarter.item_order,
            "product_id": _product_ids(quarter.item_product),
            "quantity": 1 + random.poisson(0.4, items),
        },
        "reviews": {
            "review_id": sizes["reviews"] + np.arange(reviews),
            "customer_id": quarter.review_customer,
            "product_id": _product_ids(quarter.review_product),
            "written_at": _times(quarter.review_time),
            "rating": quarter.rating,
            "helpful": random.poisson(2.0, reviews),
        },
    }


def _product_ids(numbers: Array) -> pa.Array:
    return compute.binary_join_element_wise("p", pa.array(numbers).cast(pa.string()), "")
