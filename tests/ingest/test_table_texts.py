"""Columns of texts of users' tables, wherever rows are sorted, dealt or left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from configs.errors import DataError
from tasks.readers.limits import MAX_CELL_BYTES
from tests.ingest.conftest import Ingest
from tests.ingest.small_tables import save, section
from tests.ingest.test_table_graphs import NODES
from tests.ingest.test_table_graphs import section as graph_section

N = 40
MEMOS: list[str | None] = [f"memo {i} é中" if i % 5 else None for i in range(N)]


def write(ending: str, **edges: Any) -> None:
    save(f"n.{ending}", pa.table({"id": range(N), "y": ["a", "b"] * (N // 2), "memo": MEMOS}))
    columns: dict[str, Any] = {"src": range(N), "dst": [(i + 1) % N for i in range(N)], "note": MEMOS[::-1]}
    save(f"e.{ending}", pa.table(columns | edges))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_texts_of_nodes_and_edges(ingest: Ingest, folder: Path, ending: str) -> None:
    write(ending)
    nodes = {"files": f"n.{ending}", "label": "y", "texts": ["memo"]}
    store = ingest(**section(nodes=nodes, edges={"files": f"e.{ending}", "texts": ["note"]}))
    table = store.read("nodes/node", ["memo"])["memo"]
    assert table.type == pa.large_string()
    assert table.to_pylist() == [text or "" for text in MEMOS]
    assert store.read("edges/node__to__node", ["note"])["note"].to_pylist() == [text or "" for text in MEMOS[::-1]]
    assert [one.kind for one in store.manifest.node_types[0].features] == ["text"]


def test_texts_follow_their_rows(ingest: Ingest, folder: Path) -> None:
    """Edges of relations and of splits; nodes that stand twice, and those that only edges name."""
    write("parquet", kind=["x", "y", "y", "x"] * (N // 4))
    edges = {"files": "e.parquet", "texts": ["note"], "relation_column": "kind"}
    store = ingest(**section(nodes={"files": "n.parquet", "label": "y"}, edges=edges))
    for relation, rows in (("x", [0, 3]), ("y", [1, 2])):
        table = store.read(f"edges/node__{relation}__node", ["src", "note"])
        assert table["note"].to_pylist() == [MEMOS[::-1][src] or "" for src in table["src"].to_pylist()]
        assert {src % 4 for src in table["src"].to_pylist()} == set(rows)
    link = {"files": "e.parquet", "texts": ["note"]}
    store = ingest(**section(task="link", nodes={"files": "n.parquet", "texts": ["memo"]}, edges=link))
    table = store.read("edges/node__to__node", ["src", "note"])
    assert 0 < table.num_rows < N
    assert table["note"].to_pylist() == [MEMOS[::-1][src] or "" for src in table["src"].to_pylist()]
    twice = pa.table({"id": [*range(N), 3], "y": ["a", "b"] * (N // 2) + ["a"], "memo": [*MEMOS, "another"]})
    save("n.parquet", twice.slice(5))
    nodes = {"files": "n.parquet", "label": "y", "texts": ["memo"], "on_duplicate_id": "last"}
    store = ingest(**section(nodes=nodes, edges={"files": "e.parquet", "on_unknown_id": "add"}))
    ids = store.read("ids/node")["original_id"].to_pylist()
    expected = {i: (MEMOS[i] or "") if i >= 5 else "another" if i == 3 else "" for i in range(N)}
    assert dict(zip(ids, store.read("nodes/node", ["memo"])["memo"].to_pylist(), strict=True)) == expected


def test_texts_of_many_graphs_are_sorted_with_their_nodes(ingest: Ingest, folder: Path) -> None:
    order = np.random.default_rng(0).permutation(8)
    nodes = {name: [values[i] for i in order] for name, values in NODES.items()} | {"memo": [f"t{i}" for i in order]}
    options = graph_section(folder, {"nodes": nodes}, nodes={"texts": ["memo"], "features": []})
    store = ingest(**options)
    assert sorted(store.read("nodes/node", ["memo"])["memo"].to_pylist()) == [f"t{i}" for i in range(8)]
    kept = [NODES["graph"][int(text[1:])] for text in store.read("nodes/node", ["memo"])["memo"].to_pylist()]
    assert kept == NODES["graph"]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_only_texts_may_be_long(ingest: Ingest, folder: Path, ending: str) -> None:
    write(ending, note=["x" * (MAX_CELL_BYTES + 5), *MEMOS[1:]])
    nodes = {"files": f"n.{ending}", "label": "y"}
    store = ingest(**section(nodes=nodes, edges={"files": f"e.{ending}", "texts": ["note"]}))
    lengths = [len(text) for text in store.read("edges/node__to__node", ["note"])["note"].to_pylist()]
    assert max(lengths) == MAX_CELL_BYTES // 4
    with pytest.raises(DataError, match=r"column note.*the text has 65,541 bytes"):
        ingest(**section(nodes=nodes, edges={"files": f"e.{ending}", "categorical": ["note"]}))
