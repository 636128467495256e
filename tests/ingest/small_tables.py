"""Tables of a few rows, and the section of a recipe that reads them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

SPLIT = {"train": 0.4, "valid": 0.3, "test": 0.3}


def section(**change: Any) -> dict[str, Any]:
    nodes = {"files": "n.csv", "label": "y"}
    return {"name": "tables", "nodes": nodes, "edges": {"files": "e.csv"}, "split": SPLIT, **change}


def save(name: str, table: pa.Table) -> None:
    if name.endswith(".parquet"):
        pq.write_table(table, name)
    else:
        pc.write_csv(table, name, pc.WriteOptions(delimiter="\t" if name.endswith(".tsv") else ","))
