"""What edges are called is read as the training read it: the same categories and relations, fewer, other ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs.errors import DataError
from configs.load import build_recipe
from configs.schema import Recipe
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home
from tests.apply.test_needs import Prepared, adapted
from tests.ingest.small_databases import ROWS, database, write
from tests.ingest.test_table_graphs import EDGES, NODES, section

N = 12
"""Nodes; edge i goes from i to i + 1, so that edges are known by their ends."""


def write_edges(folder: Path, kinds: str, relations: str = "a") -> Path:
    """An edge for each letter of `kinds`; relations are taken in turn."""
    folder.mkdir(exist_ok=True)
    rows = [f"{i},{i + 1},{kind},{relations[i % len(relations)]}" for i, kind in enumerate(kinds)]
    (folder / "edges.csv").write_text("\n".join(["src,dst,kind,relation", *rows]) + "\n")
    cells = [f"{i},{i / 10},{'xy'[i % 2]}" for i in range(N)]
    (folder / "nodes.csv").write_text("\n".join(["id,a,label", *cells]) + "\n")
    return folder


def recipe_of(
    folder: Path, model: str = "gin", *, relation: bool = False, categorical: tuple[str, ...] = ("kind",)
) -> Recipe:
    edges: dict[str, Any] = {"files": str(folder / "edges.csv"), "categorical": list(categorical)}
    if relation:
        edges["relation_column"] = "relation"
    nodes = {"files": str(folder / "nodes.csv"), "features": ["a"], "label": "label"}
    dataset = {
        "name": "tables",
        "nodes": nodes,
        "edges": edges,
        "split": {"by": "ratio", "train": 0.5, "valid": 0.25, "test": 0.25},
    }
    preprocess = {"symmetrize": False, "self_loops": "keep", "workers": 1}
    return build_recipe({"name": "demo", "dataset": dataset, "model": model, "preprocess": preprocess})


def codes(graph: GraphStore, array: str = "edge_feat_cat") -> dict[int, int]:
    """Source of each edge to its code."""
    values = np.asarray(graph[array]).reshape(-1)
    return dict(sorted(zip(np.asarray(graph["csc_indices"]).tolist(), values.tolist(), strict=True)))


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ("prqprqprqpp", [0, 2, 1, 0, 2, 1, 0, 2, 1, 0, 0]),  # others come first
        ("rrrrrrrrrrr", [2] * 11),  # some are missing
        ("ozozqqqqqqq", [3, 3, 3, 3, 1, 1, 1, 1, 1, 1, 1]),  # new ones, which sort before and behind
    ],
)
def test_edges_have_the_codes_of_the_training(home: Home, tmp_path: Path, kinds: str, expected: list[int]) -> None:
    trained = Prepared(home, recipe_of(write_edges(tmp_path / "old", "pqrpqrpqrpq")))
    assert list(codes(trained.graph).values()) == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1]
    other = adapted(home, trained, trained.needs(tmp_path / "model"), recipe_of(write_edges(tmp_path / "new", kinds)))
    assert list(codes(other.graph).values()) == expected
    assert other.graph.manifest.edge_categories == trained.graph.manifest.edge_categories == (4,)


def test_a_column_of_two_tables_has_one_numbering(home: Home, tmp_path: Path) -> None:
    def both(folder: Path, kinds: tuple[str, str]) -> Recipe:
        recipe = recipe_of(write_edges(folder, kinds[0]))
        second = write_edges(tmp_path / f"{folder.name}-2", kinds[1]) / "edges.csv"
        values = recipe.model_dump(mode="json")
        one = values["dataset"]["edges"][0]
        values["dataset"]["edges"] = [one, {**one, "files": str(second), "relation": "second"}]
        return build_recipe({key: values[key] for key in ("name", "dataset", "model", "preprocess")})

    trained = Prepared(home, both(tmp_path / "old", ("ppppqqqqppp", "rrrrsssssss")))
    assert sorted(set(np.asarray(trained.graph["edge_feat_cat"])[:, 0].tolist())) == [0, 1, 2, 3]
    other = adapted(
        home, trained, trained.needs(tmp_path / "model"), both(tmp_path / "new", ("qqqqqqqqqqq", "ssssssszzzz"))
    )
    assert sorted(set(np.asarray(other.graph["edge_feat_cat"])[:, 0].tolist())) == [1, 3, 4]


def test_a_model_that_reads_no_edge_features_needs_none(home: Home, tmp_path: Path) -> None:
    trained = Prepared(home, recipe_of(write_edges(tmp_path / "old", "pqrpqrpqrpq"), "sgc"))
    needs = trained.needs(tmp_path / "model")
    new = write_edges(tmp_path / "new", "zzzzzzzzzzz")
    for columns in ((), ("relation",), ("kind",)):
        assert adapted(home, trained, needs, recipe_of(new, "sgc", categorical=columns)).graph.manifest.num_edges == 11
    reading = replace(needs, reads_edge_features=True)
    with pytest.raises(
        DataError, match=r"feature columns of node__to__node than the model was trained on: without kind"
    ):
        adapted(home, trained, reading, recipe_of(new, "sgc", categorical=()))


def test_a_model_that_learnt_without_edge_features_needs_none(home: Home, tmp_path: Path) -> None:
    trained = Prepared(home, recipe_of(write_edges(tmp_path / "old", "pqrpqrpqrpq"), "gcn", categorical=()))
    new = recipe_of(write_edges(tmp_path / "new", "zzzzzzzzzzz"), "gcn")
    assert adapted(home, trained, trained.needs(tmp_path / "model"), new).graph.manifest.num_edges == 11


def test_relations_are_found_by_their_names(home: Home, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    old = write_edges(tmp_path / "old", "p" * 9, "abc")
    trained = Prepared(home, recipe_of(old, "rgcn", relation=True))
    assert codes(trained.graph, "edge_type") == {i: i % 3 for i in range(9)}
    needs = trained.needs(tmp_path / "model")
    new = write_edges(tmp_path / "new", "p" * 9, "czb")  # in another order, one is missing, one is new
    other = adapted(home, trained, needs, recipe_of(new, "rgcn", relation=True))
    assert codes(other.graph, "edge_type") == {i: {0: 2, 2: 1}[i % 3] for i in range(9) if i % 3 != 1}
    assert other.graph.manifest.edge_types == trained.graph.manifest.edge_types
    assert "edges of node__z__node are left out: the model's training data had no such relation" in caplog.text
    others = write_edges(tmp_path / "others", "p" * 9, "xy")
    with pytest.raises(DataError, match=r"other relations .*: without node__a__node, node__b__node, .*; with node__x"):
        adapted(home, trained, needs, recipe_of(others, "rgcn", relation=True))
    blind = Prepared(home, recipe_of(old, "gcn", relation=True))  # tells no relations apart
    blind_needs = blind.needs(tmp_path / "blind")
    assert adapted(home, blind, blind_needs, recipe_of(others, "gcn", relation=True)).graph.manifest.num_edges == 9


def test_link_tables_of_a_database_have_the_codes_of_the_training(home: Home, tmp_path: Path) -> None:
    """Numbered by rows older than the first moment that validates; later ones are unknown."""

    def recipe_with(folder: Path, kinds: str) -> Recipe:
        folder.mkdir()
        write(folder, lines={"number": None, "kind": list(kinds)})
        section = database(**{name: {"files": f"{folder}/{name}.csv"} for name in ROWS})
        return build_recipe({"name": "demo", "dataset": section, "model": "heterosage", "preprocess": {"workers": 1}})

    trained = Prepared(home, recipe_with(tmp_path / "old", "xyxyxxxxx"))
    needs = trained.needs(tmp_path / "model")
    assert needs.edge_categories == {"lines.kind": ["x", "y"]}
    other = adapted(home, trained, needs, recipe_with(tmp_path / "new", "wxyxwxxxx"))
    table = other.dataset.read("edges/buys__lines__things")["lines.kind"].to_pylist()
    number = {other.dataset.read("edge_categories/lines.kind")["code"][i].as_py(): name for i, name in enumerate("wxy")}
    expected = sorted({"w": 2, "x": 0, "y": 1}[number[code]] for code in table)
    relations = [
        other.graph.manifest.edge_types.index(name) for name in other.graph.manifest.edge_types if "lines" in name
    ]
    mine = np.isin(np.asarray(other.graph["edge_type"]), relations)
    codes_here = np.asarray(other.graph["edge_feat_cat"])[mine][:, 0]
    assert sorted(codes_here.tolist()) == sorted(expected * len(relations))
    assert other.graph.manifest.edge_categories == trained.graph.manifest.edge_categories


def test_nodes_and_edges_of_graphs(home: Home, tmp_path: Path) -> None:
    def recipe_with(folder: Path, orders: list[str], kinds: list[str]) -> Recipe:
        folder.mkdir()
        tables = {"edges": {**EDGES, "order": orders}, "nodes": {**NODES, "kind": kinds}}
        data = section(
            folder, tables, edges={"files": str(folder / "edges.csv"), "categorical": ["order"], "features": []}
        )
        return build_recipe({"name": "demo", "dataset": data, "model": "gin", "preprocess": {"workers": 1}})

    trained = Prepared(home, recipe_with(tmp_path / "old", ["s", "d", "s", "t", "s"], NODES["kind"]))
    needs = trained.needs(tmp_path / "model")
    new = recipe_with(tmp_path / "new", ["t", "a", "t", "s", "a"], ["B", "N", "C", "O", "C", "C", "N", "O"])
    other = adapted(home, trained, needs, new)
    assert other.graph.manifest.edge_categories == trained.graph.manifest.edge_categories == (4,)
    assert np.asarray(other.graph["feat_cat"])[:, 0].tolist() == [3, 1, 0, 2, 0, 0, 1, 2]
    assert set(np.asarray(other.graph["edge_feat_cat"])[:, 0].tolist()) == {1, 2, 3}  # s, t, and a, which is new
