"""Which training triples support a triple: those whose scores rise with its own.

The effect of a training triple is the cosine of two gradients, that of its score and that of the asked triple's, by all
rows of the tables that both have: 1 where a step that makes the one likelier makes the other likelier as much, 0 where
it does nothing to it. That is the first order of what training on it once more would do; nothing is trained anew (which
gradient rollback, Lawrence et al., https://arxiv.org/abs/2012.12053, keeps every step of a training for). Looked at
are the training triples of either entity.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from models.kernels.similarity.rows import plain_pairs
from models.knowledge.base import KnowledgeModel, made_queries
from tasks.arrays import Array
from tasks.explain.answers import Answer, Words
from tasks.explain.base import Effects, Explanation
from tasks.explain.neighborhood import EdgeUnits, Neighborhood
from tasks.inference.opened import Opened
from tasks.inference.triples import TripleSplits
from tasks.storage.ids import relation_names

METHOD = "gradient similarity"


def explain_triples(opened: Opened, asked: Array, most: int) -> Iterator[Answer]:
    """Yield explanations of triples, int64 (n, 3); at most `most` training triples of either entity are looked at."""
    assert isinstance(opened.model, KnowledgeModel)
    train = TripleSplits(opened.store).triples("train")
    edges, relations = np.asarray(train.edges), np.asarray(train.relations)
    typed = len(opened.store.manifest.node_types) > 1
    names = relation_names(opened.dataset)
    for head, relation, tail in asked.tolist():
        beside = np.flatnonzero(np.isin(edges, (head, tail)).any(1))
        notes = ["the cosine of the gradients of both scores: 1 where what makes one likelier makes the other so"]
        if len(beside) > most:
            notes.append(f"{most:,} of {len(beside):,} training triples of both entities were looked at")
            beside = beside[:: -(-len(beside) // most)]
        triples = np.column_stack([edges[beside, 0], relations[beside], edges[beside, 1]])
        score, effect = similarities(opened.model, np.array([head, relation, tail]), triples)
        nodes, local = np.unique(np.concatenate([[head, tail], triples[:, [0, 2]].ravel()]), return_inverse=True)
        ends = local[2:].reshape(-1, 2)
        hop = np.where(np.isin(nodes, (head, tail)), 0, 1)
        units = EdgeUnits(ends[:, 0], ends[:, 1], triples[:, 1], np.ones(len(triples), np.int64), both_ways=False)
        explanation = Explanation(score, [Effects("edge", effect, np.arange(len(effect)))], notes)
        words = Words(opened.ids.lookup(nodes, typed=typed), [], names.to_pylist())
        ids = opened.ids.lookup(np.array([head, tail]), typed=typed).to_pylist()
        of_asked = {"head": ids[0], "asked_relation": names[relation].as_py(), "tail": ids[1]}
        hood = Neighborhood(nodes, hop, [], [], units, True)
        yield Answer(of_asked, "score", explanation, METHOD, hood, words, local[:2], directed=True)


def similarities(model: KnowledgeModel, asked: Array, triples: Array) -> tuple[float, Array]:
    """Return the score of a triple, int64 (3,), and the cosines of its gradient with those of others: float64 (n,)."""
    score, *own = _gradients(model, asked[None])
    _, *others = _gradients(model, triples)
    shared = torch.zeros(len(triples), dtype=torch.float64)
    for place, of_own in zip((0, 1, 2), own, strict=True):
        for other_place, of_others in zip((0, 1, 2), others, strict=True):
            if (place == 1) == (other_place == 1):
                same = torch.from_numpy(triples[:, other_place] == asked[place])
                shared += torch.where(same, (of_own * of_others).sum(1), 0.0)
    lengths = [torch.stack([part.square().sum(1) for part in parts]).sum(0).sqrt() for parts in (own, others)]
    return float(score[0]), (shared / (lengths[0] * lengths[1]).clamp(min=1e-30)).numpy()


def _gradients(model: KnowledgeModel, triples: Array) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return scores (n,), asked for tails, and their gradients by each triple's own rows: float64 (n, width) each."""
    heads, numbers, tails = (torch.from_numpy(np.ascontiguousarray(column)) for column in triples.T)
    assert model.table is not None
    with torch.enable_grad():
        rows = [
            table[at].detach().double().requires_grad_()
            for table, at in ((model.table, heads), (model.relations, numbers), (model.table, tails))
        ]
        made = made_queries(type(model), model.config, rows[0], rows[1], torch.arange(len(heads)), "tail")
        scores = plain_pairs(model.config.similarity, made.vectors, rows[2], made.scale)
        gradients = torch.autograd.grad(scores.sum(), rows, allow_unused=True)
    filled = [torch.zeros_like(r) if g is None else torch.nan_to_num(g) for g, r in zip(gradients, rows, strict=True)]
    return scores.detach(), filled[0], filled[1], filled[2]
