"""Explanations of a model's scores, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from configs.registry import EXPLAINERS
from tasks.arrays import Array
from tasks.explain.answers import Answer, Words, relation_words
from tasks.explain.asked_score import asked_score
from tasks.explain.base import Explainer
from tasks.explain.features import Features
from tasks.explain.scored import ScoredNeighborhood
from tasks.inference.opened import Opened


def explain_items(
    opened: Opened, items: Array, options: dict[str, Any], classes: list[str] | None, of_class: str | None
) -> Iterator[Answer]:
    """Yield explanations of nodes, int64 (n,), or pairs, int64 (n, 2).

    `options` are the explainer's, `classes` the names of the model's classes, `of_class` one of them or None. Raises
    RecipeError: the model's scores cannot be explained so, or there is no such class.
    """
    explainer: Explainer = EXPLAINERS.create(EXPLAINERS.config(options))
    store, model = opened.store, opened.model
    columns, asked_for = Features.of(store, opened.dataset), asked_score(store, model, classes, of_class)
    scored = ScoredNeighborhood(store, model, columns, asked_for, explainer.config.most_edges)
    for item in items:
        ends = np.atleast_1d(item)
        scored.look_at(ends)
        with torch.enable_grad():  # who serves has it off
            explanation = explainer.explain(scored)
        if not scored.hood.is_whole:
            explanation.notes.append("the neighbourhood is large: of a sample of it, whose score is near the predicted")
        words = Words(opened.ids.lookup(scored.hood.nodes), columns.names, relation_words(store.manifest.edge_types))
        of_ends = ("node",) if len(ends) == 1 else ("source_node", "target_node")
        asked = {name: opened.ids.lookup(end)[0].as_py() for name, end in zip(of_ends, ends[:, None], strict=True)}
        yield Answer(asked, scored.asked.said(classes), explanation, explainer.config.name, scored.hood, words)
