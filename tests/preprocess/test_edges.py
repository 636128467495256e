"""Edges against a plain reference made of Python lists."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from configs.errors import DataError
from tests.preprocess.ears import Ears

NODE = ("node", "to", "node")


def reference(num_nodes: int, tables: list[dict[str, Any]], options: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """In-edges of each node, in order. Tables hold src and dst in the graph's ids, and the relations' numbers."""
    rows: list[list[dict[str, Any]]] = [[] for _ in range(num_nodes)]
    for t, table in enumerate(tables):
        for e, (s, d) in enumerate(zip(table["src"].tolist(), table["dst"].tolist(), strict=True)):
            if s == d and options["self_loops"] != "keep":
                continue
            data = {key: table[key][e] for key in ("weight", "time", "x") if key in table}
            rows[d].append({"src": s, "table": t, "type": table.get("type", 0), **data})
            if options["symmetrize"] and s != d:
                rows[s].append({"src": d, "table": t, "type": table.get("reverse", 0), **data})
    for v, row in enumerate(rows):
        row.sort(key=lambda edge: edge["src"])  # stable
        if options["deduplicate"]:
            merged = []
            for _, same in itertools.groupby(row, key=lambda edge: (edge["src"], edge["table"])):
                edges = list(same)
                first = dict(edges[0])
                if "weight" in first:
                    weights = [float(edge["weight"]) for edge in edges]
                    combine = {"sum": sum, "max": max, "first": lambda w: w[0]}[options["merge_weights"]]
                    first["weight"] = combine(weights)
                merged.append(first)
            row[:] = merged
        if options["self_loops"] == "add":
            row.append({"src": v, "table": -1, "weight": 1.0, "time": 0, "x": np.zeros(2), "type": None})
            row.sort(key=lambda edge: edge["src"])
    return rows


def random_edges(rng: np.random.Generator, num_src: int, num_dst: int, number: int, data: bool) -> dict[str, Any]:
    table: dict[str, Any] = {"src": rng.integers(0, num_src, number), "dst": rng.integers(0, num_dst, number)}
    table = {key: value.astype(np.int32) for key, value in table.items()}
    if data:
        table["weight"] = rng.integers(1, 9, number).astype(np.float32)
        table["time"] = rng.integers(0, 10**12, number)
        table["x"] = rng.standard_normal((number, 2)).astype(np.float32)
    return table


def check(graph: Any, rows: list[list[dict[str, Any]]], data: bool) -> None:
    indptr, indices = graph["csc_indptr"], graph["csc_indices"]
    assert indptr.dtype == np.int64
    assert indices.dtype == np.int32
    assert np.diff(indptr).tolist() == [len(row) for row in rows]
    assert indices.tolist() == [edge["src"] for row in rows for edge in row]
    assert graph.manifest.num_edges == len(indices)
    dst = np.repeat(np.arange(len(rows)), np.diff(indptr))
    if "csr_eids" in graph or not graph.manifest.symmetric:
        csr_src = np.repeat(np.arange(len(rows)), np.diff(graph["csr_indptr"]))
        pairs = np.stack([csr_src, graph["csr_indices"]], 1)
        assert list(map(tuple, pairs.tolist())) == sorted(zip(indices.tolist(), dst.tolist(), strict=True))
    if data:
        for name, key in (("edge_weight", "weight"), ("edge_time", "time"), ("edge_feat", "x")):
            expected = np.array([edge[key] for row in rows for edge in row])
            np.testing.assert_allclose(graph[name], expected.reshape(graph[name].shape), rtol=1e-6)
        eids = graph["csr_eids"]
        assert sorted(eids.tolist()) == list(range(len(indices)))
        np.testing.assert_array_equal(indices[eids], csr_src)
        np.testing.assert_array_equal(dst[eids], graph["csr_indices"])


@pytest.mark.parametrize("symmetrize", [True, False])
@pytest.mark.parametrize("deduplicate", [True, False])
@pytest.mark.parametrize("self_loops", ["remove", "keep", "add"])
@pytest.mark.parametrize(("data", "merge_weights"), [(False, "sum"), (True, "sum"), (True, "max"), (True, "first")])
def test_edges_match_the_reference(
    make_dataset: Any,
    node_splits: Any,
    preprocess: Any,
    ears: Ears,
    symmetrize: bool,
    deduplicate: bool,
    self_loops: str,
    data: bool,
    merge_weights: str,
) -> None:
    options = {"symmetrize": symmetrize, "deduplicate": deduplicate, "self_loops": self_loops}
    options["merge_weights"] = merge_weights
    rng = np.random.default_rng(4 * symmetrize + 2 * deduplicate + data)
    for trial, (num_nodes, number) in enumerate([(3, 0), (9, 60), (40, 70), (5, 900)]):
        table = random_edges(rng, num_nodes, num_nodes, number, data)
        dataset = make_dataset(
            {"node": (num_nodes, {})}, {NODE: table}, node_splits(num_nodes), shard_rows=23, name=f"data{trial}"
        )
        graph = preprocess(dataset, ears, **options)
        rows = reference(num_nodes, [table], options)
        check(graph, rows, data)
        loops = int((table["src"] == table["dst"]).sum())
        report = graph.manifest.report["edges"]
        assert report["num_self_loops"] == loops
        drawn = zip(table["src"].tolist(), table["dst"].tolist(), strict=True)
        kept = [ends for ends in drawn if ends[0] != ends[1] or self_loops == "keep"]
        distinct = {tuple(sorted(ends)) if symmetrize else ends for ends in kept}
        merged = len(kept) - len(distinct) if deduplicate else 0
        assert report["num_merged"] == merged
        said = f"{merged:,} edges were merged with others between the same nodes"
        if data:
            said += (
                ": messages carry only the first one's values (time, x); preprocess.deduplicate=false keeps all edges"
            )
        else:
            said += " (preprocess.deduplicate=false keeps all)"
        assert [text for text in ears.messages if "were merged" in text] == ([said] if merged else [])
        assert graph.manifest.warnings == ((said,) if merged and data else ())
        ears.messages.clear()


@pytest.mark.parametrize("symmetrize", [True, False])
def test_weights_that_add_up_to_no_number_are_refused(
    make_dataset: Any, node_splits: Any, preprocess: Any, symmetrize: bool
) -> None:
    src, dst = ([0, 1, 2], [1, 0, 3]) if symmetrize else ([0, 0, 2], [1, 1, 3])
    table = {"src": np.array(src, np.int32), "dst": np.array(dst, np.int32), "weight": np.full(3, 3e38, np.float32)}
    dataset = make_dataset({"node": (4, {})}, {NODE: table}, node_splits(4))
    merged = 2 if symmetrize else 1
    with pytest.raises(DataError, match=rf"more than float32 holds .* on {merged} merged edges; set preprocess.merge"):
        preprocess(dataset, symmetrize=symmetrize)
    graph = preprocess(dataset, symmetrize=symmetrize, merge_weights="max")
    assert set(graph["edge_weight"].tolist()) == {float(np.float32(3e38))}


@pytest.mark.parametrize("symmetrize", [True, False])
@pytest.mark.parametrize("self_loops", ["remove", "add"])
def test_types_share_one_id_space(
    make_dataset: Any, node_splits: Any, preprocess: Any, symmetrize: bool, self_loops: str
) -> None:
    rng = np.random.default_rng(3)
    number = {"author": 11, "paper": 17}
    writes = random_edges(rng, 11, 17, 60, data=True)
    cites = random_edges(rng, 17, 17, 50, data=False)  # no weight: 1
    reviews = random_edges(rng, 11, 17, 40, data=False)
    dataset = make_dataset(
        {name: (n, {"label": rng.integers(0, 2, n)} if name == "paper" else {}) for name, n in number.items()},
        {
            ("author", "writes", "paper"): writes,
            ("paper", "cites", "paper"): cites,
            ("author", "reviews", "paper"): reviews,
        },
        node_splits(17),
        shard_rows=13,
        target_type="paper",
    )
    options = {"symmetrize": symmetrize, "deduplicate": True, "self_loops": self_loops, "merge_weights": "sum"}
    graph = preprocess(dataset, **options)
    manifest = graph.manifest
    relations = ["author__writes__paper", "paper__cites__paper", "author__reviews__paper"]
    relations += ["paper__rev_writes__author", "paper__rev_reviews__author"] if symmetrize else []
    relations += ["self_loop"] if self_loops == "add" else []
    assert list(manifest.edge_types) == relations
    ends = ((0, 1), (1, 1), (0, 1)) + (((1, 0), (1, 0)) if symmetrize else ())
    assert manifest.relation_ends == (() if self_loops == "add" else ends)
    has_x = {
        name: name in ("author__writes__paper", "paper__rev_writes__author")
        for name in relations
        if name != "self_loop"
    }
    assert {name: columns.numeric for name, columns in manifest.relation_columns.items()} == {
        name: (0, 1) if has else () for name, has in has_x.items()
    }
    absent = {"weight": np.ones(60, np.float32), "time": np.zeros(60, np.int64), "x": np.zeros((60, 2), np.float32)}
    tables = [
        {**writes, "dst": writes["dst"] + 11, "type": 0, "reverse": 3},
        {"src": cites["src"] + 11, "dst": cites["dst"] + 11, "type": 1, "reverse": 1, **absent},
        {"src": reviews["src"], "dst": reviews["dst"] + 11, "type": 2, "reverse": 4, **absent},
    ]
    rows = reference(28, tables, options)
    check(graph, rows, data=True)
    drawn = [(t, *ends) for t, table in enumerate(tables) for ends in zip(table["src"], table["dst"], strict=True)]
    drawn = [(t, *(sorted(ends) if symmetrize else ends)) for t, *ends in drawn if ends[0] != ends[1]]
    assert manifest.report["edges"]["num_merged"] == len(drawn) - len(set(drawn)) > 9
    loop = relations.index("self_loop") if self_loops == "add" else None
    assert graph["edge_type"].tolist() == [loop if e["type"] is None else e["type"] for row in rows for e in row]
    assert graph["node_type"].tolist() == [0] * 11 + [1] * 17
    assert manifest.type_offsets == (0, 11, 28)
    assert graph["label"][:11].tolist() == [-1] * 11
    assert graph["train_idx"].tolist() == [11 + i for i in range(0, 17, 3)]


def test_categorical_edge_features_get_a_code_where_there_is_none(
    make_dataset: Any, node_splits: Any, preprocess: Any
) -> None:
    edges = {"src": np.array([0, 1]), "dst": np.array([1, 2]), "bond": np.array([[0, 2], [1, 1]], np.int32)}
    dataset = make_dataset({"node": (3, {})}, {NODE: edges}, node_splits(3), cardinalities={"bond": (4, 3)})
    graph = preprocess(dataset, self_loops="remove")
    assert graph.manifest.edge_categories == (4, 3)
    assert graph["edge_feat_cat"].tolist() == [[0, 2], [0, 2], [1, 1], [1, 1]]
    graph = preprocess(dataset, self_loops="add")
    assert graph.manifest.edge_categories == (5, 4)
    assert graph["edge_feat_cat"].tolist() == [[4, 3], [0, 2], [0, 2], [4, 3], [1, 1], [1, 1], [4, 3]]


@pytest.mark.parametrize(("code", "declared"), [(3, (4, 3)), (-1, (4, 3)), (-1, ())])
def test_codes_of_edges_that_the_column_has_not_are_refused(
    make_dataset: Any, node_splits: Any, preprocess: Any, code: int, declared: tuple[int, ...]
) -> None:
    bond = np.zeros((9, 2), np.int32)
    bond[8, 1] = code
    edges = {"src": np.arange(9), "dst": np.arange(1, 10), "bond": bond}
    dataset = make_dataset({"node": (10, {})}, {NODE: edges}, node_splits(10), cardinalities={"bond": declared})
    with pytest.raises(
        DataError, match=rf"00001\.parquet \(row 1, column 'bond', value 1\): the code {code} is not in"
    ):
        preprocess(dataset)


def test_edge_between_graphs_is_refused(make_dataset: Any, preprocess: Any) -> None:
    tables = {
        "graphs": {"graph_id": np.arange(3), "num_nodes": np.array([2, 3, 2]), "label": np.array([0, 1, 1])},
        **{f"split/{s}": {"graph_id": np.array([i])} for i, s in enumerate(("train", "valid", "test"))},
    }
    fields = {"task": "graph", "num_graphs": 3, "task_type": "binary"}
    inside = {"src": np.array([0, 2, 5]), "dst": np.array([1, 4, 6])}
    graph = preprocess(make_dataset({"node": (7, {})}, {NODE: inside}, tables, name="inside", **fields))
    assert graph["graph_offsets"].tolist() == [0, 2, 5, 7]
    assert graph["graph_label"].tolist() == [[0.0], [1.0], [1.0]]
    across = {"src": np.array([0, 2]), "dst": np.array([1, 5])}
    with pytest.raises(DataError, match="within a graph"):
        preprocess(make_dataset({"node": (7, {})}, {NODE: across}, tables, name="across", **fields))
    tables["graphs"]["num_nodes"] = np.array([2, 3, 1])
    with pytest.raises(DataError, match="num_nodes"):
        preprocess(make_dataset({"node": (7, {})}, {NODE: inside}, tables, name="sizes", **fields))


def test_types_know_their_own_columns(make_dataset: Any, node_splits: Any, preprocess: Any) -> None:
    """Types share one matrix: each is said to have the columns that its own table gave."""
    rng = np.random.default_rng(4)
    tables = {
        "author": (5, {"age": rng.random(5).astype(np.float32), "country": np.array(list("abcab"))}),
        "paper": (7, {"x": rng.random((7, 2)).astype(np.float32), "age": rng.random(7).astype(np.float32)}),
        "venue": (3, {}),
    }
    tables["paper"][1]["label"] = rng.integers(0, 2, 7)
    edges = {("author", "writes", "paper"): random_edges(rng, 5, 7, 20, data=False)}
    graph = preprocess(make_dataset(tables, edges, node_splits(7), target_type="paper"))
    columns = graph.manifest.type_columns
    assert graph.manifest.feature_dim == 3
    assert columns["author"].numeric == (0,)
    assert sorted(columns["paper"].numeric) == [0, 1, 2]
    assert [columns[name].categorical for name in ("author", "paper", "venue")] == [(0,), (), ()]
    np.testing.assert_array_equal(np.asarray(graph["feat"])[:5, 1:], 0)
