"""Tables of Delta Lake and Iceberg, made by their own libraries, with versions at moments that tests choose."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
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


def change_log(folder: Path, change: Callable[[dict[str, Any]], Any], version: int = 0) -> None:
    """Change each action of a version in the log; those for which `change` returns False are taken out."""
    log = folder / "_delta_log" / f"{version:020d}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    kept = [action for action in actions if change(action) is not False]
    log.write_text("\n".join(map(json.dumps, kept)) + "\n")


def change_column(action: dict[str, Any], column: str, **changes: Any) -> None:
    """Change what an action of the log says of a column, where it tells of columns."""
    if "metaData" in action:
        schema = json.loads(action["metaData"]["schemaString"])
        for field in schema["fields"]:
            if field["name"] == column:
                field |= changes
        action["metaData"]["schemaString"] = json.dumps(schema)


def set_moment(folder: Path, version: int, moment: str) -> None:
    """Say in the log when a version was made."""
    at = int(datetime.datetime.fromisoformat(moment).replace(tzinfo=datetime.UTC).timestamp() * 1000)
    change_log(folder, lambda action: action.get("commitInfo", {}).update(timestamp=at), version)


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
