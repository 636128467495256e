"""What a model reads of one seed, by name, and which rows of two states of the data are the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
import torch
from torch import Tensor

from configs.schema import Recipe
from models.relational.batch import TypedBatch
from tasks.arrays import Array, offsets
from tasks.ingest.database.configs import DatabaseConfig
from tasks.sampling.relational.batches import TypedNeighborhoods
from tasks.sampling.relational.links import RankedNeighborhoods
from tasks.stage import Parent
from tasks.storage.dataset_store import DatasetStore
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
        self._neighborhoods = TypedNeighborhoods(store, fanouts, newest=newest)
        self._ranked = RankedNeighborhoods(store, self._neighborhoods) if is_ranked else None
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
        for name, inputs in zip(self._types, batch.inputs.types, strict=True):
            yield f"{_ROWS}{name}{_THERE}", torch.from_numpy(self.ids[inputs.node_ids.numpy()])
            for what, tensor in (("numbers", inputs.feat), ("categories", inputs.feat_cat), ("ages", inputs.age)):
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


def same_ids(before: DatasetStore, after: DatasetStore, config: DatabaseConfig, moment: int) -> Array:
    """Return what each node of `after` is called in `before`, int64 (N,), in preprocess's id space.

    By the users' keys; in tables without any, the first row that is older than `moment` is the first of those before,
    and so on. Below 0: it is new.
    """
    first = offsets([one.num_nodes for one in before.manifest.node_types])
    parts, new = [], 0
    for number, one in enumerate(before.manifest.node_types):
        table = config.tables.get(one.name)
        if table is None or table.key is not None:
            then, now = _keys(before, one.name), _keys(after, one.name)
            kind = then.type if then.type == now.type else pa.string()
            place = compute.index_in(now.cast(kind), value_set=then.cast(kind))
            rows = np.asarray(compute.fill_null(place, -1), np.int64)
        else:
            times, others = _times(before, one.name), _times(after, one.name)
            counted = not config.predict.computed and config.predict.table == one.name
            if times is None or others is None or counted:  # no row went, and none came
                rows = np.arange(one.num_nodes)
            else:
                rows = np.full(len(others), -1, np.int64)
                old, place = np.flatnonzero(times < moment), np.flatnonzero(others < moment)
                count = min(len(old), len(place))
                rows[place[:count]] = old[:count]
        names = np.where(rows >= 0, first[number] + rows, -1 - new - np.arange(len(rows)))
        new += len(rows)
        parts.append(names)
    return np.concatenate(parts)


def _keys(store: DatasetStore, kind: str) -> Any:
    """Return the users' keys of a node type; numbers from 0 where these are the keys."""
    name = f"ids/{kind}"
    if name in store:
        return store.read(name, ["original_id"])["original_id"]
    count = next(one.num_nodes for one in store.manifest.node_types if one.name == kind)
    return pa.chunked_array([pa.array(np.arange(count))])


def _times(store: DatasetStore, kind: str) -> Array | None:
    """Return the times of a node type's rows; None: they have none, and nothing of them was changed."""
    table = f"nodes/{kind}"
    return np.asarray(store.column(table, "time")) if "time" in store.table(table).columns else None


def known_rows(data: Parent, moment: int, kind: str, rows: Array) -> dict[str, Array]:
    """Return by node type the rows of a moment that rows of then may see: themselves and what they name, as far.

    A row is known together with its keys, and so is what they lead to, where that is of the same moment.

    `rows`, int64 (n,), are of the node type `kind` of what ingest made; `moment` is in the data's unit.
    """
    store = DatasetStore(data.folder, data.manifest)
    seen: dict[str, set[int]] = {kind: _of_moment(store, kind, rows, moment)}
    fresh = dict(seen)
    while fresh:
        reached: dict[str, set[int]] = {}
        for edges in data.manifest.edge_types:
            if edges.name in data.manifest.foreign_keys and edges.source in fresh:
                source, target = (store.column(f"edges/{edges.name}", end) for end in ("src", "dst"))
                named = target[np.isin(source, list(fresh[edges.source]))]
                reached.setdefault(edges.target, set()).update(_of_moment(store, edges.target, named, moment))
        fresh = {one: more for one, rows in reached.items() if (more := rows - seen.get(one, set()))}
        for one, more in fresh.items():
            seen[one] = seen.get(one, set()) | more
    return {one: np.array(sorted(rows), np.int64) for one, rows in seen.items()}


def _of_moment(store: DatasetStore, kind: str, rows: Array, moment: int) -> set[int]:
    if "time" not in store.manifest.tables[f"nodes/{kind}"].columns:
        return set()
    return {int(row) for row in rows[store.column(f"nodes/{kind}", "time")[rows] == moment]}
