"""A data set's own code that writes what its manifest does not say."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from configs.errors import DataError
from tasks.ingest.dataset_fields import dataset_fields
from tasks.ingest.stage import checked_fields
from tasks.ingest.writer import DatasetWriter
from tasks.storage.manifests import EdgeType, FeatureColumn, NodeType

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


EDGES, NODES, IDS = "edges/node__to__node", "nodes/node", np.arange(9, dtype=np.int32)
FLOATS = np.zeros((9, 1), np.float32)
WRONG: dict[str, tuple[str, Change, str]] = {
    "id too large": ("multiclass", put(EDGES, "dst", IDS + 1), "node__to__node (column dst): holds the id 9"),
    "id below 0": ("multiclass", put(EDGES, "src", IDS - 1), "node__to__node (column src): holds the id -1"),
    "ids as floats": ("multiclass", put(EDGES, "src", IDS * 1.0), "node (column src): holds double; ids are int32 or"),
    "num_edges": ("multiclass", say(edge_types=[edge(8)]), "node__to__node: has 9 rows, and num_edges says 8"),
    "num_nodes": ("multiclass", say(node_types=[node(num_nodes=7)]), "nodes/node: has 9 rows, and num_nodes says 7"),
    "no table": ("multiclass", say(node_types=[node(), node("b")]), "nodes/b: was not written, and num_nodes says 9"),
    "no type": ("multiclass", to_another_type, "__b (column dst): is of the node type 'b', which node_types do not"),
    "node_id": ("multiclass", put(NODES, "node_id", np.arange(9) + 1), "nodes/node (column node_id): holds the id 9"),
    "dim": ("multiclass", say(node_types=[node(dim=3)]), "(column feat): has 2 values a row, and its dim says 3"),
    "split": (
        "multiclass",
        say(splits={"train": 3, "valid": 3, "test": 4}),
        "split/test: has 3 rows, and splits['test']",
    ),
    "no classes": ("multiclass", say(num_classes=0), "nodes/node (column label): holds the class 2, and num_classes"),
    "few classes": ("multiclass", say(num_classes=2), "nodes/node (column label): holds the class 2, and num_classes"),
    "class below": ("multiclass", put(NODES, "label", np.arange(9) - 5), "label): holds the class -5; classes count"),
    "float classes": (
        "multiclass",
        put(NODES, "label", FLOATS),
        "(column label): holds fixed_size_list<element: float",
    ),
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
