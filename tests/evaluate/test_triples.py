"""What is measured of triples beside a model's ranks: controls, kinds of relations, entities without training."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from configs.registry import MODELS
from models.facts import GraphFacts
from models.knowledge.base import KnowledgeModel
from tasks.controls.ranked.triples import AssociationControl, FrequencyControl
from tasks.evaluate.verdicts import secondary_below_controls
from tasks.inference.triples import TripleSplits
from tasks.kinds.diagnosis.triples import CATEGORIES, categories, diagnose_triples
from tasks.ranking.triples import SIDES, RankedTriples
from tasks.storage.graph_store import GraphStore
from tests.knowledge_graphs import triple_graph

NUM_ENTITIES, NUM_RELATIONS = 30, 4


def random_splits(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    drawn = np.stack(
        [
            rng.integers(0, NUM_ENTITIES, 300) ** 2 // NUM_ENTITIES,
            rng.integers(0, NUM_RELATIONS, 300),
            rng.integers(0, NUM_ENTITIES, 300),
        ],
        1,
    )
    triples = np.unique(drawn, axis=0)
    triples = triples[rng.permutation(len(triples))]
    return {"train": triples[60:], "valid": triples[:30], "test": triples[30:60]}


def opened(folder: Path, splits: dict[str, np.ndarray], num_entities: int = NUM_ENTITIES) -> TripleSplits:
    graph = triple_graph(folder, splits, num_entities)
    return TripleSplits(GraphStore(graph.folder, graph.manifest))


def brute_force(splits: dict[str, np.ndarray], test: np.ndarray, end: int) -> list[tuple[int, int, int]]:
    """Better, equal and all candidates of each triple's end, by counts of training triples and sets."""
    known = {tuple(row) for part in splits.values() for row in part.tolist()}
    counts = Counter((row[1], row[end]) for row in splits["train"].tolist())
    found = []
    for row in test.tolist():
        own = counts[row[1], row[end]]
        better = equal = candidates = 0
        for entity in range(NUM_ENTITIES):
            other = [*row]
            other[end] = entity
            if entity == row[end] or tuple(other) in known:
                continue
            candidates += 1
            better += counts[row[1], entity] > own
            equal += counts[row[1], entity] == own
        found.append((better, equal, candidates))
    return found


@pytest.mark.parametrize("seed", range(4))
def test_entities_are_ranked_by_how_often_a_relation_has_them(tmp_path: Path, seed: int) -> None:
    splits = random_splits(seed)
    graph = opened(tmp_path, splits)
    found = FrequencyControl(graph).ranks(graph.triples("test"))
    expected = brute_force(splits, splits["test"], 0) + brute_force(splits, splits["test"], 2)
    assert np.stack([found.better, found.equal, found.candidates], 1).tolist() == [list(row) for row in expected]


def test_given_candidates_are_ranked_by_the_same_counts(tmp_path: Path) -> None:
    splits = random_splits(5)
    graph = opened(tmp_path, splits)
    rng = np.random.default_rng(1)
    test = graph.triples("test")
    given = rng.integers(0, NUM_ENTITIES, (len(test), 7, 2))
    found = FrequencyControl(graph).ranks(RankedTriples(test.edges, test.relations, given))
    counts = [Counter((row[1], row[end]) for row in splits["train"].tolist()) for end in (0, 2)]
    for side in (0, 1):
        for i, row in enumerate(splits["test"].tolist()):
            own = row[0 if side == 0 else 2]
            others = [int(entity) for entity in given[i, :, side] if entity != own]
            bar = counts[side][row[1], own]
            place = side * len(test) + i
            assert found.better[place] == sum(counts[side][row[1], entity] > bar for entity in others)
            assert found.equal[place] == sum(counts[side][row[1], entity] == bar for entity in others)
            assert found.candidates[place] == len(others)


def associated(train: list[list[int]], given: int, relation: int, end: int) -> dict[int, int]:
    """Candidates for the end (0: head, 2: tail) of a query and their scores, as the control's text has them."""
    holders: dict[tuple[int, int, int], set[int]] = {}
    for row in train:
        for side in (0, 2):
            holders.setdefault((side, row[1], row[2 - side]), set()).add(row[side])
    likeness: Counter[int] = Counter()
    for own in holders.values():
        if given in own:
            for entity in own - {given}:
                likeness[entity] += round(65536 / np.log(1 + len(own)))
    found: Counter[int] = Counter()
    for row in train:
        if row[1] == relation and likeness[row[2 - end]]:
            found[row[end]] += likeness[row[2 - end]]
    return dict(found)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("with_candidates", [False, True])
def test_entities_are_ranked_by_what_similar_ones_have(tmp_path: Path, seed: int, with_candidates: bool) -> None:
    splits = random_splits(seed)
    graph = opened(tmp_path, splits)
    test = graph.triples("test")
    given = np.random.default_rng(seed).integers(0, NUM_ENTITIES, (len(test), 9, 2)) if with_candidates else None
    ranks = AssociationControl(graph).ranks(RankedTriples(test.edges, test.relations, given))
    train = np.unique(splits["train"], axis=0).tolist()
    known = {tuple(row) for rows in splits.values() for row in rows.tolist()}
    somewhere = 0
    for place, (side, i) in enumerate((side, i) for side in (0, 1) for i in range(len(test))):
        row, end = splits["test"][i].tolist(), 2 * side
        scores = associated(train, row[2 - end], row[1], end)
        others = range(NUM_ENTITIES) if given is None else [int(entity) for entity in given[i, :, side]]
        completed = {entity: (*row[:end], entity, *row[end + 1 :]) for entity in others}
        counted = [e for e in others if e != row[end] and (given is not None or completed[e] not in known)]
        own = scores.get(row[end], 0)
        somewhere += own > 0
        assert ranks.better[place] == sum(scores.get(entity, 0) > own for entity in counted)
        assert ranks.equal[place] == sum(scores.get(entity, 0) == own for entity in counted)
        assert ranks.candidates[place] == len(counted)
    assert somewhere > len(test) / 2


def test_kinds_of_relations(tmp_path: Path) -> None:
    one = [[head, 0, head + 1] for head in range(5)]
    many_tails = [[0, 1, tail] for tail in range(1, 6)]
    many_heads = [[head, 2, 0] for head in range(1, 6)]
    both = [[head, 3, tail] for head in range(4) for tail in range(5, 9)]
    train = np.array(one + many_tails + many_heads + both)
    graph = opened(tmp_path, {"train": train, "valid": train[:1], "test": train[:1]})
    assert [CATEGORIES[place] for place in categories(graph)] == ["1-1", "1-N", "N-1", "N-N"]


def test_a_report_of_triples(tmp_path: Path) -> None:
    splits = random_splits(2)
    splits["test"] = np.concatenate([splits["test"], [[1, 0, NUM_ENTITIES], [NUM_ENTITIES + 1, 2, 3]]])
    graph = opened(tmp_path, splits, NUM_ENTITIES + 2)
    options = MODELS.config({"name": "distmult", "dim": 8})
    facts = GraphFacts("triple", 1, NUM_ENTITIES + 2, num_relations=NUM_RELATIONS)
    model: KnowledgeModel = MODELS.create(options, facts)
    torch.nn.init.normal_(model.table)
    model.relations.normal_()
    ranks = graph.ranks(model, graph.triples("test"))
    found = diagnose_triples(model, graph, "test", ranks, ["a", "b", "c", "d"])["triples"]
    reciprocal = (1 / ranks.mean).reshape(2, -1).mean(0)
    for row in found["relations"]:
        own = splits["test"][:, 1] == "abcd".index(row["relation"])
        assert row["triples"] == own.sum()
        assert row["mrr"] == pytest.approx(reciprocal[own].mean())
        ends = ranks.mean.reshape(2, -1)[:, own]
        assert row["hits@10"] == pytest.approx((ends <= 10).mean())
        assert [row[f"hits@10_{end}"] for end in SIDES] == pytest.approx((ends <= 10).mean(1))
        assert [row[f"mrr_{end}"] for end in SIDES] == pytest.approx((1 / ends).mean(1))
    [kind] = [row for row in found["categories"] if row["category"] == found["relations"][0]["category"]]
    of_kind = [row for row in found["relations"] if row["category"] == kind["category"]]
    for name in ("mrr", "hits@1", "hits@10"):
        weighted = sum(row["triples"] * row[name] for row in of_kind) / kind["triples"]
        assert kind[name] == pytest.approx(weighted)
    assert sum(row["queries"] for row in found["frequency"]) == 2 * len(splits["test"])
    assert found["frequency"][0]["from"] == 0
    assert found["frequency"][0]["queries"] == 2
    unseen = found["unseen"]
    assert (unseen["entities"], unseen["triples"]) == (2, 2)
    assert unseen["metrics"]["mrr"] > (1 / ranks.mean)[np.tile(np.arange(len(reciprocal)) < 30, 2)].mean() - 1e-9


def test_a_good_model_gets_no_warning_of_its_ties() -> None:
    model = {"mrr": 0.9, "mean_rank": 2.5, "mrr_optimistic": 0.9, "mrr_pessimistic": 0.9}
    chance = {"mrr": 0.04, "mean_rank": 74.0, "mrr_optimistic": 1.0, "mrr_pessimistic": 0.007}
    report = {
        "metrics": {"test": model},
        "controls": {"chance": {"test": chance}},
        "report": {"telling_rows": {"test": 500}},
    }
    assert secondary_below_controls("mrr", report) == []
    report["metrics"]["test"] = {**model, "mean_rank": 90.0}
    assert "mean_rank 90.0000 against 74.0000" in secondary_below_controls("mrr", report)[0]
