"""What users' tables may hold besides clean rows: empty cells, repeated ids, unknown ends, columns of two meanings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from configs.errors import DataError, RecipeError
from configs.load import build_recipe
from tasks.ingest.tables.policies import RESERVED, stored_name
from tests.ingest.conftest import Ingest
from tests.ingest.small_tables import save, section

WORDS = ["NA", "null", "nan", "None", "N/A", "NULL", "NaN", "#N/A", "n/a", "DE"]


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet"])
def test_words_are_no_empty_cells_unless_named(ingest: Ingest, folder: Path, ending: str) -> None:
    """As ids, classes, categories, relations, in label and split files; the same in all formats."""
    table = pa.table({"id": WORDS, "y": WORDS, "c": WORDS, "part": ["train"] * 6 + ["valid", "NA", "test", ""]})
    save(f"n.{ending}", table)
    save(f"e.{ending}", pa.table({"src": WORDS[:3], "dst": WORDS[3:6], "how": ["NA", "null", "is"]}))
    save(f"l.{ending}", pa.table({"id": WORDS, "label": WORDS}))
    for name, ids in (("train", WORDS[:6]), ("valid", WORDS[6:8]), ("test", WORDS[8:])):
        Path(f"{name}.csv").write_text("".join(f"{word}\n" for word in ids))
    by_files = {"by": "files", "files": {name: f"{name}.csv" for name in ("train", "valid", "test")}}
    edges = {"files": f"e.{ending}", "relation_column": "how"}
    nodes = {"files": f"n.{ending}", "categorical": "c"}
    for place in ({"nodes": {**nodes, "label": "y"}}, {"nodes": nodes, "labels": {"files": f"l.{ending}"}}):
        store = ingest(**section(edges=edges, split=by_files, **place))
        assert store.read("ids/node").column("original_id").to_pylist() == WORDS
        assert store.read("classes").column("name").to_pylist() == sorted(WORDS)
        assert store.read("categories/node/c").column("name").to_pylist() == sorted(WORDS)
        assert [t.relation for t in store.manifest.edge_types] == ["NA", "null", "is"]
    named = {**nodes, "label": "y", "missing_values": ["", "NA", "null"]}
    with pytest.raises(DataError, match=rf"n\.{ending} \(row 0, column id\): the id is missing \(2 such rows\)"):
        ingest(**section(nodes=named, edges=edges, split=by_files))
    save(f"n.{ending}", table.set_column(0, "id", pa.array([*"ab", *WORDS[2:]])))
    save(f"e.{ending}", pa.table({"src": ["a"], "dst": ["b"]}))
    by_column = {"by": "column", "column": "part"}
    with pytest.raises(DataError, match=r"unknown split 'NA'"):
        ingest(**section(nodes={**named, "missing_values": ""}, edges={"files": f"e.{ending}"}, split=by_column))
    with pytest.raises(DataError, match=r"2 of 6 nodes of the train split have no label, such as node 'a'"):
        ingest(**section(nodes=named, edges={"files": f"e.{ending}"}, split=by_column))


def write_gaps(name: str) -> None:
    """Twelve nodes; x is empty in every third, c in the first."""
    x = [None if i % 3 == 0 else float(i) for i in range(12)]
    columns: dict[str, Any] = {"id": list(range(12)), "x": x, "c": [None, *"abcabcabcab"], "y": list("ab" * 6)}
    if name.endswith(".parquet"):
        columns["v"] = [None if i == 5 else [1.0, float(i)] for i in range(12)]
    save(name, pa.table(columns))
    save("e.csv", pa.table({"src": [0, 1], "dst": [2, 11]}))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_empty_cells_of_features(ingest: Ingest, folder: Path, ending: str) -> None:
    write_gaps(f"n.{ending}")
    nodes: dict[str, Any] = {"files": f"n.{ending}", "features": ["x"], "categorical": ["c"], "label": "y"}
    with pytest.raises(DataError, match=r"\(row 0, column x\): the cell is empty; missing: {x: zero} .* \(4 such"):
        ingest(**section(nodes=nodes))
    with pytest.raises(DataError, match=r"\(row 0, column c\): the cell is empty; missing: {c: category} makes"):
        ingest(**section(nodes={**nodes, "missing": {"x": "zero", "c": "error"}}))
    empty = np.arange(12) % 3 == 0
    for policy in ("zero", "mean"):
        store = ingest(**section(nodes={**nodes, "missing": policy}))
        gaps = {f.column: f.gaps for f in store.manifest.node_types[0].features}
        assert gaps == {"x": policy == "mean", "x_missing": False, "c": False}
        x = store.column("nodes/node", "x")
        assert (np.isnan(x) if policy == "mean" else x == 0).tolist() == empty.tolist()
        assert store.column("nodes/node", "x_missing").tolist() == empty.tolist()
        assert store.manifest.adjusted == {f"n.{ending}: empty cells of x filled": 4}
    if ending == "parquet":
        lists = ingest(**section(nodes={**nodes, "features": ["v"], "missing": "zero"}))
        assert lists.column("nodes/node", "v")[[4, 5, 6]].tolist() == [[1, 4], [0, 0], [1, 6]]
        assert np.flatnonzero(lists.column("nodes/node", "v_missing")).tolist() == [5]


def test_empty_cells_of_edge_features(ingest: Ingest, folder: Path) -> None:
    write_gaps("n.csv")
    Path("e.csv").write_text("src,dst,f\n0,1,2\n1,2,\n2,3,nan\n")
    store = ingest(**section(edges={"files": "e.csv", "features": "f", "missing": "zero"}))
    assert store.column("edges/node__to__node", "f").tolist() == [2, 0, 0]
    assert store.column("edges/node__to__node", "f_missing").tolist() == [0, 1, 1]


@pytest.mark.parametrize("policy", ["first", "last"])
@pytest.mark.parametrize("size", [1, 20_000])
def test_repeated_ids(ingest: Ingest, folder: Path, policy: str, size: int) -> None:
    """Also where the rows of an id are batches apart; labels, splits, times and features are of one row."""
    ids = [*(f"n{i}" for i in range(9 * size)), "n0", "n5", "n0"]
    n = len(ids)
    part = np.array(["train", "valid", "test"])[np.arange(n) % 3]
    columns = {"id": ids, "x": np.arange(n) / 2, "y": [f"c{i % 4}" for i in range(n)], "t": np.arange(n), "part": part}
    save("n.parquet", pa.table(columns))
    save("e.csv", pa.table({"src": ["n0"], "dst": ["n5"]}))
    nodes = {"files": "n.parquet", "label": "y", "features": "x", "time": "t"}
    split = {"by": "column", "column": "part"}
    with pytest.raises(DataError, match=rf"\(row {9 * size}, column id\): the id 'n0' stands .* \(3 such rows\)"):
        ingest(**section(nodes=nodes, split=split))
    store = ingest(**section(nodes={**nodes, "on_duplicate_id": policy}, split=split))
    rows: dict[str, int] = {}
    for row, one in enumerate(ids):
        if policy == "last" or one not in rows:
            rows[one] = row
    wanted = sorted(rows.values())
    assert store.read("ids/node").column("original_id").to_pylist() == [ids[row] for row in wanted]
    assert store.column("nodes/node", "x").tolist() == [row / 2 for row in wanted]
    assert store.column("nodes/node", "time").tolist() == wanted
    assert store.column("nodes/node", "label").tolist() == [row % 4 for row in wanted]
    assert store.column("split/valid", "node_id").tolist() == [i for i, row in enumerate(wanted) if row % 3 == 1]
    place = {one: store.read("ids/node").column("original_id").to_pylist().index(one) for one in ("n0", "n5")}
    assert store.read("edges/node__to__node").to_pydict() == {"src": [place["n0"]], "dst": [place["n5"]]}
    assert store.manifest.adjusted == {"n.parquet: rows of a repeated id dropped": 3}
    assert "3 rows are left out" in store.manifest.warnings[0]


@pytest.mark.parametrize("dense", [True, False])
def test_unknown_ends(ingest: Ingest, folder: Path, dense: bool) -> None:
    ids = list(range(10)) if dense else [100 + i for i in range(10)]
    save("n.csv", pa.table({"id": ids, "x": [float(i) for i in range(10)], "y": list("ab" * 5)}))
    edges = {"src": [ids[0], 500, ids[2], 501], "dst": [ids[1], ids[1], 500, 501], "w": [1, 2, 3, 4]}
    save("e.csv", pa.table(edges))
    given: dict[str, Any] = {"files": "e.csv", "weight": "w"}
    nodes = {"files": "n.csv", "features": "x", "label": "y"}
    with pytest.raises(DataError, match=r"row 1, column src\): .*\(2 such rows\)\n.*row 2, column dst\): .*500"):
        ingest(**section(edges=given))
    dropped = ingest(**section(edges={**given, "on_unknown_id": "drop"}, nodes=nodes))
    assert dropped.read("edges/node__to__node").to_pydict() == {"src": [0], "dst": [1], "weight": [1]}
    assert dropped.manifest.adjusted == {"e.csv: edges with an unknown end dropped": 3}
    assert "3 edges are left out" in dropped.manifest.warnings[0]
    with pytest.raises(DataError, match=r"n\.csv: 2 node nodes that only edges name have no features; set nodes\.m"):
        ingest(**section(edges={**given, "on_unknown_id": "add"}, nodes=nodes))
    added = ingest(**section(edges={**given, "on_unknown_id": "add"}, nodes={**nodes, "missing": "zero"}))
    pairs = added.read("edges/node__to__node").select(["src", "dst"]).to_pydict()
    assert pairs == {"src": [0, 10, 2, 11], "dst": [1, 1, 10, 11]}
    assert added.read("ids/node").column("original_id").to_pylist() == [*ids, 500, 501]
    assert added.column("nodes/node", "label")[10:].tolist() == [-1, -1]
    assert added.column("nodes/node", "x_missing").tolist() == [0] * 10 + [1, 1]
    assert added.manifest.adjusted["n.csv: nodes that only edges name added"] == 2
    assert any("2 node ids" in text for text in added.manifest.warnings)


def test_lists_of_a_fixed_length_of_which_one_is_missing(ingest: Ingest, folder: Path) -> None:
    lists = {"v": [[1.0, 2.0]] * 10, "w": [[1.0, 2.0]] * 4 + [None] + [[3.0, 4.0]] * 5}
    columns = {name: pa.array(values, pa.list_(pa.float32(), 2)) for name, values in lists.items()}
    save("n.parquet", pa.table({"id": list(range(10)), "y": list("ab" * 5), **columns}))
    save("e.csv", pa.table({"src": [0], "dst": [1]}))
    nodes = {"files": "n.parquet", "label": "y", "features": ["v", "w"], "missing": "zero"}
    with pytest.raises(DataError, match=r"n\.parquet: a list is missing.*store it as lists of any length"):
        ingest(**section(nodes=nodes))


@pytest.mark.parametrize("files", [["e.csv", "./e.csv"], ["e*.csv", "e.csv"], ["e.csv", "link.csv"]])
def test_a_file_named_twice(ingest: Ingest, folder: Path, files: list[str]) -> None:
    save("n.csv", pa.table({"id": list(range(10)), "y": list("ab" * 5)}))
    save("e.csv", pa.table({"src": [0, 1], "dst": [1, 2]}))
    Path("link.csv").symlink_to("e.csv")
    with pytest.raises(DataError, match=r"(e|link)\.csv: is named twice in the files of one table"):
        ingest(**section(edges={"files": files}))


def test_names_of_stored_columns_differ(ingest: Ingest, folder: Path) -> None:
    names = [f"{word}{'_' * count}" for word in (*RESERVED, "x", "id") for count in range(4)]
    assert len({stored_name(name) for name in names}) == len(names)
    assert not {stored_name(name) for name in names} & RESERVED
    columns = {name: [float(i + row) for row in range(10)] for i, name in enumerate(("label", "label_", "node_id"))}
    save("n.parquet", pa.table({"id": list(range(10)), "y": list("ab" * 5), **columns}))
    save("e.csv", pa.table({"src": [0], "dst": [1], "src_": [1.0], "label": [2.0]}))
    nodes = {"files": "n.parquet", "label": "y", "features": list(columns)}
    store = ingest(**section(nodes=nodes, edges={"files": "e.csv", "features": ["src_", "label"]}))
    for name, values in columns.items():
        assert store.column("nodes/node", stored_name(name)).tolist() == values
    assert store.read("edges/node__to__node").to_pydict() == {"src": [0], "dst": [1], "src__": [1.0], "label_": [2.0]}


MEANINGS: list[tuple[str, dict[str, Any], str]] = [
    ("nodes", {"features": ["x", "x"]}, "column 'x' is listed twice"),
    ("nodes", {"features": "x", "categorical": "x"}, "column 'x' is listed twice"),
    ("nodes", {"features": ["y"]}, "'y' is named as label and as a feature; a model that reads the label"),
    ("nodes", {"label": ["y", "y"]}, "column 'y' is named twice"),
    ("nodes", {"time": "y"}, "'y' is named as time and as label"),
    ("nodes", {"features": ["x", "x_missing"], "missing": "zero"}, "the name of the one that says where 'x' is empty"),
    ("nodes", {"features": "x", "missing": "category"}, "category is for columns of categories, and 'x' is one of num"),
    ("nodes", {"categorical": "c", "missing": {"c": "mean"}}, "mean is for columns of numbers, and 'c' holds categ"),
    ("nodes", {"features": "x", "missing": {"z": "mean"}}, "missing names 'z', which is neither"),
    ("nodes", {"time_format": "%Y"}, "time_format without a column `time`"),
    ("nodes", {"time": "t", "time_format": "%d.%m"}, "time_format '%d.%m' does not say which year"),
    ("nodes", {"time": "t", "time_format": "%Y, %d"}, "'%Y, %d' does not say which year and day"),
    ("nodes", {"time": "t", "time_format": "%Y-W%W"}, "'%Y-W%W' does not say which year and day"),
    ("nodes", {"time": "t", "time_format": "%c %Y"}, "'%c %Y' cannot be read (redefinition of group"),
    ("nodes", {"time": "t", "time_format": "%d.%m.%Y %Q"}, "cannot be read ('Q' is a bad directive"),
    ("edges", {"time": "t", "time_format": "%d.%m.%Y %"}, "cannot be read (stray %"),
    ("edges", {"time": "t", "time_format": "%d.%m.%Y %Z"}, "%Z, a zone's name, depends on the machine"),
    ("nodes", {"missing": "men"}, "nodes.0.missing: unknown word 'men' (did you mean 'mean'?); known: error, mean,"),
    (
        "nodes",
        {"features": "x", "missing": {"x": "zeroo"}},
        "unknown word 'zeroo' of column 'x' (did you mean 'zero'?)",
    ),
    ("edges", {"missing": 0}, "edges.0.missing: 0 is neither one of error, mean, zero, category nor columns with one"),
    ("nodes", {"on_duplicate_id": "first", "id": None}, "on_duplicate_id needs a column `id`"),
    ("nodes", {"missing_values": [None]}, "None is not a text; quote it"),
    ("edges", {"target": "src"}, "'src' is named as source and as target"),
    ("edges", {"features": ["dst"]}, "'dst' is named as target and as a feature"),
    ("edges", {"relation_column": "src"}, "'src' is named as source and as relation_column"),
    ("edges", {"features": "f", "missing": "mean"}, "mean is for features of nodes"),
]


@pytest.mark.parametrize(("part", "change", "message"), MEANINGS)
def test_columns_that_mean_two_things(part: str, change: dict[str, Any], message: str) -> None:
    base = {"nodes": {"files": "n.csv", "label": "y"}, "edges": {"files": "e.csv"}}
    dataset = {"name": "tables", **base, part: {**base[part], **change}}
    with pytest.raises(RecipeError) as caught:
        build_recipe({"name": "x", "dataset": dataset, "model": {"name": "graphsage"}})
    assert message in str(caught.value)


@pytest.mark.parametrize("column", ["time", "feature_file"])
def test_nodes_that_cannot_be_made_up(column: str) -> None:
    nodes, edges = {"files": "n.csv", "label": "y", column: "t"}, {"files": "e.csv", "on_unknown_id": "add"}
    dataset = {"name": "tables", "nodes": nodes, "edges": edges}
    with pytest.raises(RecipeError, match=f"on_unknown_id: add cannot make up {column} of node nodes"):
        build_recipe({"name": "x", "dataset": dataset, "model": {"name": "graphsage"}})


@pytest.mark.parametrize("kind", [pa.int64(), pa.float32(), pa.float64(), pa.int16()])
@pytest.mark.parametrize("ending", ["csv", "parquet", "txt"])
def test_numbers_that_stand_for_empty_cells(ingest: Ingest, folder: Path, ending: str, kind: pa.DataType) -> None:
    values = [1, -999, 2, 3, 4, 5, 6, 7, 8, 9]
    columns = {"0": pa.array(range(10)), "1": pa.array(values, kind), "2": pa.array(values[::-1], kind)}
    if ending == "txt":
        rows = zip(*(column.to_pylist() for column in columns.values()), strict=True)
        Path("n.txt").write_text("".join("{} {:g} {:g}\n".format(*row) for row in rows))
    else:
        save(f"n.{ending}", pa.table(columns))
    save("e.csv", pa.table({"src": [0], "dst": [1]}))
    words = {"missing": "zero", "missing_values": ["", "NA", "-999"]}
    nodes = {"files": f"n.{ending}", "id": "0", "label": "1", "features": "2", **words}
    store = ingest(**section(nodes=nodes, task_type="regression"))
    np.testing.assert_array_equal(store.column("nodes/node", "label").ravel(), [1, np.nan, *range(2, 10)])
    np.testing.assert_array_equal(store.column("nodes/node", "2"), [9, 8, 7, 6, 5, 4, 3, 2, 0, 1])
    assert store.column("nodes/node", "2_missing").tolist() == [0] * 8 + [1, 0]
    nodes = {"files": f"n.{ending}", "id": "0", "label": "1", "categorical": "2", "missing_values": ["", "-999"]}
    if ending == "parquet" and pa.types.is_integer(kind):
        store = ingest(**section(nodes=nodes, task_type="regression"))
        assert store.read("categories/node/2").column("name").to_pylist() == ["", *"123456789"]


@pytest.mark.parametrize(("policy", "classes"), [("last", ["A", "B"]), ("first", ["A", "B", "C"])])
def test_classes_of_rows_that_were_dropped(ingest: Ingest, folder: Path, policy: str, classes: list[str]) -> None:
    """A class that no node has is none."""
    save("n.csv", pa.table({"id": [0, *range(12)], "y": ["C", *("AB" * 6)]}))
    save("e.csv", pa.table({"src": [0], "dst": [1]}))
    store = ingest(**section(nodes={"files": "n.csv", "label": "y", "on_duplicate_id": policy}))
    assert store.read("classes").column("name").to_pylist() == classes
    assert store.manifest.num_classes == len(classes)
    labels = store.column("nodes/node", "label")
    assert sorted(set(labels.tolist())) == list(range(len(classes)))


NESTED = [[[0]] * 3, [{"a": 1}] * 3, [[("k", 1)]] * 3]
KINDS = [pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.map_(pa.string(), pa.int64())]


@pytest.mark.parametrize(("cells", "kind"), zip(NESTED, KINDS, strict=True))
def test_relations_are_plain_values(ingest: Ingest, folder: Path, cells: list[Any], kind: pa.DataType) -> None:
    save("n.csv", pa.table({"id": list(range(10)), "y": list("ab" * 5)}))
    save("e.parquet", pa.table({"src": [0, 1, 2], "dst": [1, 2, 3], "r": pa.array(cells, kind)}))
    with pytest.raises(DataError, match=r"e\.parquet \(column r\): holds .*; relations are texts or whole numbers"):
        ingest(**section(edges={"files": "e.parquet", "relation_column": "r"}))


@pytest.mark.parametrize("ending", ["csv", "parquet", "txt"])
def test_nodes_that_have_rows_only(ingest: Ingest, folder: Path, ending: str) -> None:
    if ending == "txt":
        Path("n.txt").write_text("7 8\n" * 10)
    else:
        save(f"n.{ending}", pa.table({"a": [7] * 10}))
    save("e.csv", pa.table({"src": [0], "dst": [9]}))
    save("l.csv", pa.table({"id": list(range(10)), "y": list("ab" * 5)}))
    np.save("x.npy", np.ones((10, 2), np.float32))
    nodes = {"files": f"n.{ending}", "id": None, "feature_file": "x.npy"}
    store = ingest(**section(nodes=nodes, labels={"files": "l.csv", "label": "y"}))
    assert store.manifest.num_nodes == 10


def test_ids_that_are_numbers_by_their_place_beside_texts(ingest: Ingest, folder: Path) -> None:
    """`text_ids` is for ids of the user's own; nodes that are counted have none."""
    save("p.csv", pa.table({"id": ["7", "07", "x"], "f": [1.0, 2.0, 3.0]}))
    save("l.csv", pa.table({"id": list(range(10)), "y": list("ab" * 5)}))
    save("e.csv", pa.table({"src": [0, 1, 2], "dst": ["07", "7", "x"]}))
    ends = {"source_type": "u", "target_type": "p", "relation": "r"}
    tables = [{"type": "u", "count": 10}, {"type": "p", "files": "p.csv", "features": "f"}]
    labels = {"files": "l.csv", "label": "y"}
    edges = {"files": "e.csv", **ends}
    store = ingest(**section(nodes=tables, labels=labels, edges=edges, text_ids=True, target_type="u"))
    edges = store.read("edges/u__r__p").to_pydict()
    ids = store.read("ids/p").column("original_id").to_pylist()
    assert edges["src"] == [0, 1, 2]
    assert [ids[dst] for dst in edges["dst"]] == ["07", "7", "x"]


def test_a_missing_end_counts_once(ingest: Ingest, folder: Path) -> None:
    """Also where the edges are read twice, to know their ids first."""
    save("l.csv", pa.table({"id": list(range(10)), "y": list("ab" * 5)}))
    Path("e.csv").write_text("src,dst\n" + "".join(f"{i},{(i + 1) % 10}\n" for i in range(10)) + "1,\n")
    with pytest.raises(DataError) as caught:
        ingest(**section(nodes=[], labels={"files": "l.csv", "label": "y"}))
    assert str(caught.value) == "e.csv (row 10, column dst): the id is missing"
