"""Scores of pairs by the vectors that a model has, where its own head scores them otherwise."""

from __future__ import annotations

import numpy as np
import torch

from models.vectors.base import VectorModel
from tasks.evaluators.metrics import Array
from tasks.storage.graph_store import slices

_NUMBERS_AT_A_TIME = 1 << 22
_TINY = 1e-30


def scores_by_vectors(model: VectorModel, pairs: Array) -> dict[str, Array]:
    """Score pairs, int (n, 2), by `dot` and `cosine` of their ends' vectors as they were learnt: float32 (n,) each.

    Left out is the one that the model's own head takes.
    """
    found = {name: np.empty(len(pairs), np.float32) for name in ("dot", "cosine")}
    table, lengths = model.table, model.lengths
    for part in slices(len(pairs), max(1, _NUMBERS_AT_A_TIME // table.shape[1])):
        ends = torch.from_numpy(np.asarray(pairs[part], np.int64))
        source, target = (table[ends[:, column]].float() for column in (0, 1))
        product = (source * target).sum(1)
        cosine = product / (source.norm(dim=1) * target.norm(dim=1)).clamp(min=_TINY)
        found["cosine"][part] = cosine.numpy()
        found["dot"][part] = (cosine * lengths[ends[:, 0]] * lengths[ends[:, 1]]).numpy()
    found.pop(model.config.score, None)
    return found
