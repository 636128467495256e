"""Explanations of a model's scores, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from configs.registry import EXPLAINERS
from models.knowledge.base import KnowledgeModel
from models.layers.output_heads import EdgeHead
from models.relational.base import RelationalModel
from tasks.arrays import Array
from tasks.explain.answers import Answer, Words, relation_words
from tasks.explain.asked_score import asked_score
from tasks.explain.base import Explainer
from tasks.explain.features import Features
from tasks.explain.neighborhood import forward_relations
from tasks.explain.scored import ScoredNeighborhood
from tasks.inference.opened import Opened
from tasks.kinds.judged import Deciding


def explain(
    opened: Opened, items: Array, options: dict[str, Any], deciding: Deciding, of_class: str | None
) -> Iterator[Answer]:
    """Yield explanations of what a kind's rows are, as `explain_items` does of those around which hops lie."""
    if isinstance(opened.model, KnowledgeModel):
        from tasks.explain.triples import explain_triples

        return explain_triples(opened, items, EXPLAINERS.config(options).most_edges)  # type: ignore[attr-defined]
    from tasks.explain.rows import explain_rows

    of_kind = explain_rows if isinstance(opened.model, RelationalModel) else explain_items
    return of_kind(opened, items, options, deciding, of_class)


def explain_items(
    opened: Opened, items: Array, options: dict[str, Any], deciding: Deciding, of_class: str | None
) -> Iterator[Answer]:
    """Yield explanations of nodes or labelled edges, int64 (n,), or pairs, int64 (n, 2).

    `options` are the explainer's, `deciding` says which class is predicted, `of_class` is a class, None: that one.
    Raises RecipeError: the model's scores cannot be explained so, or there is no such class.
    """
    explainer: Explainer = EXPLAINERS.create(EXPLAINERS.config(options))
    store, model, config = opened.store, opened.model, explainer.config
    prefix = "scored_" if isinstance(model.head, EdgeHead) else "edge_"
    columns = [Features.of(store, kind) for kind in ("", prefix)]
    asked_for, types = asked_score(store, model, deciding, of_class), store.manifest.edge_types
    relations, forward = relation_words(types), forward_relations(types)
    reversible = {relations[number] for place, number in enumerate(forward) if place != number}
    either_way = frozenset(relations) - reversible if store.manifest.symmetric else frozenset()
    scored = ScoredNeighborhood(store, model, columns[0], asked_for, config.most_edges, columns[1])
    for item in items:
        scored.look_at(np.atleast_1d(item))
        with torch.enable_grad():  # who serves has it off
            explanation = explainer.explain(scored)
        if not scored.hood.is_whole:
            explanation.notes.append("the neighbourhood is large: of a sample of it, whose score is near the predicted")
        words = Words(opened.ids.lookup(scored.hood.nodes), scored.names, relations, either_way)
        asked = _asked(opened, np.atleast_1d(item), of_edge=scored.own is not None)
        of_pairs = scored.rows, opened.dataset.manifest.directed
        yield Answer(asked, scored.asked.said(), explanation, config.name, scored.hood, words, *of_pairs)


def _asked(opened: Opened, item: Array, *, of_edge: bool) -> dict[str, Any]:
    """Return what names an item in a file; `source` and `target` are those of what moved the score."""
    if of_edge:
        columns = opened.ids.edge_columns(item)
        return {f"{name}_node" if name in ("source", "target") else name: columns[name][0].as_py() for name in columns}
    names = ("node",) if len(item) == 1 else ("source_node", "target_node")
    return {name: opened.ids.lookup(end)[0].as_py() for name, end in zip(names, item[:, None], strict=True)}
