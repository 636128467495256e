"""Many graphs in users' tables: what is read, in which order, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pytest

from configs.errors import DataError, UserError
from configs.schema import Recipe
from tasks.ingest.stage import STAGE as INGEST
from tasks.preprocess.stage import STAGE as PREPROCESS
from tasks.stage import Parent, run_stage
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home
from tests.ingest.conftest import Ingest

# Of four graphs: a has nodes 10, 11, 12, b has 20, 21, c 30 alone, d 40, 41.
NODES: dict[str, list[Any]] = {
    "id": [10, 11, 12, 20, 21, 30, 40, 41],
    "graph": ["a", "a", "a", "b", "b", "c", "d", "d"],
    "mass": [1.0, 1.1, 1.2, 2.0, 2.1, 3.0, 4.0, 4.1],
    "kind": ["C", "N", "C", "O", "C", "C", "N", "O"],
}
EDGES: dict[str, list[Any]] = {"src": [10, 11, 20, 40, 12], "dst": [11, 12, 21, 41, 10], "order": [1, 2, 1, 3, 1]}
LABELS: dict[str, list[Any]] = {"graph": ["a", "b", "c", "d"], "active": ["yes", "no", "no", "yes"]}
# The same, where ids begin anew in each graph.
LOCAL_EDGES = {"graph": [*"aabda"], "src": [0, 1, 0, 0, 2], "dst": [1, 2, 1, 1, 0], "order": [1, 2, 1, 3, 1]}
LOCAL = {"nodes": {**NODES, "id": [0, 1, 2, 0, 1, 0, 0, 1]}, "edges": LOCAL_EDGES}
SPLIT = ["train", "train", "valid", "test"]


def section(folder: Path, tables: dict[str, dict[str, list[Any]]] | None = None, **changes: Any) -> dict[str, Any]:
    """Write the tables, some of them others, and return the section; `changes` are of its parts."""
    whole = {"nodes": NODES, "edges": EDGES, "labels": {**LABELS, "split": SPLIT}} | (tables or {})
    for name, columns in whole.items():
        csv.write_csv(pa.table(columns), folder / f"{name}.csv")
    found: dict[str, Any] = {
        "name": "tables",
        "task": "graph",
        "nodes": {"files": str(folder / "nodes.csv"), "graph": "graph", "features": ["mass"], "categorical": ["kind"]},
        "edges": {"files": str(folder / "edges.csv"), "features": ["order"]},
        "labels": {"files": str(folder / "labels.csv"), "id": "graph", "label": ["active"]},
        "split": {"by": "column", "column": "split"},
    }
    for name, change in changes.items():
        found[name] = {**found[name], **change} if isinstance(change, dict) and name in found else change
    return found


def shuffled(columns: dict[str, list[Any]], order: list[int]) -> dict[str, list[Any]]:
    return {name: [values[i] for i in order] for name, values in columns.items()}


def check_graphs(store: Any) -> None:
    """Nodes of a graph stand together, in the order of the labels' table."""
    manifest = store.manifest
    assert (manifest.task, manifest.task_type) == ("graph", "multiclass")
    assert (manifest.num_graphs, manifest.num_classes) == (4, 2)
    assert store.column("graphs", "num_nodes").tolist() == [3, 2, 1, 2]
    assert store.column("graphs", "num_edges").tolist() == [3, 1, 0, 1]
    assert store.column("graphs", "label").tolist() == [1, 0, 0, 1]
    assert store.column("ids/graphs", "original_id").tolist() == ["a", "b", "c", "d"]
    mass = store.column("nodes/node", "mass")
    graph = np.floor(mass.ravel()).astype(int).tolist()
    assert graph == [1, 1, 1, 2, 2, 3, 4, 4]
    columns = (store.column("edges/node__to__node", name).ravel() for name in ("src", "dst", "order"))
    masses = [round(float(each), 1) for each in mass.ravel()]
    found = {(masses[src], masses[dst], float(order)) for src, dst, order in zip(*columns, strict=True)}
    assert found == {(1.0, 1.1, 1), (1.1, 1.2, 2), (2.0, 2.1, 1), (4.0, 4.1, 3), (1.2, 1.0, 1)}
    assert manifest.splits == {"train": 2, "valid": 1, "test": 1}
    assert store.column("split/test", "graph_id").tolist() == [3]


def test_graphs_of_three_tables(ingest: Ingest, folder: Path) -> None:
    check_graphs(ingest(**section(folder)))


def test_nodes_that_do_not_stand_together_are_sorted(ingest: Ingest, folder: Path) -> None:
    mixed = shuffled(NODES, [6, 0, 3, 5, 1, 7, 4, 2])
    store = ingest(**section(folder, {"nodes": mixed}))
    check_graphs(store)
    by_mass = dict(zip(NODES["mass"], NODES["kind"], strict=True))
    names = store.column("categories/node/kind", "name").tolist()
    kinds = [names[code] for code in store.column("nodes/node", "kind").ravel()]
    masses = [round(float(each), 1) for each in store.column("nodes/node", "mass").ravel()]
    assert kinds == [by_mass[each] for each in masses]


def test_ids_that_begin_anew_in_each_graph(ingest: Ingest, folder: Path) -> None:
    check_graphs(ingest(**section(folder, LOCAL, edges={"graph": "graph"})))
    mixed = LOCAL | {"nodes": shuffled(LOCAL["nodes"], [7, 0, 3, 5, 1, 6, 4, 2])}
    check_graphs(ingest(**section(folder, mixed, edges={"graph": "graph"})))


def test_nodes_without_ids_are_numbered_by_rows(ingest: Ingest, folder: Path) -> None:
    edges = {"src": [0, 1, 3, 6, 2], "dst": [1, 2, 4, 7, 0], "order": EDGES["order"]}
    check_graphs(ingest(**section(folder, {"edges": edges}, nodes={"id": None})))


@pytest.mark.parametrize(
    ("labels", "task_type", "columns"),
    [
        ({"graph": ["a", "b", "c", "d"], "x": [0.5, 1.5, 2.0, 3.0]}, "regression", ["x"]),
        ({"graph": ["a", "b", "c", "d"], "x": [1, 0, None, 1], "y": [0, 1, 1, 0]}, "multilabel", ["x", "y"]),
        ({"graph": ["a", "b", "c", "d"], "x": [1, 0, 1, 0]}, "binary", ["x"]),
    ],
)
def test_kinds_of_labels(ingest: Ingest, folder: Path, labels: Any, task_type: str, columns: list[str]) -> None:
    made = section(folder, {"labels": {**labels, "split": SPLIT}}, labels={"label": columns}, task_type=task_type)
    store = ingest(**made)
    assert store.manifest.task_type == task_type
    wanted = np.array([labels[name] for name in columns], float).T
    np.testing.assert_array_equal(store.column("graphs", "label").reshape(wanted.shape), wanted.astype(np.float32))


def test_random_splits_and_graphs_without_labels(ingest: Ingest, folder: Path) -> None:
    nodes = {"id": list(range(40)), "graph": [i // 2 for i in range(40)], "mass": [1.0] * 40, "kind": ["C"] * 40}
    edges = {"src": [0, 2], "dst": [1, 3], "order": [1, 1]}
    labels = {"graph": list(range(20)), "active": [None, *["yes", "no"] * 9, "no"]}
    tables = {"nodes": nodes, "edges": edges, "labels": labels}
    store = ingest(**section(folder, tables) | {"split": {"by": "ratio"}})
    assert sum(store.manifest.splits.values()) == 19
    assert "ids/graphs" not in store.manifest.tables  # they are 0, 1, ... already


def test_models_read_them_as_any_graphs(home: Home, folder: Path) -> None:
    recipe = Recipe.model_validate(
        {"name": "t", "dataset": section(folder), "preprocess": {"workers": 1}, "model": "gin"}
    )
    first = run_stage(INGEST, recipe, {}, home)
    second = run_stage(PREPROCESS, recipe, {"ingest": Parent(first.manifest, first.folder)}, home)
    store = GraphStore(second.folder, second.manifest)
    assert store["graph_offsets"].tolist() == [0, 3, 5, 6, 8]
    assert store["graph_label"].tolist() == [1, 0, 0, 1]


def changed(column: str, row: int, value: Any, table: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {**table, column: [*table[column][:row], value, *table[column][row + 1 :]]}


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"edges": changed("dst", 2, 30, EDGES)}, r"edges.csv \(row 2, column dst.*joins 20 and 30, nodes of two"),
        ({"edges": changed("dst", 2, 99, EDGES)}, r"edges.csv.*unknown node id 99.*drop leaves.* ends out$"),
        ({"nodes": changed("graph", 5, "e", NODES)}, r"nodes.csv.*graph.*unknown graph id 'e'.*labels.csv.*empty"),
        ({"nodes": changed("graph", 5, "d", NODES)}, r"labels.csv.*graph 'c' has no nodes \(1 such graphs of 4\)"),
        ({"nodes": changed("graph", 5, None, NODES)}, r"nodes.csv.*graph"),
        ({"nodes": changed("id", 5, 10, NODES)}, r"nodes.csv.*id 10 stands in the table twice"),
        ({"labels": {**changed("graph", 3, "a", LABELS), "split": SPLIT}}, r"labels.csv.*'a' stands .*twice"),
        ({"labels": {**LABELS, "active": ["yes"] * 4, "split": SPLIT}}, "has 1 class"),
        ({"labels": {**LABELS, "split": ["train", "train", "train", "test"]}}, "the valid split is empty"),
        ({"labels": {**LABELS, "active": ["yes", "no", None, "no"], "split": SPLIT}}, "valid split .*as graph 'c'"),
        ({"nodes": changed("mass", 1, None, NODES)}, r"nodes.csv.*mass"),
    ],
)
def test_mistakes_are_named(ingest: Ingest, folder: Path, tables: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        ingest(**section(folder, tables))


def test_local_ids_without_the_edges_graph_point_to_it(ingest: Ingest, folder: Path) -> None:
    with pytest.raises(DataError, match=r"stands in the table twice.*edges\.graph"):
        ingest(**section(folder, LOCAL))
    edges = changed("graph", 2, "x", LOCAL["edges"])
    with pytest.raises(DataError, match=r"edges.csv.*unknown node id '0 of x'"):
        ingest(**section(folder, LOCAL | {"edges": edges}, edges={"graph": "graph"}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodes": {"graph": None}}, "which graph a node is in"),
        ({"task": "node"}, "graph: graph is for graph tasks"),
        ({"labels": None}, "place of labels|table of graphs"),
        ({"edges": {"relation_column": "kind"}}, "of one relation"),
        ({"edges": {"source_type": "atom"}}, "edges join atom and node"),
        ({"edges": {"on_unknown_id": "add"}}, "the graph of a node that only edges name is not known"),
        ({"nodes": {"id": None}, "edges": {"graph": "graph"}}, "need a column of them: nodes.id"),
        ({"split": {"by": "time", "column": None}}, "graphs have no times"),
        ({"nodes": {"graph": "mass"}}, "mass"),
        ({"nodes": {"graf": "graph"}}, "graf"),
    ],
)
def test_options_that_do_not_fit(ingest: Ingest, folder: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises((UserError, ValueError), match=message):
        ingest(**section(folder, **changes))
