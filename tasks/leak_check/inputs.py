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
from tasks.storage.graph_store import GraphStore
from tasks.train.loaders.configs import RelationalConfig

_KEY = 20_261_127
_ROWS, _THERE = "which rows of ", " are there"


class SeedInputs:
    """The inputs of single seeds of one graph, as a recipe's loader makes them."""

    def __init__(self, recipe: Recipe, options: RelationalConfig, store: GraphStore) -> None:
        """`options`: the loader's."""
        self.store, self._types = store, store.manifest.node_types
        self._relations = store.manifest.edge_types
        fanouts = options.fanouts(getattr(recipe.model, "num_layers", 0))
        self._neighborhoods = TypedNeighborhoods(store, fanouts, newest=options.takes_newest(store.manifest))
        self.ids = np.asarray(store["node_ids"])
        """int64 (N,): ids of nodes in preprocess's id space."""

    def nodes_of(self, ids: Array) -> Array:
        """Return the nodes that have these ids; -1 where the graph has none (a filter dropped it)."""
        order = np.argsort(self.ids)
        place = np.minimum(np.searchsorted(self.ids, ids, sorter=order), len(order) - 1)
        return np.where(self.ids[order[place]] == ids, order[place], -1)

    def asked_about(self, nodes: Array) -> tuple[str, Array]:
        """Return the node type of the rows that seeds (n,) ask about, and these rows, int64 (n,) of the type."""
        manifest, kind = self.store.manifest, self._neighborhoods.facts.seed_type
        moments = self._neighborhoods.moments
        assert moments is not None, "rankings have seeds of their own"
        rows = self.ids[moments.entities(nodes)] - manifest.type_offsets[kind]
        return manifest.node_types[kind], rows

    def named(self, node: int) -> dict[str, Array]:
        """Return all that is read of a seed, by what it is."""
        batch = self._neighborhoods.batch(np.array([node]), _KEY, torch.empty(0))
        return {name: tensor.numpy() for name, tensor in self._tensors(batch)}

    def _tensors(self, batch: TypedBatch) -> Iterator[tuple[str, Tensor]]:
        for name, found in zip(self._types, batch.inputs.types, strict=True):
            yield f"{_ROWS}{name}{_THERE}", torch.from_numpy(self.ids[found.node_ids.numpy()])
            for what, tensor in (("numbers", found.feat), ("categories", found.feat_cat), ("ages", found.age)):
                if tensor is not None:
                    yield f"{what} of {name}", tensor
        for hop, block in enumerate(reversed(batch.blocks), start=1):
            for relation in block.relations:
                name = f"{self._relations[relation.number]}, hop {hop}"
                yield f"edges of {name}", torch.cat([relation.indptr, relation.indices.long()])
                parts = (relation.edge_feat, relation.edge_feat_cat, relation.edge_age)
                for what, tensor in zip(("numbers", "categories", "ages"), parts, strict=True):
                    if tensor is not None:
                        yield f"{what} of edges of {name}", tensor


def differences(before: dict[str, Array], after: dict[str, Array]) -> list[str]:
    """Return the names of what differs in a bit; what rows carry is compared where the rows are the same."""
    gone = [name for name in before if name.startswith(_ROWS) and not _equal(before[name], after[name])]
    without_rows = {name.partition(" of ")[2].removesuffix(_THERE) for name in gone}
    found = [name for name in before if not name.startswith(_ROWS) and not _equal(before[name], after[name])]
    return gone + [name for name in found if name.partition(" of ")[2] not in without_rows]


def _equal(one: Array, other: Array) -> bool:
    """Whether two arrays are equal to the bit; NaN too."""
    return one.shape == other.shape and one.dtype == other.dtype and one.tobytes() == other.tobytes()
