"""A database of a few rows, whole and sound; tests break one thing of it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.ingest.small_tables import save

Rows = dict[str, dict[str, Any]]

ROWS: Rows = {
    "people": {
        "person": [10, 11, 12, 13],
        "since": ["2022-01-01", "2022-01-02", "2022-01-03", "2023-03-01"],
        "age": [31.0, None, 25.0, 40.0],
        "land": ["de", "fr", "de", "it"],
        "boss": [None, 10, 10, 12],
    },
    "things": {"thing": ["a", "b", "c"], "price": [1.5, 2.5, 4.0], "colour": ["red", "red", "blue"]},
    "buys": {
        "buy": [0, 1, 2, 3, 4, 5, 6, 7],
        "who": [10, 11, 10, 12, 10, 13, 12, 10],
        "day": [
            *(f"2022-{month}-01" for month in ("02", "05", "08", "11")),
            *("2023-02-01", "2023-04-01", "2023-08-01", "2023-12-31"),
        ],
        "paid": [5.0, 1.0, 2.0, 8.0, 4.0, 3.0, 6.0, 7.0],
    },
    "lines": {
        "buy": [0, 0, 1, 2, 3, 4, 5, 6, 7],
        "thing": ["a", "b", "a", "c", "b", "c", "a", "b", "a"],
        "number": [1, 2, 1, 3, 1, 1, 2, 1, 1],
    },
}

SECTION: dict[str, Any] = {
    "name": "database",
    "tables": {
        "people": {"files": "people.csv", "key": "person", "time": "since", "foreign": {"boss": "people"}},
        "things": {"files": "things.csv", "key": "thing"},
        "buys": {"files": "buys.csv", "key": "buy", "time": "day", "foreign": {"who": "people"}},
        "lines": {"files": "lines.csv", "foreign": {"buy": "buys", "thing": "things"}},
    },
    "predict": {
        "table": "people",
        "target": {"count": "buys"},
        "at": ["2022-04-01", "2022-07-01", "2022-10-01", "2023-01-01"],
        "horizon": "90d",
    },
}


def database(**tables: dict[str, Any]) -> dict[str, Any]:
    """Return the section with options of tables changed; `predict` is one of them, None takes an option out."""
    section = copy.deepcopy(SECTION)
    for name, change in tables.items():
        options = section["predict"] if name == "predict" else section["tables"].setdefault(name, {})
        options |= change
        for key in [key for key, value in options.items() if value is None]:
            del options[key]
    return section


def write(folder: Path, ending: str = "csv", **changes: dict[str, Any]) -> None:
    """Write the tables, with columns changed (None: taken out)."""
    for name, columns in (ROWS | {name: {} for name in changes if name not in ROWS}).items():
        rows = {key: cells for key, cells in {**columns, **changes.get(name, {})}.items() if cells is not None}
        save(str(folder / f"{name}.{ending}"), pa.table(rows))
