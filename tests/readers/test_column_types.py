"""Every Arrow type that Parquet can hold: read, or refused by the name of its column."""

from __future__ import annotations

import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from configs.errors import DataError, UserError
from configs.load import build_recipe
from tasks.ingest.database.proposal.recipe import propose_recipe
from tasks.ingest.stage import STAGE
from tasks.readers.parquet import read_parquet
from tasks.stage import run_stage
from tasks.storage.home import Home

ROWS = 30
TEXTS = [str(i % 5) for i in range(ROWS)]
BYTES = [text.encode() for text in TEXTS]
PAIRS = [[1.0, 2.0]] * ROWS
UUIDS = pa.array([b"0123456789abcdef"] * ROWS, pa.binary(16))


def stored(kind: pa.DataType, storage: pa.Array) -> pa.Array:
    return pa.ExtensionArray.from_storage(kind, storage)


COLUMNS = {
    "binary_view": pa.array(BYTES, pa.binary_view()),
    "binary": pa.array(BYTES, pa.large_binary()),
    "string_view": pa.array(TEXTS, pa.string_view()),
    "dictionary": pa.array(TEXTS).dictionary_encode(),
    "dictionary of bytes": pa.array(BYTES).dictionary_encode(),
    "list_view": pa.array(PAIRS, pa.list_view(pa.float64())),
    "large_list_view": pa.array([*PAIRS[1:], None], pa.large_list_view(pa.float64())),
    "list of string_view": pa.array([["a"]] * ROWS, pa.list_(pa.string_view())),
    "list of binary_view": pa.array([[b"a"]] * ROWS, pa.list_(pa.binary_view())),
    "list of uuid": pa.ListArray.from_arrays(pa.array(range(ROWS + 1), pa.int32()), stored(pa.uuid(), UUIDS)),
    "struct": pa.array([{"a": "x"}] * ROWS, pa.struct([("a", pa.string_view())])),
    "map": pa.array([[("a", 1)]] * ROWS, pa.map_(pa.string(), pa.int32())),
    "uuid": stored(pa.uuid(), UUIDS),
    "json": stored(pa.json_(), pa.array(["{}"] * ROWS)),
    "bool8": stored(pa.bool8(), pa.array([i % 2 for i in range(ROWS)], pa.int8())),
    "tensor": stored(pa.fixed_shape_tensor(pa.float32(), [2]), pa.array(PAIRS, pa.list_(pa.float32(), 2))),
    "decimal": pa.array([decimal.Decimal(10) ** 30] * ROWS, pa.decimal128(38, 0)),
    "half": pa.array(np.arange(ROWS, dtype=np.float16)),
    "uint64": pa.array([2**64 - 1 - i for i in range(ROWS)], pa.uint64()),
    "duration": pa.array(range(ROWS), pa.duration("s")),
    "time": pa.array(range(ROWS), pa.time64("us")),
    "zone": pa.array(range(ROWS), pa.timestamp("s", "Europe/Berlin")),
    "no zone": pa.array(range(ROWS), pa.timestamp("s", "No/Where")),
    "null": pa.nulls(ROWS),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_each_type_is_read_or_refused_by_name(name: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    ids = pa.array(range(ROWS))
    people = {"id": ids, "x": pa.array([0.5 * i for i in range(ROWS)]), "y": pa.array([i % 2 for i in range(ROWS)])}
    people["at"] = pa.array(range(ROWS), pa.date32())
    pq.write_table(pa.table({**people, "c": COLUMNS[name]}), tmp_path / "in/people.parquet")
    pq.write_table(pa.table({"person": ids, "src": ids, "dst": ids}), tmp_path / "in/visits.parquet")
    files, other = f"{tmp_path}/in/people.parquet", f"{tmp_path}/in/visits.parquet"
    nodes, edges = {"files": files, "id": "id", "features": ["x"], "label": "y"}, {"files": other}
    tables = [{**nodes, "features": ["x", "c"]}, {**nodes, "categorical": ["c"]}, {**nodes, "id": "c"}]
    visits, predict = {"files": other, "foreign": {"person": "people"}}, {"split": {"valid": 0.2, "test": 0.2}}
    datasets: list[dict[str, Any]] = [
        {"name": "tables", "task": "node", "nodes": one, "edges": edges} for one in tables
    ]
    for columns, label in (({}, "y"), ({"c": "time"}, "y"), ({"c": "text"}, "y"), ({"c": "category"}, "y"), ({}, "c")):
        rows = {"people": {"files": files, "key": "id", "time": "at", "columns": columns}, "visits": visits}
        datasets.append({"name": "database", "tables": rows, "predict": {"table": "people", "label": label, **predict}})
    home, refused = Home.open(str(tmp_path / "home")), []
    for dataset in datasets:
        model = {"name": "gcn" if dataset["name"] == "tables" else "heterosage"}
        try:
            run_stage(STAGE, build_recipe({"name": "t", "dataset": dataset, "model": model}), {}, home)
        except UserError as error:
            refused.append(str(error))
    assert all("column c" in text for text in refused), refused
    try:
        assert "people" in propose_recipe([f"{tmp_path}/in"])
    except DataError as error:
        refused.append(str(error))
    assert all("column c" in text for text in refused), refused


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    pq.write_table(pa.table(COLUMNS), tmp_path / "t.parquet")
    for name in ("large_list_view", "list_view", "json", "bool8", "tensor", "half", "list of string_view"):
        batches = list(read_parquet(tmp_path / "t.parquet", [name]))
        column = COLUMNS[name]
        assert pa.Table.from_batches(batches).column(name).to_pylist() == getattr(column, "storage", column).to_pylist()
