"""Columns, types and relations may be called anything: nothing is written outside, none is taken for another."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from configs.errors import DataError
from tasks.ingest.tables.policies import stored_name
from tasks.storage.home import Home
from tests.ingest.conftest import Ingest
from tests.ingest.ogb_folders import mag_folder, put

HOSTILE = ["../../../../../pwned", "/tmp/pwned", "..", "a/b", "a/00000.parquet", "x" * 300, "a b", "größe", "a\tb"]
NUM = 20


@pytest.fixture
def tables(folder: Path) -> dict[str, Any]:
    (folder / "e.csv").write_text("src,dst\n" + "".join(f"{i},{(i + 1) % NUM}\n" for i in range(NUM)))
    write_nodes(folder, "kind")
    return {"name": "tables", "nodes": {"files": "n.csv", "label": "label"}, "edges": {"files": "e.csv"}}


def write_nodes(folder: Path, *columns: str) -> None:
    cells = ("".join(f",k{(i + at) % 3}" for at in range(len(columns))) for i in range(NUM))
    rows = "".join(f"{i},{i % 2}{kinds}\n" for i, kinds in enumerate(cells))
    (folder / "n.csv").write_text(",".join(["id", "label", *columns]) + "\n" + rows)


def files_of(place: Path) -> set[Path]:
    return {path for path in place.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_column_s_name_leads_nowhere(
    ingest: Ingest, folder: Path, tmp_path: Path, home: Home, tables: dict[str, Any], name: str
) -> None:
    write_nodes(folder, name)
    before = files_of(tmp_path)
    store = ingest(**{**tables, "nodes": {**tables["nodes"], "categorical": [name]}})
    assert all(path.is_relative_to(home.root) for path in files_of(tmp_path) - before)
    assert not Path("/tmp/pwned").exists()
    assert store.read(f"categories/node/{name}").column("name").to_pylist() == ["k0", "k1", "k2"]
    assert store.read("nodes/node").column(name).to_pylist()[:4] == [0, 1, 2, 0]


def test_columns_whose_names_look_alike_stay_apart(ingest: Ingest, folder: Path, tables: dict[str, Any]) -> None:
    names = ["a/b", "a b", "a_b", "a", "a/00000.parquet"]
    write_nodes(folder, *names)
    store = ingest(**{**tables, "nodes": {**tables["nodes"], "categorical": names}})
    folders = {path.parent for name in names for path in map(Path, store.table(f"categories/node/{name}").shards)}
    assert len(folders) == len(names)
    for at, name in enumerate(names):
        found = store.read(f"categories/node/{name}").column("name").to_pylist()
        assert found[store.column("nodes/node", stored_name(name))[0]] == f"k{at % 3}"


def test_relations_whose_names_look_alike_are_several_tables(
    ingest: Ingest, folder: Path, tables: dict[str, Any]
) -> None:
    names = ["a b", "a_b", "a/b", "../a_b", "A_b", "x" * 300, "x" * 301]
    rows = "".join(f"{at},{at + 1},{name}\n" * (at + 1) for at, name in enumerate(names))
    (folder / "e.csv").write_text("src,dst,how\n" + rows)
    store = ingest(**{**tables, "edges": {"files": "e.csv", "relation_column": "how"}})
    assert [kind.num_edges for kind in store.manifest.edge_types] == list(range(1, len(names) + 1))
    for at, kind in enumerate(store.manifest.edge_types):
        assert store.column(f"edges/{kind.name}", "src").tolist() == [at] * (at + 1)
    assert len({Path(shard).parent for table in store.manifest.tables.values() for shard in table.shards}) == len(
        store.manifest.tables
    )


def test_types_that_read_alike_side_by_side_are_several_tables(
    ingest: Ingest, folder: Path, tables: dict[str, Any]
) -> None:
    """`a__b` `c` and `a` `b__c` both make `a__b__c`."""
    (folder / "m.csv").write_text("id\n0\n1\n2\n3\n")
    (folder / "f.csv").write_text("src,dst\n0,1\n")
    (folder / "g.csv").write_text("src,dst\n2,3\n1,2\n")
    nodes = [tables["nodes"], *({"files": "m.csv", "type": kind} for kind in ("a", "a__b"))]
    edges = [{"files": "f.csv", "source_type": "a", "relation": "b__c"}]
    edges += [{"files": "g.csv", "source_type": "a__b", "relation": "c"}]
    store = ingest(**{**tables, "nodes": nodes, "edges": edges, "target_type": "node"})
    read = [store.read(f"edges/{kind.name}").column("src").to_pylist() for kind in store.manifest.edge_types]
    assert read == [[0], [2, 1]]


@pytest.mark.parametrize("name", ["../../../../../evil", "..", "/tmp/evil", "x" * 300])
def test_a_type_that_names_no_folder_is_refused(ingest: Ingest, folder: Path, home: Home, name: str) -> None:
    """OGB's layout has a folder a type: neither is anything read nor written elsewhere."""
    mag_folder(folder / "mine")
    for file in ("num-node-dict.csv.gz", "triplet-type-list.csv.gz", "nodetype-has-label.csv.gz"):
        path = folder / "mine/raw" / file
        put(path, gzip.decompress(path.read_bytes()).decode().replace("author", name))
    with pytest.raises(DataError, match=r"num-node-dict\.csv\.gz \(column 0\): the node type .* cannot name a folder"):
        ingest(name="ogb", dataset="mine", root=str(folder), task="node", num_classes=9)
    assert not home.artifacts.exists()


def test_a_relation_that_leads_elsewhere_is_refused(ingest: Ingest, folder: Path) -> None:
    mag_folder(folder / "mine")
    put(folder / "mine/raw/triplet-type-list.csv.gz", "author,writes/../../../../x,paper\n")
    with pytest.raises(DataError, match=r"triplet-type-list\.csv\.gz \(row 0\): the edge type .* cannot name a folder"):
        ingest(name="ogb", dataset="mine", root=str(folder), task="node", num_classes=9)
