"""Every bad input that ingest refuses, with what the message must name. `-rA` prints the messages."""

# ruff: noqa: E501 -- one line a mistake reads as a table

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from configs.errors import UserError
from tests.ingest.conftest import Ingest
from tests.ingest.ogb_folders import link_folder, mag_folder, molecules_folder, node_folder, papers_folder, put

Damage = Callable[[Path], object]


def cut(path: Path, size: int = 15) -> None:
    path.write_bytes(path.read_bytes()[:-size])


def text(name: str, content: str) -> Damage:
    return lambda folder: put(folder / name, content)


def npz(folder: Path, **arrays: Any) -> None:
    with np.load(folder / "raw/data.npz") as data:
        np.savez(folder / "raw/data.npz", **{**dict(data), **arrays})


def replace_line(name: str, line: int, new: str) -> Damage:
    def change(folder: Path) -> None:
        lines = gzip.decompress((folder / name).read_bytes()).decode().splitlines()
        lines[line] = new
        put(folder / name, "\n".join(lines) + "\n")

    return change


EDGE, FEAT, LABEL = "raw/edge.csv.gz", "raw/node-feat.csv.gz", "raw/node-label.csv.gz"
TEST, VALID = "split/time/test.csv.gz", "split/time/valid.csv.gz"

# What is wrong, how it is made, what the message says.
NODE_FOLDERS: list[tuple[str, Damage, str]] = [
    ("edge id too large", replace_line(EDGE, 7, "3,12"), r"edge\.csv\.gz \(row 7, column 1\): node id 12 is not in 0\.\.11"),
    ("edge id negative", replace_line(EDGE, 0, "-1,2"), r"edge\.csv\.gz \(row 0, column 0\): node id -1"),
    ("edge id missing", replace_line(EDGE, 4, "3,"), r"edge\.csv\.gz \(row 4, column 1\): the cell is empty"),
    ("edge id a word", replace_line(EDGE, 4, "a,1"), r"\(row 4, column 0\): 'a' is not an integer"),
    ("edge id a fraction", replace_line(EDGE, 4, "1.5,1"), r"\(row 4, column 0\): '1\.5' is not an integer"),
    ("edge id beyond int64", replace_line(EDGE, 4, "99999999999999999999,1"), r"\(row 4, column 0\): .* does not fit"),
    ("edge with three columns", replace_line(EDGE, 9, "1,2,3"), r"\(row 9\): the row has 3 columns, the others have 2"),
    ("edge with one column", replace_line(EDGE, 9, "1"), r"\(row 9\): the row has 1 columns"),
    ("features NaN", replace_line(FEAT, 5, "0,nan,0,0"), r"node-feat\.csv\.gz \(row 5, column 1\): nan is not a finite"),
    ("features Inf", replace_line(FEAT, 5, "0,0,-inf,0"), r"node-feat\.csv\.gz \(row 5, column 2\): -inf is not a finite"),
    ("features empty", replace_line(FEAT, 5, "0,0,,0"), r"\(row 5, column 2\): the cell is empty"),
    ("features overflow", replace_line(FEAT, 5, "0,0,1e39,0"), r"\(row 5, column 2\): 1e\+39 does not fit float32"),
    ("features ragged", replace_line(FEAT, 5, "0,0,1"), r"\(row 5\): the row has 3 columns, the others have 4"),
    ("label too large", replace_line(LABEL, 3, "3"), r"node-label\.csv\.gz \(row 3, column 0\): label 3 is not 0\.\.2"),
    ("label negative", replace_line(LABEL, 3, "-2"), r"\(row 3, column 0\): label -2"),
    ("label a fraction", replace_line(LABEL, 3, "1.5"), r"\(row 3, column 0\): label 1\.5"),
    ("node without label in a split", replace_line(LABEL, 3, "nan"), r"1 of 6 nodes of the train split have no label.*node 3"),
    ("count of nodes disagrees", text("raw/num-node-list.csv.gz", "13\n"), r"node-feat\.csv\.gz: has 12 rows, num-node-list\.csv\.gz says 13"),
    ("count of nodes below", text("raw/num-node-list.csv.gz", "11\n"), r"has 12 rows, num-node-list\.csv\.gz says 11"),
    ("count of edges disagrees", text("raw/num-edge-list.csv.gz", "29\n"), r"edge\.csv\.gz: has 30 rows, num-edge-list says 29"),
    ("several graphs", text("raw/num-node-list.csv.gz", "6\n6\n"), r"counts edges of 1 graphs, .* nodes of 2"),
    ("years too few", text("raw/node_year.csv.gz", "2000\n"), r"node_year\.csv\.gz: has 1 rows"),
    ("a weight below 0", text("raw/edge_weight.csv.gz", "1\n" * 29 + "-1\n"), r"edge_weight\.csv\.gz \(row 29, column 0\): the weight -1 is below 0"),
    ("no weight above 0", text("raw/edge_weight.csv.gz", "0\n" * 30), r"edge_weight\.csv\.gz \(column 0\): all weights are 0"),
    ("truncated gz", lambda folder: cut(folder / EDGE), r"edge\.csv\.gz: is cut off"),
    ("truncated gz, features", lambda folder: cut(folder / FEAT, 40), r"node-feat\.csv\.gz: is (cut off|damaged)"),
    ("no gz at all", lambda folder: (folder / EDGE).write_bytes(b"\x1f\x8bnonsense"), r"edge\.csv\.gz: is (damaged|cut off)"),
    ("empty edges", lambda folder: (folder / EDGE).write_bytes(gzip.compress(b"")), r"edge\.csv\.gz: has 0 rows"),
    ("edges gone", lambda folder: (folder / EDGE).unlink(), r"is incomplete: raw/ lacks edge\.csv\.gz \(it has .*node-label"),
    ("labels gone", lambda folder: (folder / LABEL).unlink(), r"raw/ lacks node-label\.csv\.gz"),
    ("split empty", text(TEST, ""), r"test\.csv\.gz: the test split is empty"),
    ("split overlaps", text(TEST, "9\n10\n2\n"), r"test\.csv\.gz \(row 2\): node 2 is in the train split too"),
    ("split repeats", text(VALID, "6\n7\n6\n"), r"valid\.csv\.gz \(row 2\): node 6 stands in the split twice"),
    ("split out of range", text(VALID, "6\n12\n"), r"valid\.csv\.gz \(row 1\): node id 12 is not in 0\.\.11"),
    ("split negative", text(VALID, "-6\n"), r"valid\.csv\.gz \(row 0\): node id -6"),
    ("split gone", lambda folder: (folder / VALID).unlink(), r"valid\.csv\.gz: there is no such file"),
]  # fmt: skip


@pytest.mark.parametrize(("damage", "message"), [x[1:] for x in NODE_FOLDERS], ids=[x[0] for x in NODE_FOLDERS])
def test_node_folder(ingest: Ingest, folder: Path, damage: Damage, message: str) -> None:
    node_folder(folder / "mine")
    damage(folder / "mine")
    refuse(ingest, message, name="ogb", dataset="mine", root=str(folder), task="node", num_classes=3)


def refuse(ingest: Ingest, message: str, **section: Any) -> None:
    with pytest.raises(UserError, match=message) as caught:
        ingest(**section)
    print(caught.value)


OTHERS: list[tuple[str, Callable[[Path], object], Damage, dict[str, Any], str]] = [
    ("mag: unknown type", mag_folder, text("raw/triplet-type-list.csv.gz", "author,writes,papers\n"), {}, r"row 0, column 2\): unknown node type 'papers'"),
    ("mag: relation gone", mag_folder, lambda f: (f / "raw/relations/paper___cites___paper/edge.csv.gz").unlink(), {}, r"paper___cites___paper: is incomplete: lacks edge\.csv\.gz"),
    ("mag: target out of range", mag_folder, replace_line("raw/relations/paper___has___field/edge.csv.gz", 2, "1,3"), {}, r"paper___has___field/edge\.csv\.gz \(row 2, column 1\): node id 3 is not in 0\.\.2"),
    ("mag: no label", mag_folder, text("raw/nodetype-has-label.csv.gz", "author,field,paper\nFalse,False,False\n"), {}, r"exactly one known type is needed"),
    ("npz: NaN", papers_folder, lambda f: npz(f, node_feat=np.full((10, 2), np.nan)), {}, r"data\.npz\[node_feat\] \(row 0, column 0\): nan is not a finite"),
    ("npz: rows", papers_folder, lambda f: npz(f, node_feat=np.ones((9, 2))), {}, r"data\.npz\[node_feat\]: has 9 rows, num_nodes_list says 10"),
    ("npz: edges", papers_folder, lambda f: npz(f, edge_index=np.full((2, 25), 10)), {}, r"data\.npz\[edge_index\] \(row 0, column 0\): node id 10"),
    ("npz: edges upright", papers_folder, lambda f: npz(f, edge_index=np.zeros((25, 2), int)), {}, r"has the shape \(25, 2\)"),
    ("npz: texts", papers_folder, lambda f: npz(f, node_feat=np.array([["a"]] * 10)), {}, r"numbers are needed"),
    ("npz: cut off", papers_folder, lambda f: cut(f / "raw/data.npz", 300), {}, r"data\.npz: is damaged"),
    ("molecules: id beyond its graph", molecules_folder, replace_line(EDGE, 3, "1,4"), {"task": "graph", "task_type": "multilabel", "num_tasks": 2}, r"edge\.csv\.gz \(row 3, column 1\): node id 4 is not in 0\.\.3; graph 2 has 4 nodes"),
    ("molecules: label", molecules_folder, replace_line("raw/graph-label.csv.gz", 1, "0,2"), {"task": "graph", "task_type": "multilabel", "num_tasks": 2}, r"graph-label\.csv\.gz \(row 1, column 1\): label 2 is not 0 or 1"),
    ("molecules: label columns", molecules_folder, lambda f: None, {"task": "graph", "task_type": "binary"}, r"graph-label\.csv\.gz .*columns"),
    ("links: id out of range", link_folder, text("raw/num-node-list.csv.gz", "8\n"), {"task": "link"}, r"edge\.csv\.gz \(row 7, column 1\): node id 8"),
    ("links: no test.pt", link_folder, lambda f: (f / "split/time/test.pt").unlink(), {"task": "link"}, r"test\.pt: there is no such file"),
    ("links: test.pt damaged", link_folder, lambda f: cut(f / "split/time/test.pt", 200), {"task": "link"}, r"test\.pt: "),
    ("unknown split", node_folder, lambda f: None, {"split": "random"}, r"has no split/random; it has time"),
    ("no split", node_folder, lambda f: [p.unlink() for p in (f / "split/time").iterdir()] and (f / "split/time").rmdir(), {}, r"no split/ folder"),
    ("wrong number of classes", node_folder, lambda f: None, {"num_classes": 2}, r"label 2 is not 0 or 1"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "damage", "options", "message"), [x[1:] for x in OTHERS], ids=[x[0] for x in OTHERS])
def test_other_folders(
    ingest: Ingest, folder: Path, make: Callable[[Path], object], damage: Damage, options: dict[str, Any], message: str
) -> None:
    make(folder / "mine")
    damage(folder / "mine")
    section = {"name": "ogb", "dataset": "mine", "root": str(folder), **options}
    if section.setdefault("task", "node") == "node":
        section.setdefault("num_classes", 4)
    refuse(ingest, message, **section)


NODES, EDGES = "id,x,y\n1,0.5,a\n2,1.5,b\n5,2.5,a\n7,3,b\n9,4,a\n", "src,dst\n1,2\n2,5\n5,7\n9,1\n"
TABLES: list[tuple[str, dict[str, str], dict[str, Any], str]] = [
    ("no such file", {}, {"edges": {"files": "edge.csv"}}, r"edge\.csv: there is no such file \(did you mean 'edges\.csv'"),
    ("no such folder", {}, {"edges": {"files": "here/edges.csv"}}, r"there is no folder here"),
    ("no match", {}, {"edges": {"files": "e-*.csv"}}, r"e-\*\.csv: there is no such file"),
    ("no such column", {}, {"edges": {"files": "edges.csv", "source": "scr"}}, r"has no column 'scr' \(did you mean 'src'\?\); it has src, dst"),
    ("unknown format", {"edges.dat": EDGES}, {"edges": {"files": "edges.dat"}}, r"edges\.dat: the name does not tell the format"),
    ("negative id", {"nodes.csv": NODES + "-4,1,a\n"}, {}, r"nodes\.csv \(row 5, column id\): the id -4 is negative"),
    ("dense id out of range", {"edges.csv": "src,dst\n0,1\n1,5\n"}, {"nodes": {"files": "nodes.csv", "id": None, "label": "y"}}, r"edges\.csv \(row 1, column dst\): node id 5 is not in 0\.\.4"),
    ("feature NaN", {"nodes.csv": NODES.replace("2.5", "nan")}, {}, r"nodes\.csv \(row 2, column x\)"),
    ("ragged rows", {"nodes.csv": NODES + "11,1\n"}, {}, r"nodes\.csv \(row 5\): the row has 2 columns, the others have 3: '11,1'"),
    ("truncated gz", {"edges.csv.gz": EDGES * 50}, {"edges": {"files": "edges.csv.gz"}}, r"edges\.csv\.gz: is cut off"),
    ("truncated zst", {"edges.csv.zst": EDGES * 5000}, {"edges": {"files": "edges.csv.zst"}}, r"edges\.csv\.zst: is (damaged|cut off)"),
    ("truncated parquet", {"edges.parquet": EDGES}, {"edges": {"files": "edges.parquet"}}, r"edges\.parquet: "),
    ("empty file", {"edges.csv": ""}, {}, r"edges\.csv: is empty"),
    ("no edges", {"edges.csv": "src,dst\n"}, {}, r"edges\.csv: has no edges"),
    ("no nodes", {"nodes.csv": "id,x,y\n"}, {}, r"nodes\.csv: has no rows"),
    ("label out of range", {"nodes.csv": NODES.replace("a", "0").replace("b", "4")}, {"num_classes": 3}, r"nodes\.csv \(row 1, column y\): label 4 is not 0\.\.2"),
    ("label not binary", {"nodes.csv": NODES.replace("a", "0").replace("b", "4")}, {"task_type": "binary"}, r"nodes\.csv \(row 1, column y\): label 4 is not 0 or 1"),
    ("one class", {"nodes.csv": NODES.replace("b", "a")}, {}, r"nodes\.csv \(column y\): has 1 class"),
    ("unknown split word", {"nodes.csv": NODES.replace("y\n", "y\n", 1)}, {"split": {"by": "column", "column": "y"}}, r"nodes\.csv \(row 0, column y\): unknown split 'a'"),
    ("empty split", {}, {"split": {"train": 0.9, "valid": 0.05, "test": 0.05}}, r"the (valid|test) split is empty"),
    ("overlapping splits", {"a.csv": "1\n2\n", "b.csv": "5\n", "c.csv": "7\n2\n"}, {"split": {"by": "files", "files": {"train": "a.csv", "valid": "b.csv", "test": "c.csv"}}}, r"c\.csv \(row 1, column 0\): node 2 is in the train split too"),
    ("no time", {}, {"split": {"by": "time"}}, r"time needs a time column"),
    ("twice labelled", {"l.csv": "id,label\n1,a\n2,b\n1,b\n"}, {"nodes": {"files": "nodes.csv"}, "labels": {"files": "l.csv"}}, r"l\.csv \(row 2, column id\): node 1 has two labels"),
    ("matrix rows", {}, {"nodes": {"files": "nodes.csv", "label": "y", "feature_file": "x.npy"}}, r"x\.npy: has 4 rows, there are 5"),
    ("unknown node type", {}, {"edges": {"files": "edges.csv", "source_type": "nod"}}, r"unknown node type 'nod' \(did you mean 'node'"),
    ("ragged lists", {}, {"nodes": {"files": "lists.parquet", "features": "v", "label": "y"}, "edges": {"files": "dense.csv"}}, r"lists\.parquet \(row 2, column v\): the list has 3 values, the others have 2"),
]  # fmt: skip


@pytest.mark.parametrize(("files", "change", "message"), [x[1:] for x in TABLES], ids=[x[0] for x in TABLES])
def test_tables(ingest: Ingest, folder: Path, files: dict[str, str], change: dict[str, Any], message: str) -> None:
    for name, content in {"nodes.csv": NODES, "edges.csv": EDGES, "dense.csv": "src,dst\n0,1\n", **files}.items():
        path = folder / name
        if name.endswith(".gz"):
            path.write_bytes(gzip.compress(content.encode())[:-12])
        elif name.endswith(".zst"):
            path.write_bytes(bytes(pa.compress(content.encode(), "zstd"))[:-40])
        elif name.endswith(".parquet"):
            path.write_bytes(b"PAR1" + content.encode())
        else:
            path.write_text(content)
    np.save(folder / "x.npy", np.ones((4, 2)))
    lists = pa.table({"id": [0, 1, 2], "v": [[1.0, 2.0], [1.0, 2.0], [1.0, 2.0, 3.0]], "y": ["a", "b", "a"]})
    pq.write_table(lists, folder / "lists.parquet")
    section: dict[str, Any] = {
        "name": "tables",
        "nodes": {"files": "nodes.csv", "features": "x", "label": "y"},
        "edges": {"files": "edges.csv"},
        "split": {"train": 0.4, "valid": 0.3, "test": 0.3},
        **change,
    }
    refuse(ingest, message, **section)
