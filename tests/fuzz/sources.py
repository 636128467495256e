"""A small sound data set of each kind that lies in several files or in other programs' formats; and ways to spoil it.

A file is spoilt as bytes or as values: a cell, a column, an array, a document of JSON, a table of a database.
"""

from __future__ import annotations

import datetime
import decimal
import gzip
import io
import json
import shutil
import struct
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st

from tests.fuzz.mutations import ODD_VALUES, as_text, broken, spoilt_json
from tests.fuzz.tables import Draw
from tests.ingest import small_databases, test_pyg, test_relbench
from tests.ingest.triple_files import SPLITS, TRAIN, lines, put
from tests.ingest.versioned_tables import append_delta, iceberg_catalog, write_delta
from tests.support import WITHOUT_DGL

NODES = {"id": list(range(30)), "x": [0.5 * i for i in range(30)], "kind": ["a", "b"] * 15, "y": ["no", "yes"] * 15}
EDGES = {"src": list(range(29)), "dst": list(range(1, 30)), "how": ["card", "cash", None, "card", "x"] * 5 + ["x"] * 4}


@dataclass(frozen=True)
class Source:
    """Files by their path, what is done with them, and with which arguments."""

    files: Mapping[str, bytes] = field(repr=False)
    arguments: dict[str, Any]
    work: str = "dataset"
    spoils: Callable[[Draw, str, bytes], bytes] | None = None
    """How values of its files are spoilt where the ending does not say it."""


@dataclass
class _Made:
    section: dict[str, Any]
    model: str = "gcn"
    spoils: Callable[[Draw, str, bytes], bytes] | None = None


def make(kind: str, folder: Path) -> Source:
    """Write a kind's files into a folder, which is emptied, and return them."""
    empty(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        made = MAKERS[kind](folder, patch)
    files = {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    if isinstance(made, str):
        return Source(files, {}, made)
    return Source(files, {"section": made.section, "model": made.model}, spoils=made.spoils)


def empty(folder: Path) -> None:
    """Remove what is in a folder, which stays: it is the current one of the child."""
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _tables(files: str) -> _Made:
    nodes = {"files": f"{files}nodes", "features": ["x"], "categorical": ["kind"], "label": "y"}
    edges = {"files": f"{files}edges", "categorical": ["how"]}
    return _Made({"name": "tables", "task": "node", "nodes": nodes, "edges": edges})


def _plain(folder: Path, patch: pytest.MonkeyPatch) -> _Made:
    pc.write_csv(pa.table(NODES), "nodes.csv")
    pq.write_table(pa.table(EDGES), "edges.parquet")
    made = _tables("")
    made.section["nodes"]["files"], made.section["edges"]["files"] = "nodes.csv", "edges.parquet"
    return made


def _delta(folder: Path, patch: pytest.MonkeyPatch) -> _Made:
    write_delta(folder / "nodes", [("2025-01-10", NODES)], partition_by=["kind"])
    write_delta(folder / "edges", [("2025-01-10", EDGES)])
    append_delta(folder / "edges", "2025-02-10", {"src": [3], "dst": [8], "how": ["cash"]})
    import deltalake

    deltalake.DeltaTable("edges").create_checkpoint()
    return _tables("delta:")


def _iceberg(folder: Path, patch: pytest.MonkeyPatch) -> _Made:
    catalog = iceberg_catalog(folder, patch)
    for name, columns in (("nodes", NODES), ("edges", EDGES)):
        table = catalog.create_table(f"shop.{name}", schema=pa.table(columns).schema)
        table.append(pa.table(columns))
        table.append(pa.table(columns).slice(0, 0))
    return _tables("iceberg:lake.shop.")


def _database(folder: Path, patch: pytest.MonkeyPatch) -> _Made:
    small_databases.write(folder)
    pq.write_table(pa.table(small_databases.ROWS["buys"]), "buys.parquet")
    Path("buys.csv").unlink()
    return _Made(small_databases.database(buys={"files": "buys.parquet"}), "heterosage")


def _labels(folder: Path, patch: pytest.MonkeyPatch) -> _Made:
    _plain(folder, patch)
    tables = {
        "people": {"files": "nodes.csv", "key": "id"},
        "visits": {"files": "edges.parquet", "foreign": {"src": "people", "dst": "people"}},
    }
    predict = {"table": "people", "label": "y", "split": {"valid": 0.2, "test": 0.2}}
    return _Made({"name": "database", "tables": tables, "predict": predict}, "heterosage")


def _duckdb(folder: Path, patch: pytest.MonkeyPatch) -> _Made:
    import duckdb

    with duckdb.connect("shop.duckdb") as connection:
        for name, columns in small_databases.ROWS.items():
            connection.register("given", pa.table(columns))
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
    files = {name: {"files": "shop.duckdb"} for name in small_databases.ROWS}
    return _Made(small_databases.database(**files), "heterosage")


def _inspected(folder: Path, patch: pytest.MonkeyPatch) -> str:
    small_databases.write(folder)
    _duckdb(folder, patch)
    for name in ("things", "buys"):
        Path(f"{name}.csv").unlink()
    pq.write_table(pa.table(small_databases.ROWS["buys"]), "buys.parquet")
    return "proposal"


def _relbench(folder: Path, patch: pytest.MonkeyPatch) -> _Made:
    test_relbench.formula.__wrapped__(folder)  # type: ignore[attr-defined]
    return _Made({"name": "relbench", "folder": "rel", "predict": "driver-dnf"}, "heterosage")


def _ntriples(folder: Path, patch: pytest.MonkeyPatch) -> _Made:
    rows = [*TRAIN, *SPLITS["valid"], *SPLITS["test"]] * 6
    text = "".join(f"<{head}{i % 2}> <{relation}> <{tail}{i % 3}> .\n" for i, (head, relation, tail) in enumerate(rows))
    put(folder / "a.nt", text + '_:b0 <knows> <bob1> .\n<bob1> <called> "Bob\\u00e9"@en . # so\n')
    put(folder / "b.nt.gz", "_:b0 <likes> <bob1> .\n<cy1> <knows> _:b0 .\n")
    triples = {"triples": ["a.nt", "b.nt.gz"], "literals": "keep", "split": {"valid": 0.3, "test": 0.3}}
    return _Made({"name": "triples", **triples}, "transe")


def _triples(folder: Path, patch: pytest.MonkeyPatch) -> _Made:
    put(folder / "train.txt", lines(TRAIN))
    put(folder / "valid.csv", lines(SPLITS["valid"], ",", "head,relation,tail\n"))
    columns = dict(zip(("head", "relation", "tail"), map(list, zip(*SPLITS["test"], strict=True)), strict=True))
    pq.write_table(pa.table(columns), "test.parquet")
    put(folder / "types.csv", "id,type\nann,man\nbob,man\ncy,cat\ndan,cat\n")
    put(folder / "entities.txt.gz", "ann\nbob\ncy\ndan\n")
    files = {"train": "train.txt", "valid": "valid.csv", "test": "test.parquet"}
    split = {"name": "files", "files": files}
    return _Made({"name": "triples", "split": split, "types": "types.csv", "entities": "entities.txt.gz"}, "transe")


def _matrices(folder: Path, patch: pytest.MonkeyPatch) -> _Made:
    values = np.random.default_rng(0).standard_normal((40, 3)).astype(np.float32)
    np.save("x.npy", values)
    np.savez("y.npz", x=values, y=np.arange(40))
    pq.write_table(pa.table({"id": [f"n{i}" for i in range(40)]}), "x.ids.parquet")
    put(folder / "labels.txt", "a\nb\n" * 20)
    return _Made({"name": "vectors", "files": ["x.npy"], "labels": ["labels.txt"]}, "largevis")


def _images(folder: Path, patch: pytest.MonkeyPatch) -> _Made:
    pixels = np.random.default_rng(0).integers(0, 255, (40, 3, 2), np.uint8)
    Path("a-idx3-ubyte").write_bytes(b"\0\0\x08\3" + struct.pack(">3I", 40, 3, 2) + pixels.tobytes())
    Path("a-idx1-ubyte").write_bytes(b"\0\0\x08\1" + struct.pack(">I", 40) + bytes(range(40)))
    return _Made({"name": "vectors", "files": ["a-idx3-ubyte"], "labels": ["a-idx1-ubyte"]}, "largevis")


def _vector_tables(folder: Path, patch: pytest.MonkeyPatch) -> _Made:
    values = np.random.default_rng(0).standard_normal((40, 3))
    columns = {"id": [f"n{i}" for i in range(40)], "v": values.tolist(), "label": ["a", "b"] * 20}
    pq.write_table(pa.table({**columns, "age": list(range(40))}), "x.parquet")
    return _Made({"name": "vectors", "files": ["x.parquet"]}, "largevis")


def _npz(folder: Path, patch: pytest.MonkeyPatch) -> _Made:
    edges, part = np.stack([np.arange(30), (np.arange(30) + 1) % 30]), np.arange(30) % 3
    splits = {name: np.flatnonzero(part == i) for i, name in enumerate(("train", "valid", "test"))}
    np.savez("g.npz", edge_index=edges, x=np.ones((30, 2), np.float32), y=np.arange(30) % 2, **splits)
    return _Made({"name": "npz", "path": "g.npz"})


def _pyg(folder: Path, patch: pytest.MonkeyPatch) -> _Made:
    test_pyg.save(folder / "g.pt", test_pyg.stores())
    return _Made({"name": "pyg", "path": "g.pt"}, "rgcn", _spoilt_stores)


def _dgl(folder: Path, patch: pytest.MonkeyPatch) -> _Made:
    from tests.ingest import test_dgl

    test_dgl.save(folder / "g.bin", _ring({}, {}))
    return _Made({"name": "dgl", "path": "g.bin"}, "gcn", _spoilt_graph)


def _ring(nodes: dict[str, Any], edges: dict[str, Any]) -> Any:
    import torch

    from tests.ingest import test_dgl

    graph = test_dgl.ring(original_id=torch.arange(6) * 10, time=torch.arange(6), feat_cat=torch.arange(6) % 2)
    graph.ndata.update(nodes)
    graph.edata.update({"feat": torch.ones(6, 3), "weight": torch.rand(6), "time": torch.arange(6) + 2000, **edges})
    return graph


def _given(folder: Path, patch: pytest.MonkeyPatch) -> str:
    put(folder / "ids.txt", "n1\nn2\nn 3\n")
    put(folder / "nodes.csv", "id,row\n1,1\n2,2.0\n7,\n")
    pq.write_table(pa.table({"source": ["a", "b"], "target": ["b", "c"], "source_row": [0, 1]}), "pairs.parquet")
    put(folder / "queries.csv", "head,relation,tail,type\nann,knows,,man\n,knows,cy,\nann,,cy,\n")
    pq.write_table(
        pa.table({"head": ["ann", None], "relation": ["knows"] * 2, "tail": [None, "cy"]}), "queries.parquet"
    )
    return "given"


MAKERS: dict[str, Callable[[Path, pytest.MonkeyPatch], _Made | str]] = {
    "tables": _plain,
    "delta": _delta,
    "iceberg": _iceberg,
    "database": _database,
    "own labels": _labels,
    "duckdb": _duckdb,
    "inspect": _inspected,
    "relbench": _relbench,
    "ntriples": _ntriples,
    "triples": _triples,
    "matrices": _matrices,
    "images": _images,
    "vector tables": _vector_tables,
    "npz": _npz,
    "pyg": _pyg,
    **({} if WITHOUT_DGL else {"dgl": _dgl}),
    "given": _given,
}


# ---- spoilt values

_CELLS: list[Any] = [
    None, True, -1, 0, 2**31, 2**53 + 1, 2**63 - 1, 2**64 - 1, 1e308, 5e-324, float("nan"), float("inf"), "", " ", "a",
    "7", "007", "1e3", "x" * 70_000, "a\0b", "=1+1", "2022-02-30", "9999-12-31", "\ud7ff", b"\xff", [], [1, 2],
    ["a", None], [[1.0]], {"a": 1}, decimal.Decimal("1.10"), decimal.Decimal(10) ** 37, datetime.date(1, 1, 1),
    datetime.datetime(9999, 12, 31), datetime.datetime(2022, 1, 1, tzinfo=datetime.UTC), datetime.timedelta(1),
    datetime.time(1),
]  # fmt: skip
_TYPES = [
    pa.null(), pa.bool_(), pa.int8(), pa.uint64(), pa.float16(), pa.float32(), pa.large_string(), pa.string_view(),
    pa.large_binary(), pa.binary(3), pa.dictionary(pa.int8(), pa.string()), pa.timestamp("ns"),
    pa.timestamp("s", "UTC"),
    pa.date32(), pa.time64("us"), pa.duration("s"), pa.decimal128(38, 3), pa.list_(pa.int64()),
    pa.list_(pa.string(), 1),
    pa.map_(pa.string(), pa.int64()), pa.struct([("a", pa.int64())]),
]  # fmt: skip


_SQL_VALUES = [
    "NULL", "''", "'x'", "'é'", "-1", "1e308", "'nan'::double", "'inf'::float", "1::hugeint", "1.5::decimal(9, 2)",
    "9223372036854775807", "18446744073709551615::ubigint", "'ab'::blob", "true", "'101'::bit", "uuid()", "chr(0)",
    "interval 1 day", "time '10:00'", "timetz '10:00:00+02'", "date '2022-02-01'", "date 'infinity'", "1::bignum",
    "timestamp '290000-01-01'", "timestamptz '2022-02-01'", "timestamp_ns '2022-02-01'", "struct_pack(a := 1)",
    "[1, 2]", "[struct_pack(a := 1)]", "map([1], [2])", "union_value(num := 2)", "repeat('x', 70000)",
    "'a'::enum('a')", "'[]'::json",
]  # fmt: skip
_SQL = [
    "CREATE OR REPLACE TABLE {table} AS SELECT * REPLACE ({value} AS {column}) FROM {table}",
    "UPDATE {table} SET {column} = {value} WHERE rowid = 1",
    "CREATE OR REPLACE TABLE {table} AS SELECT *, {value} AS more FROM {table}",
    "ALTER TABLE {table} DROP {column}",
    'ALTER TABLE {table} RENAME {column} TO "../x"',
    "DELETE FROM {table}",
    "INSERT INTO {table} SELECT * FROM {table}",
    "DROP TABLE {table}",
    "CREATE VIEW v AS SELECT * FROM {table}; ALTER TABLE {table} RENAME TO other",
]


@st.composite
def spoilt_source(draw: Draw, source: Source) -> Source:
    """The source with its section or one file spoilt: its bytes, its values, or it is gone, empty, or another one."""
    what = draw(st.sampled_from(["values", "values", "bytes", "section", "file"]))
    if what == "section" and "section" in source.arguments:
        arguments = {**source.arguments, "section": draw(spoilt_json(source.arguments["section"]))}
        return Source(source.files, arguments, source.work)
    files = dict(source.files)
    name = draw(st.sampled_from(sorted(files)))
    if what == "values":
        spoil = source.spoils or _spoilt_values
        with suppress(Exception):  # what the format cannot hold
            files[name] = spoil(draw, name, files[name])
            return Source(files, source.arguments, source.work)
    if what == "file":
        other = draw(st.sampled_from([None, "", *sorted(files)]))
        files.pop(name) if other is None else files.update({name: files[other] if other else b""})
    else:
        files[name] = draw(broken(files[name]))
    return Source(files, source.arguments, source.work)


def _spoilt_values(draw: Draw, name: str, data: bytes) -> bytes:
    """Return a file's content with other values, as its ending says."""
    match Path(name).suffix:
        case ".json":
            texts = data.decode().splitlines() if "_delta_log" in name else [data.decode()]
            at = draw(st.integers(0, len(texts) - 1))
            texts[at] = as_text(_spoilt_document(draw, json.loads(texts[at]))).decode()
            return "\n".join(texts).encode()
        case ".parquet":
            sink = io.BytesIO()
            pq.write_table(_spoilt_table(draw, pq.read_table(io.BytesIO(data))), sink)
            return sink.getvalue()
        case ".npy":
            return _saved(np.save, _odd_array(draw, np.load(io.BytesIO(data))))
        case ".npz":
            arrays = dict(np.load(io.BytesIO(data)))
            key = draw(st.sampled_from(sorted(arrays)))
            array = _odd_array(draw, arrays.pop(key))
            return _saved(np.savez, **arrays, **({key: array} if draw(st.integers(0, 5)) else {}))
        case ".duckdb":
            return _spoilt_duckdb(draw, data)
        case ".gz":
            return gzip.compress(_spoilt_lines(draw, gzip.decompress(data)))
        case ".csv" | ".txt" | ".nt":
            return _spoilt_lines(draw, data)
        case _:
            return draw(broken(data))  # type: ignore[no-any-return]


def _spoilt_document(draw: Draw, document: Any) -> Any:
    """Return JSON spoilt, also that which stands in it as a text (a schema)."""
    if isinstance(document.get("metaData"), dict) and draw(st.booleans()):
        schema = json.loads(document["metaData"]["schemaString"])
        document["metaData"]["schemaString"] = as_text(draw(spoilt_json(schema))).decode()
        return document
    return draw(spoilt_json(document))


def _spoilt_lines(draw: Draw, data: bytes) -> bytes:
    """Return lines of text with a cell replaced, or a line left out or doubled."""
    text = data.decode().split("\n")
    at = draw(st.integers(0, len(text) - 1))
    between = next((mark for mark in "\t, " if mark in text[at]), ",")
    cells = text[at].split(between)
    match draw(st.sampled_from(["cell", "cell", "more", "fewer", "line", "twice"])):
        case "cell":
            odd = str(draw(st.sampled_from(_CELLS)))
            cells[draw(st.integers(0, len(cells) - 1))] = draw(
                st.sampled_from([odd, f"<{odd}>", '"', f'"{odd}"^^<x>', "<a\\u0020b>", "_:", "_:a@b"])
            )
        case "more":
            cells.append("x")
        case "fewer":
            cells.pop()
        case "line":
            del text[at + 1 :]
        case "twice":
            text.append(text[at])
    text[at] = between.join(cells)
    return "\n".join(text).encode()


def _spoilt_table(draw: Draw, table: pa.Table) -> pa.Table:
    """Return a table with one column's cell, type or name changed, or with other rows; metadata come along."""
    at = draw(st.integers(0, table.num_columns - 1))
    name, column = table.column_names[at], table.column(at)
    match draw(st.sampled_from(["cell", "cell", "all", "type", "name", "drop", "rows", "metadata"])):
        case "cell":
            cells = column.to_pylist()
            cells[draw(st.integers(0, len(cells) - 1))] = draw(st.sampled_from(_CELLS))
            column = pa.array(cells)
        case "all":
            column = pa.array([draw(st.sampled_from(_CELLS))] * len(table))
        case "type":
            column = column.cast(draw(st.sampled_from(_TYPES)))
        case "name":
            names = list(table.column_names)
            names[at] = draw(st.sampled_from(["", "\0", "a.b", "../x", names[0], "x" * 5000]))
            return table.rename_columns(names)
        case "drop":
            return table.drop_columns([name])
        case "rows":
            return draw(st.sampled_from([table.slice(0, 0), table.slice(0, 1), pa.concat_tables([table, table])]))
        case "metadata":
            metadata = dict(table.schema.metadata or {b"a": b"b"})
            key = draw(st.sampled_from(sorted(metadata)))
            metadata[key] = draw(st.sampled_from([b"", b"null", b"[]", b'{"a": "b"}', b'"x"', b"\xff", b"1e999"]))
            return table.replace_schema_metadata(metadata)
    return table.set_column(at, name, column)


def _saved(save: Callable[..., None], *arrays: Any, **named: Any) -> bytes:
    sink = io.BytesIO()
    save(sink, *arrays, **named)
    return sink.getvalue()


def _odd_array(draw: Draw, array: Any) -> Any:
    """Return an array of another shape, type or length, or with an odd number in it."""
    match draw(st.sampled_from(["cell", "cell", "all", "type", "shape", "fewer", "more", "scalar"])):
        case "cell" | "all" as where if array.size:
            array = array.copy()
            odd = draw(st.sampled_from([-1, -5, -100, 0, 1, 127, 2**31, 2**40, 2**62, 1.5, 1e39, np.nan, np.inf]))
            array = array.astype(np.float64) if isinstance(odd, float) and draw(st.booleans()) else array
            place = draw(st.integers(0, array.size - 1)) if where == "cell" else slice(None)
            with np.errstate(all="ignore"):
                array.reshape(-1)[place] = np.asarray(odd).astype(array.dtype)
        case "type":
            kinds = ["i1", "u1", "u8", "i4", "f2", "f4", "f8", "?", "c8", ">i4", "U5", "M8[s]", "i8,f4"]
            with np.errstate(all="ignore"):
                array = array.astype(draw(st.sampled_from(kinds)))
        case "shape":
            shapes = [
                array.reshape(-1),
                array[..., None],
                array[None],
                array.T,
                array[:0],
                array.reshape(*array.shape, 1),
            ]
            array = draw(st.sampled_from([*range(len(shapes))]).map(shapes.__getitem__))
        case "fewer":
            array = array[: draw(st.integers(0, len(array)))]
        case "more":
            array = np.concatenate([array, array])
        case "scalar":
            array = np.asarray(array.reshape(-1)[0]) if array.size else array
    return array


def _odd_tensor(draw: Draw, tensor: Any) -> Any:
    import torch

    return torch.from_numpy(np.array(_odd_array(draw, np.asarray(tensor))))


def _spoilt_stores(draw: Draw, name: str, data: bytes) -> bytes:
    """Return a file of PyG with a field of a store replaced, left out or added."""
    import torch

    stores = test_pyg.stores()
    store = stores[draw(st.sampled_from([*stores]))]
    key = draw(st.sampled_from([*sorted(store), "original_id", "num_nodes", "train_mask", "edge_attr"]))
    if draw(st.booleans()) and key in store and hasattr(store[key], "numpy"):
        store[key] = _odd_tensor(draw, store[key])
    elif draw(st.booleans()):
        store.pop(key, None)
    else:
        store[key] = draw(st.sampled_from(ODD_VALUES))
    sink = io.BytesIO()
    torch.save(stores, sink)
    return sink.getvalue()


def _spoilt_graph(draw: Draw, name: str, data: bytes) -> bytes:
    """Return a file of DGL with a field of nodes or edges replaced."""
    from tests.ingest import test_dgl

    frames = {"nodes": dict(_ring({}, {}).ndata), "edges": dict(_ring({}, {}).edata)}
    frame = frames[draw(st.sampled_from(["nodes", "nodes", "edges"]))]
    key = draw(st.sampled_from(sorted(frame)))
    frame[key] = _odd_tensor(draw, frame[key])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "g.bin"
        test_dgl.save(path, _ring(**frames))
        return path.read_bytes()


def _spoilt_duckdb(draw: Draw, data: bytes) -> bytes:
    """Return a DuckDB file with another type, value or name of a column, or other tables and rows."""
    import duckdb

    table = draw(st.sampled_from(sorted(small_databases.ROWS)))
    column = draw(st.sampled_from(sorted(small_databases.ROWS[table])))
    value, statement = draw(st.sampled_from(_SQL_VALUES)), draw(st.sampled_from(_SQL))
    statement = statement.format(table=table, column=column, value=value)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.duckdb"
        path.write_bytes(data)
        with suppress(duckdb.Error), duckdb.connect(str(path)) as connection:
            connection.execute(statement)
        return path.read_bytes()
