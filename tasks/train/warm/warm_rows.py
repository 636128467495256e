"""Begin with the rows of an earlier snapshot's knowledge graph: of the entities and relations that it knew."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from configs.errors import IntegrityError
from tasks.arrays import Array
from tasks.storage.graph_store import GraphStore
from tasks.train.state import checkpoint
from tasks.train.warm.warm_start import WarmStart
from tasks.train.warm.warm_weights import (
    DoesNotFitError,
    earlier_graph,
    refuse_held_out_knowledge,
    same_nodes,
    same_relations,
)


@dataclass(frozen=True)
class EarlierRows:
    """Rows, and whose they are now."""

    entities: Tensor
    """float32 (N, dim), of the earlier graph; in a file."""
    place: NDArray[np.int64]
    """For each entity of the present graph its row there, (n,); -1: it was not there."""
    relations: Tensor
    """float32 (R, width), with those of ways back behind the others."""
    relation_place: NDArray[np.int64]
    """For each of these rows its row in the present table; -1: the relation is no longer there."""

    def fill(self, nodes: Array, rows: NDArray[np.float32]) -> None:
        """Replace the rows (m, dim) of entities (m,) that were there."""
        place = self.place[nodes]
        known = np.flatnonzero(place >= 0)
        rows[known] = self.entities[torch.from_numpy(place[known])].numpy()


def earlier_rows(warm: WarmStart, store: GraphStore, options: Any) -> EarlierRows:
    """Open the rows of an earlier training.

    Args:
        warm: which it is.
        store: the present graph.
        options: of the present model.

    Raises:
        DoesNotFitError: they are of another width, or learnt from what is held out now.
    """
    try:
        state = checkpoint.load(warm.checkpoint, mapped=True)["model"]
    except IntegrityError as error:
        raise DoesNotFitError(str(error)) from error
    (name,) = (name for name in state if name.startswith("encoder."))
    entities, relations = state[name], state["relations"]
    before = earlier_graph(warm)
    expected = options.relation_rows(before.manifest.num_relations), options.relation_width
    if entities.shape[1] != options.dim or tuple(relations.shape) != expected:
        raise DoesNotFitError(
            f"rows of entities have {entities.shape[1]} numbers and those of relations {relations.shape[1]}, here "
            f"{options.dim} and {options.relation_width}"
        )
    refuse_held_out_knowledge(warm, before, store)
    nodes, others = (np.arange(graph.manifest.num_nodes) for graph in (store, before))
    rows, known = same_nodes(warm, before, store, others, nodes)
    place = np.full(len(nodes), -1, np.int64)
    place[rows] = known
    own = same_relations(warm)
    parts = [own]
    if options.inverse_relations:
        parts.append(np.where(own >= 0, own + store.manifest.num_relations, -1))
    return EarlierRows(entities, place, relations, np.concatenate(parts))
