"""Scores of labelled edges, and columns that edges carry, against the whole graph with these columns changed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from configs.errors import DataError, RecipeError
from configs.registry import EXPLAINERS, MODELS
from models.base import GraphModel
from tasks.apply.explanations import asked_items
from tasks.apply.given import edges_of
from tasks.explain.asked import ExplainRequest
from tasks.explain.asked_score import asked_score
from tasks.explain.base import Effects, Explanation
from tasks.explain.explained import explain
from tasks.explain.features import Features
from tasks.explain.scored import ScoredNeighborhood
from tasks.explain.soft_edges import SoftScore
from tasks.inference.opened import Opened
from tasks.inference.predictor import Predictor
from tasks.kinds.judged import Deciding
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import GraphStore
from tasks.storage.ids import IdMap, class_names
from tests.train.test_labelled_edges import home, prepared, recipe_of, save  # noqa: F401 -- a fixture

ASKED = 13
"""An edge whose kind is not the commonest."""


@pytest.fixture
def opened(home: Any) -> Opened:  # noqa: F811
    save(np.random.default_rng(1))
    table = pq.read_table("transfers.parquet")
    small = pa.array(np.log1p(table["amount"].to_numpy()))  # else scores are 0 or 1, whatever is left out
    pq.write_table(table.set_column(table.column_names.index("amount"), "amount", small), "transfers.parquet")
    _, dataset, store = prepared(recipe_of({"scored_edges": "keep"}), home)
    torch.manual_seed(1)
    config = MODELS.config({"name": "graphsage", "hidden_dim": 8, "num_layers": 2})
    model: GraphModel = MODELS.create(config, graph_facts(store.manifest))
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return Opened(store, dataset, IdMap(store, dataset), class_names(dataset), model.eval(), Predictor(store))


def looked_at(opened: Opened) -> ScoredNeighborhood:
    store, features = opened.store, [Features.of(opened.store, kind) for kind in ("", "scored_")]
    asked = asked_score(store, opened.model, None, None)
    scored = ScoredNeighborhood(store, opened.model, features[0], asked, 10**6, features[1])
    scored.look_at(np.array([ASKED]))
    return scored


def explained(scored: ScoredNeighborhood, **options: Any) -> Explanation:
    return EXPLAINERS.create(EXPLAINERS.config(options)).explain(scored)


def of_part(found: Explanation, part: str) -> Effects:
    return next(one for one in found.effects if one.part == part)


def probability(scored: ScoredNeighborhood, store: GraphStore) -> float:
    scores = Predictor(store).edge_scores(scored.model, np.array([ASKED]))
    return float(scored.asked.value(torch.from_numpy(scores))[0])


def changed(scored: ScoredNeighborhood, prefix: str, rows: Any, column: int) -> GraphStore:
    """The graph with a column of edges, amount or kind, as usual in some rows."""
    store = GraphStore(scored.store.folder, scored.store.manifest)
    name = prefix + ("feat", "feat_cat")[column]
    table = np.array(store[name])
    table[rows, 0] = scored.edge_columns.usual[column]
    store.replace(name, table)
    return store


def test_columns_as_usual_are_what_a_graph_with_them_scores(opened: Opened) -> None:
    scored = looked_at(opened)
    assert scored.names == ["x0", "x1", "x2", "amount", "kind"]
    found = explained(scored, name="removal", most=10_000)
    np.testing.assert_allclose(found.score, probability(scored, opened.store), atol=1e-6)
    effects, hood = of_part(found, "edge feature"), scored.hood
    assert effects.feature is not None
    assert effects.without is not None
    assert len(effects.place) == 2 * (1 + len(hood.units))
    indptr, indices = (np.asarray(opened.store[name]) for name in ("csc_indptr", "csc_indices"))
    target = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    for part in [*np.random.default_rng(0).permutation(len(effects.place))[:10].tolist(), 0, 1]:
        unit, column = int(effects.place[part]), int(effects.feature[part]) - 3
        rows: Any = ASKED
        if unit >= 0:
            ends = {int(hood.nodes[end[unit]]) for end in (hood.units.source, hood.units.target)}
            rows = [at for at in range(len(target)) if {int(indices[at]), int(target[at])} == ends]
            assert len(rows) == 2
        store = changed(scored, "scored_" if unit < 0 else "edge_", rows, column)
        np.testing.assert_allclose(effects.without[part], probability(scored, store), atol=1e-6)
    assert np.abs(effects.effect[effects.place >= 0]).max() > 1e-5
    assert (np.abs(effects.effect[:2]) > 1e-6).all(), "its own columns stand first"


def test_integrated_effects_of_edges_and_columns_add_up(opened: Opened) -> None:
    scored = looked_at(opened)
    found = explained(scored, name="integrated", steps=300)
    soft = SoftScore(scored)
    assert set(soft.numbers) == {"nodes", "own", "0", "1"}
    start = {name: one.usual.expand_as(one.values) for name, one in soft.numbers.items()}
    first = scored.asked.value(soft.outputs(0 * soft.ones, start))[0].item()
    np.testing.assert_allclose(sum(one.effect.sum() for one in found.effects), found.score - first, atol=2e-3)
    columns = of_part(found, "edge feature")
    assert {True, False} == set((columns.place < 0).tolist())
    assert "amount" in {scored.names[number] for number in columns.feature.tolist()}  # type: ignore[union-attr]


@pytest.mark.parametrize("method", ["removal", "integrated", "mask"])
def test_the_file_names_the_edge_and_what_its_neighbours_carry(opened: Opened, method: str) -> None:
    [answer] = explain(opened, np.array([ASKED]), {"name": method}, Deciding(opened.names), None)
    table, columns = answer.table, opened.ids.edge_columns(np.array([ASKED]))
    assert table.column_names[:4] == ["edge_id", "source_node", "target_node", "row"]
    assert table["edge_id"][0].as_py() == columns["edge_id"][0].as_py() == answer.title
    carried = [row for row in table.to_pylist() if row["feature"] == "amount"]
    assert any(row["source"] is None for row in carried)
    if method != "mask":
        assert any(row["source"] and row["target"] for row in carried)
    count = {(row["source"], row["target"]): row["count"] for row in table.to_pylist() if row["part"] == "edge"}
    assert all(row["count"] == count.get((row["source"], row["target"])) for row in carried)
    assert not [one for one in answer.sentences() if "edge from" in one], "which way nobody knows"
    said = [one for one in answer.sentences() if "x0" in one or "x1" in one or "x2" in one]
    assert all(" of n" in one for one in said) or method == "mask", "which of both ends is meant"


def test_edges_are_named_by_id_or_by_their_ends(opened: Opened, tmp_path: Path) -> None:
    every = {name: values.to_pylist() for name, values in opened.ids.edge_columns(np.arange(600)).items()}

    def asked(*named: str) -> list[int]:
        job: Any = SimpleNamespace(explained=ExplainRequest(edges=[*named]), given={})
        return asked_items(opened, job, "edges").tolist()

    place = every["edge_id"].index("t11")
    source, target, row = (every[name][place] for name in ("source", "target", "row"))
    assert asked("t11", f"{source},{target},{row}") == [place, place]
    assert asked(f"{source},{target}") == [place]
    twice = every["edge_id"].index("t0")
    source, target = every["source"][twice], every["target"][twice]
    with pytest.raises(RecipeError, match=r"2 edges join these, in rows 0, 1; add ,ROW"):
        asked(f"{source},{target}")
    with pytest.raises(RecipeError, match="no edge that could have a label joins these"):
        asked("n95,n1")
    with pytest.raises(RecipeError, match="--edge t7: is not in the data, or left out of the graph"):
        asked("t7")
    with pytest.raises(RecipeError, match="--edge nobody: is not in the data"):
        asked("nobody")

    def of_file(text: str) -> list[int]:
        (tmp_path / "asked.csv").write_text(text)
        return edges_of(opened, tmp_path / "asked.csv").tolist()

    assert of_file("edge_id\nt11\n") == of_file(f"row\n{row}\n") == [place]
    with pytest.raises(
        DataError, match=r"names no edges: its columns are transfer, x; give edges by edge_id, or by row"
    ):
        of_file("transfer,x\nt11,1\n")
    with pytest.raises(DataError, match="'u1' is not in the data; the data's ids are texts such as 't"):
        of_file("edge_id\nu1\n")
