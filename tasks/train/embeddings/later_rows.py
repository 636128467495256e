"""Rows of tables that came later than all that a training sees: their learnt vectors stay what they begin with."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from models.relational.base import RelationalModel
from tasks.storage.graph_store import ALWAYS, GraphStore


def clear_later_rows(model: nn.Module, store: GraphStore) -> None:
    """Set the learnt vectors of such rows to 0, as if there were none: else what they begin with is noise in scores.

    A task sees rows before its moment; a row that is predicted itself also what is of its own time.
    """
    if not isinstance(model, RelationalModel) or not model.embedded or "node_time" not in store:
        return
    time, facts = np.asarray(store["node_time"]), model.facts
    last = int(time[store.training_rows()].max(initial=ALWAYS))
    if last == ALWAYS:
        return  # what is predicted has no times, and sees everything
    is_task = facts.label_type != facts.seed_type
    later = np.flatnonzero(time >= last if is_task else time > last)
    own = later if "node_ids" not in store else np.asarray(store["node_ids"][later], np.int64)
    offsets, first = store.manifest.type_offsets, 0
    assert model.encoder.embedding is not None
    weight: Any = model.encoder.embedding.weight
    with torch.no_grad():
        for t in model.embedded:
            numbers = own[(own >= offsets[t]) & (own < offsets[t + 1])] - offsets[t]
            weight[torch.from_numpy(first + numbers)] = 0
            first += facts.type_sizes[t]
