"""Tables as written, read by our reader, DuckDB and Polars; and tables that a manifest does not describe."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from configs.errors import DataError, IntegrityError
from tasks.ingest import writer as writer_module
from tasks.ingest.dataset_fields import dataset_fields
from tasks.ingest.edges import EdgeCheck
from tasks.ingest.stage import checked_fields
from tasks.ingest.writer import DatasetWriter
from tasks.storage.dataset_store import DatasetStore, iter_row_groups, matrix, read_shard, to_numpy
from tasks.storage.manifests import EdgeType, FeatureColumn, NodeType
from tests.ingest.conftest import Ingest


def test_readme_describes_what_other_tools_read(ingest: Ingest) -> None:
    store = ingest(name="synthetic", num_nodes=500, num_edges=2000, feature_dim=16)
    nodes = str(store.folder / "nodes/node/*.parquet")
    edges = str(store.folder / "edges/node__to__node/*.parquet")
    table, split = store.read("nodes/node"), store.column("split/test", "node_id")
    feat, label = matrix(table.column("feat")), table.column("label").to_numpy()
    degree = np.bincount(store.column("edges/node__to__node", "src"), minlength=500)

    import duckdb

    with duckdb.connect() as database:
        rows = database.execute(f"select node_id, label, feat[3] from '{nodes}' order by node_id").fetchall()
        counts = database.execute(f"select src, count(*) from '{edges}' group by src").fetchall()
        joined = database.execute(
            f"select count(*) from '{nodes}' n join '{store.folder}/split/test/*.parquet' s using (node_id)"
        ).fetchone()
    assert [row[:2] for row in rows] == list(zip(range(500), label.tolist(), strict=True))
    np.testing.assert_array_equal(np.array([row[2] for row in rows], np.float32), feat[:, 2])
    assert dict(counts) == {int(i): int(n) for i, n in enumerate(degree) if n}
    assert joined == (len(split),)

    import polars as pl

    frame = pl.read_parquet(nodes)
    assert frame.columns == ["node_id", "feat", "label"]
    np.testing.assert_array_equal(np.array(frame["feat"].to_list(), np.float32), feat)
    np.testing.assert_array_equal(pl.read_parquet(edges)["dst"].to_numpy(), store.column("edges/node__to__node", "dst"))


def test_the_readme_names_every_column(ingest: Ingest) -> None:
    text = (Path(writer_module.__file__).parent / "README.md").read_text()
    node = ingest(name="synthetic", num_nodes=100, num_edges=300, feature_dim=8)
    link = ingest(name="synthetic", num_nodes=100, num_edges=300, feature_dim=8, task="link", num_negatives=10)
    for store in (node, link):
        for name, table in store.manifest.tables.items():
            pattern = name.replace("/node__to__node", "/SOURCE__RELATION__TARGET").replace("nodes/node", "nodes/TYPE")
            assert f"`{pattern}`" in text, name
            for column in table.columns:
                assert f"`{column}`" in text, column


def test_shards_and_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "GROUP_ROWS", 100)
    monkeypatch.setattr(writer_module, "SHARD_ROWS", 350)
    rng = np.random.default_rng(0)
    feat, ids = rng.standard_normal((1234, 3)).astype(np.float32), np.arange(1234)
    names = pa.array([f"é{i}" for i in ids])
    with DatasetWriter(tmp_path) as writer, writer.table("nodes/x") as table:
        at = 0
        for step in (1, 99, 0, 100, 777, 257):
            table.write({"node_id": ids[at : at + step], "feat": feat[at : at + step], "name": names[at : at + step]})
            at += step
    found = writer.tables["nodes/x"]
    assert found.shard_rows == (300, 300, 300, 300, 34)
    assert found.num_rows == 1234
    tables = [pq.read_table(tmp_path / shard) for shard in found.shards]
    np.testing.assert_array_equal(np.concatenate([matrix(t.column("feat")) for t in tables]), feat)
    assert pa.concat_tables(tables).column("name").to_pylist() == names.to_pylist()
    assert [pq.ParquetFile(tmp_path / s).num_row_groups for s in found.shards] == [3, 3, 3, 3, 1]
    metadata = pq.ParquetFile(tmp_path / found.shards[0]).metadata.row_group(0)
    assert [metadata.column(i).compression for i in range(3)] == ["LZ4", "ZSTD", "ZSTD"]
    assert "BYTE_STREAM_SPLIT" in metadata.column(1).encodings
    assert not any(metadata.column(i).has_dictionary_page for i in range(3))


def test_empty_tables_and_errors(tmp_path: Path) -> None:
    with DatasetWriter(tmp_path) as writer:
        writer.write("split/none", {"node_id": np.arange(0), "feat": np.empty((0, 4), np.float32)})
        with pytest.raises(ValueError, match="boom"):
            _fail_half_way(writer)
    assert list(writer.tables) == ["split/none"]
    read = pq.read_table(tmp_path / "split/none/00000.parquet")
    assert matrix(read.column("feat")).shape == (0, 4)


def _fail_half_way(writer: DatasetWriter) -> None:
    with writer.table("nodes/y") as table:
        table.write({"node_id": np.arange(3)})
        raise ValueError("boom")


def test_reader(ingest: Ingest) -> None:
    store = ingest(name="synthetic", num_nodes=300, num_edges=900, feature_dim=8)
    (ref,) = store.shards("edges/node__to__node")
    assert ref.sha256 == store.manifest.files["edges/node__to__node/00000.parquet"].sha256
    again = pickle.loads(pickle.dumps(ref))
    assert read_shard(again, ["dst"]).column_names == ["dst"]
    parts = list(iter_row_groups(ref, ["src"]))
    np.testing.assert_array_equal(
        np.concatenate([to_numpy(part.column("src")) for part in parts]), store.column("edges/node__to__node", "src")
    )
    assert "nodes/node" in store
    assert "nodes/other" not in store
    with pytest.raises(KeyError, match="it has edges/node__to__node, nodes/node"):
        store.read("nodes/other")
    fields = store.manifest.model_dump()
    fields["tables"]["edges/node__to__node"]["shard_rows"] = (901,)
    wrong = DatasetStore(store.folder, type(store.manifest)(**fields))
    with pytest.raises(IntegrityError, match="900 rows, the manifest says 901"):
        wrong.read("edges/node__to__node")


@pytest.mark.parametrize("count", [0, 1, 5000])
def test_edge_counts(count: int) -> None:
    rng = np.random.default_rng(count)
    src, dst = rng.integers(0, 40, (2, count)).astype(np.int32)
    check = EdgeCheck(40, 40)
    for start in range(0, count, 700):
        check.add(src[start : start + 700], dst[start : start + 700])
    assert check.num_self_loops == (src == dst).sum()
    assert check.num_duplicates == count - len({*zip(src.tolist(), dst.tolist(), strict=True)})


def test_edge_counts_stop_at_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.ingest.edges.MAX_COUNTED_EDGES", 100)
    check = EdgeCheck(10, 10)
    check.add(np.zeros(101, np.int32), np.ones(101, np.int32))
    assert check.num_duplicates == -1


Tables = dict[str, dict[str, Any]]
Change = Callable[[Tables, dict[str, Any]], object]


def node(name: str = "node", num_nodes: int = 9, dim: int = 2) -> NodeType:
    return NodeType(name=name, num_nodes=num_nodes, features=(FeatureColumn(column="feat", kind="numeric", dim=dim),))


def edge(num_edges: int = 9, target: str = "node") -> EdgeType:
    return EdgeType(source="node", relation="to", target=target, num_edges=num_edges)


def put(table: str, column: str, values: Any) -> Change:
    return lambda tables, fields: tables[table].update({column: np.asarray(values)})


def say(**given: Any) -> Change:
    return lambda tables, fields: fields.update(given)


def to_another_type(tables: Tables, fields: dict[str, Any]) -> None:
    tables["edges/node__to__b"] = tables[EDGES]
    fields["edge_types"] = [edge(target="b")]


def no_edges(tables: Tables, fields: dict[str, Any]) -> None:
    del tables[EDGES], fields["edge_types"]


EDGES, NODES, IDS = "edges/node__to__node", "nodes/node", np.arange(9, dtype=np.int32)
FLOATS = np.zeros((9, 1), np.float32)
WRONG: dict[str, tuple[str, Change, str]] = {
    "id too large": ("multiclass", put(EDGES, "dst", IDS + 1), "node__to__node (column dst): holds the id 9"),
    "id below 0": ("multiclass", put(EDGES, "src", IDS - 1), "node__to__node (column src): holds the id -1"),
    "ids as floats": ("multiclass", put(EDGES, "src", IDS * 1.0), "node (column src): holds double; ids are int32 or"),
    "num_edges": ("multiclass", say(edge_types=[edge(8)]), "node__to__node: has 9 rows, and num_edges says 8"),
    "num_nodes": ("multiclass", say(node_types=[node(num_nodes=7)]), "nodes/node: has 9 rows, and num_nodes says 7"),
    "no table": ("multiclass", say(node_types=[node(), node("b")]), "nodes/b: was not written, and num_nodes says 9"),
    "no edges": ("multiclass", no_edges, "edges/node__to__node: was not written"),
    "no nodes": ("multiclass", say(target_type="b"), "nodes/b: was not written"),
    "no type": ("multiclass", to_another_type, "__b (column dst): is of the node type 'b', which node_types do not"),
    "node_id": ("multiclass", put(NODES, "node_id", np.arange(9) + 1), "nodes/node (column node_id): holds the id 9"),
    "dim": ("multiclass", say(node_types=[node(dim=3)]), "(column feat): has 2 values a row, and its dim says 3"),
    "split": ("multiclass", say(splits={"train": 3, "valid": 3, "test": 4}), "split/test: has 3 rows, and"),
    "no classes": ("multiclass", say(num_classes=0), "nodes/node (column label): holds the class 2, and num_classes"),
    "few classes": ("multiclass", say(num_classes=2), "nodes/node (column label): holds the class 2, and num_classes"),
    "class below": ("multiclass", put(NODES, "label", np.arange(9) - 5), "label): holds the class -5; classes count"),
    "float classes": ("multiclass", put(NODES, "label", FLOATS), "(column label): holds fixed_size_list<element:"),
    "whole numbers": (
        "binary",
        lambda tables, fields: None,
        "label): holds int64; a binary label is an array (rows, 1)",
    ),
    "no binary": ("binary", put(NODES, "label", FLOATS + 2), "nodes/node (column label): holds 2, which is no 0 or 1"),
    "infinite": ("regression", put(NODES, "label", FLOATS + np.inf), "label): holds inf, which is no finite number"),
    "label gone": ("regression", lambda tables, fields: tables[NODES].pop("label"), "label): there is no such column"),
}


def ingested(work: Path, task_type: Any, change: Change) -> dict[str, Any]:
    tables: Tables = {
        NODES: {"node_id": np.arange(9), "label": np.arange(9) % 3, "feat": np.ones((9, 2), np.float32)},
        EDGES: {"src": IDS, "dst": IDS[::-1].copy()},
    }
    fields: dict[str, Any] = {"num_classes": 3, "node_types": [node()], "edge_types": [edge()]}
    change(tables, fields)
    with DatasetWriter(work) as writer:
        for name, columns in tables.items():
            writer.write(name, columns)
        for number, split in enumerate(("train", "valid", "test")):
            writer.write(f"split/{split}", {"node_id": np.arange(9)[number::3]})
    recipe: Any = SimpleNamespace(dataset=SimpleNamespace(name="mine"))
    return checked_fields(recipe, dataset_fields(writer, "mine", task_type, **fields), work)


@pytest.mark.parametrize("case", WRONG)
def test_tables_that_the_manifest_does_not_describe(tmp_path: Path, case: str) -> None:
    task_type, change, message = WRONG[case]
    with pytest.raises(DataError, match="^data set mine, table .*" + re.escape(message)):
        ingested(tmp_path, task_type, change)


@pytest.mark.parametrize(("task_type", "values"), [("regression", 2.5), ("binary", 1), ("regression", np.nan)])
def test_tables_as_the_manifest_says(tmp_path: Path, task_type: str, values: float) -> None:
    assert ingested(tmp_path, task_type, put(NODES, "label", FLOATS + np.float32(values)))["rows"] == 18
