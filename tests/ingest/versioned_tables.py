"""Tables of Delta Lake and Iceberg, made by their own libraries, with versions at moments that tests choose."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest


def write_delta(folder: Path, versions: list[tuple[str, dict[str, Any]]], **options: Any) -> str:
    """Write versions, each a moment and columns that replace all rows; returns how a recipe names the table."""
    import deltalake

    for number, (moment, columns) in enumerate(versions):
        deltalake.write_deltalake(str(folder), pa.table(columns), mode="overwrite", schema_mode="overwrite", **options)
        set_moment(folder, number, moment)
    return f"delta:{folder}"


def append_delta(folder: Path, moment: str, columns: dict[str, Any]) -> None:
    """Add rows in a version of their own."""
    import deltalake

    deltalake.write_deltalake(str(folder), pa.table(columns), mode="append")
    set_moment(folder, deltalake.DeltaTable(str(folder)).version(), moment)


def set_moment(folder: Path, version: int, moment: str) -> None:
    """Say in the log when a version was made."""
    import datetime

    path = folder / "_delta_log" / f"{version:020d}.json"
    at = int(datetime.datetime.fromisoformat(moment).replace(tzinfo=datetime.UTC).timestamp() * 1000)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if "commitInfo" in line:
            line["commitInfo"]["timestamp"] = at
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n")


def iceberg_catalog(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make an SQLite catalog called `lake` that pyiceberg's environment names."""
    from pyiceberg import catalog as catalogs

    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{folder}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", f"file://{folder}")
    # What pyiceberg read of the environment when it was imported.
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", __import__("pyiceberg.utils.config").utils.config.Config())
    catalog = catalogs.load_catalog("lake")
    catalog.create_namespace("shop")
    return catalog
