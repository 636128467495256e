"""What a report draws of ranked triples: by relation, by kind of relation, by how often an entity was met."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.knowledge.base import KnowledgeModel
from tasks.arrays import Array
from tasks.evaluators import metrics
from tasks.evaluators.metrics import Floats
from tasks.inference.triples import TripleSplits, means_of_relations
from tasks.ranking.ranks import TripleRanks
from tasks.ranking.triples import SIDES

MOST_RELATIONS = 200
"""That are listed, those with the most triples."""
_MANY = 1.5
"""Ends that a relation joins to the other end, on average, from which it is called N (TransE, NeurIPS 2013)."""
CATEGORIES = ("1-1", "1-N", "N-1", "N-N")


def diagnose_triples(
    model: KnowledgeModel, splits: TripleSplits, split: str, ranks: TripleRanks, names: list[str]
) -> dict[str, Any]:
    """Return `relations`, `categories`, `frequency` and `unseen` of a split.

    Args:
        model: what made the ranks.
        splits: the graph's triples.
        split: those that were ranked.
        ranks: of heads, then of tails.
        names: of relations.
    """
    triples = splits.triples(split)
    by_side = ranks.mean.reshape(2, -1)  # heads, tails
    category = categories(splits)
    return {
        "triples": {
            "relations": by_relation(triples.relations, by_side, category, names),
            "categories": by_category(category[triples.relations], by_side),
            "frequency": by_frequency(splits, triples.edges, 1 / by_side),
            "unseen": without_unseen(model, splits, split),
        }
    }


def categories(splits: TripleSplits) -> NDArray[np.int64]:
    """Return the place in CATEGORIES of each relation, (R,), by its training triples."""
    tails_a_head, heads_a_tail = means_of_relations(splits.store)
    return np.asarray(2 * (heads_a_tail >= _MANY) + (tails_a_head >= _MANY), np.int64)


def by_relation(relations: Array, ranks: Floats, category: Array, names: list[str]) -> list[dict[str, Any]]:
    """Return the relations with the most triples, those first; `ranks` (2, n) of heads and tails."""
    counts = np.bincount(relations, minlength=len(names))
    order, ends = np.argsort(relations, kind="stable"), np.cumsum(counts)
    chosen = np.argsort(-counts, kind="stable")[:MOST_RELATIONS]
    return [
        {
            "relation": names[number],
            "triples": int(counts[number]),
            "category": CATEGORIES[category[number]],
            **measures(ranks[:, order[ends[number] - counts[number] : ends[number]]]),
        }
        for number in chosen.tolist()
        if counts[number]
    ]


def by_category(category: Array, ranks: Floats) -> list[dict[str, Any]]:
    """Return each kind of relation that the split has; `ranks` (2, n) of heads and tails."""
    return [
        {"category": name, "triples": int(rows.sum()), **measures(ranks[:, rows])}
        for number, name in enumerate(CATEGORIES)
        if (rows := category == number).any()
    ]


def measures(ranks: Floats) -> dict[str, float]:
    """Return MRR and Hits of ranks (2, n), and those of heads and of tails by themselves."""
    values = {"mrr": 1 / ranks, **{f"hits@{k}": ranks <= k for k in (1, 10)}}
    means = {name: float(value.mean()) for name, value in values.items()}
    for end, side in enumerate(SIDES):
        means |= {f"{name}_{side}": float(values[name][end].mean()) for name in ("mrr", "hits@10")}
    return means


def by_frequency(splits: TripleSplits, edges: Array, reciprocal: Array) -> list[dict[str, Any]]:
    """Return the MRR by the number of training triples of what is ranked: 0, 1, 2-3, 4-7, ..."""
    train = np.asarray(splits.store["train_edges"]).reshape(-1)
    counts = np.bincount(train, minlength=splits.store.manifest.num_nodes)[np.asarray(edges).T]
    _, place = np.frexp(counts.astype(np.float64))
    return [
        {
            "from": 0 if number == 0 else 1 << (number - 1),
            "queries": int(rows.sum()),
            "mrr": float(reciprocal[rows].mean()),
        }
        for number in range(int(place.max(initial=0)) + 1)
        if (rows := place == number).any()
    ]


def without_unseen(model: KnowledgeModel, splits: TripleSplits, split: str) -> dict[str, Any]:
    """Return `entities` and `triples` with entities that training never saw, and the metrics without them.

    They are neither asked for nor ranked against there; the metrics of the split count them, as LibKGE does.
    """
    triples, is_seen = splits.triples(split), splits.is_seen
    rows = is_seen[np.asarray(triples.edges)].all(1)
    unseen: dict[str, Any] = {"entities": int((~is_seen).sum()), "triples": int((~rows).sum())}
    if unseen["entities"] and triples.candidates is None and rows.any():
        unseen["metrics"] = metrics.mrr_of_triples(splits.ranks(model, triples.taken(rows), is_seen))
    return unseen
