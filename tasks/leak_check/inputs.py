"""What a model reads of one seed, by name, so that two states of the data can be compared bit by bit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from configs.schema import Recipe
from models.relational.batch import TypedBatch
from tasks.arrays import Array
from tasks.sampling.relational.batches import TypedNeighborhoods
from tasks.sampling.relational.links import RankedNeighborhoods
from tasks.storage.graph_store import GraphStore
from tasks.train.loaders.configs import RelationalConfig

_KEY = 20_261_127
_CANDIDATES = 16
"""Candidates whose neighbourhoods are compared for each seed, about; of all of them what they are ranked by besides."""
_ROWS, _THERE = "which rows of ", " are there"


class SeedInputs:
    """The inputs of single seeds of one graph, as a recipe's loader makes them."""

    def __init__(
        self, recipe: Recipe, options: RelationalConfig, store: GraphStore, same_ids: Array | None = None
    ) -> None:
        """Open a graph, whose batches the loader's `options` make.

        `same_ids`, int64 (num ids,): what each id of preprocess's id space is called in the names that both states of
        the data share; None: as it is.
        """
        self.store, self._types = store, store.manifest.node_types
        self._relations = store.manifest.edge_types
        fanouts = options.fanouts(getattr(recipe.model, "num_layers", 0))
        newest = options.takes_newest(store.manifest)
        # Draws of walks go by nodes' numbers, which change where rows come: the edges are compared that they see.
        is_ranked = store.manifest.ranking is not None
        self._ranked = RankedNeighborhoods(store, fanouts, newest=newest) if is_ranked else None
        self._neighborhoods = self._ranked.typed if self._ranked else TypedNeighborhoods(store, fanouts, newest=newest)
        ids = np.asarray(store["node_ids"])
        self.ids: Array = ids if same_ids is None else same_ids[ids]
        """int64 (N,): ids of nodes in preprocess's id space."""

    def nodes_of(self, ids: Array) -> Array:
        """Return the nodes that have these ids; -1 where the graph has none (a filter dropped it)."""
        order = np.argsort(self.ids)
        place = np.minimum(np.searchsorted(self.ids, ids, sorter=order), len(order) - 1)
        return np.where(self.ids[order[place]] == ids, order[place], -1)

    def named(self, node: int) -> dict[str, Array]:
        """Return all that is read of a seed, by what it is."""
        if self._ranked is not None:
            return self._named_ranking(self._ranked, np.array([node]))
        batch = self._neighborhoods.batch(np.array([node]), _KEY, torch.empty(0))
        return {name: tensor.numpy() for name, tensor in self._tensors(batch)}

    def _named_ranking(self, ranked: RankedNeighborhoods, task: Array) -> dict[str, Array]:
        """Return what both towers read of a task and of some candidates, and what scores of all of them are made of."""
        links = ranked.links
        moment = int(links.moments(task)[0])
        columns = np.flatnonzero(links.there(moment))
        batch = ranked.batch(task, columns[:: max(1, len(columns) // _CANDIDATES)], moment, _KEY)
        pairs, features = ranked.past(task, moment)
        return {
            **{name: tensor.numpy() for name, tensor in self._tensors(batch)},
            "which candidates are there": self.ids[links.candidates[columns]],
            "popularity of candidates": links.popularity(columns, moment),
            "what the entity was linked to before": self.ids[links.candidates[pairs[1].numpy()]],
            "numbers of these links": features.numpy(),
        }

    def _tensors(self, batch: TypedBatch) -> Iterator[tuple[str, Tensor]]:
        for name, found in zip(self._types, batch.inputs.types, strict=True):
            yield f"{_ROWS}{name}{_THERE}", torch.from_numpy(self.ids[found.node_ids.numpy()])
            for what, tensor in (("numbers", found.feat), ("categories", found.feat_cat), ("ages", found.age)):
                if tensor is not None:
                    yield f"{what} of {name}", tensor
        for hop, block in enumerate(reversed(batch.blocks), start=1):
            for relation in block.relations:
                number = relation.number
                name = f"{self._relations[number]}, hop {hop}"
                yield f"edges of {name}", torch.cat([relation.indptr, relation.indices.long()])
                parts = (relation.edge_feat, relation.edge_feat_cat, relation.edge_age, relation.weight)
                for what, tensor in zip(("numbers", "categories", "ages", "weights"), parts, strict=True):
                    if tensor is not None:
                        yield f"{what} of edges of {name}", tensor


def differences(before: dict[str, Array], after: dict[str, Array]) -> list[str]:
    """Return the names of what differs in a bit; what rows carry is compared where the rows are the same."""
    names = list(dict.fromkeys([*before, *after]))
    changed = [name for name in names if not _equal(before.get(name), after.get(name))]
    gone = [name for name in changed if name.startswith(_ROWS)]
    without_rows = {name.partition(" of ")[2].removesuffix(_THERE) for name in gone}
    others = [name for name in changed if not name.startswith(_ROWS)]
    return gone + [name for name in others if name.partition(" of ")[2] not in without_rows]


def _equal(one: Array | None, other: Array | None) -> bool:
    """Whether two arrays are equal to the bit; NaN too."""
    if one is None or other is None:
        return one is other
    return (one.shape, one.dtype, one.tobytes()) == (other.shape, other.dtype, other.tobytes())
