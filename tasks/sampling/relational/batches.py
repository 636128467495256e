"""Batches of a typed graph around rows that are predicted, each as of its own moment."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from configs.errors import DataError
from models.facts import GraphFacts
from models.relational.batch import RelationBlock as Edges
from models.relational.batch import TypedBatch, TypedBlock, TypedInputs, TypeInputs
from models.relational.configs import ImportanceWalksConfig
from models.relational.encoders import columns_of
from tasks.arrays import Array
from tasks.sampling.relational.edges import Relation, RelationalEdges
from tasks.sampling.relational.importance import ImportanceSampler
from tasks.sampling.relational.sampler import RelationalSampler, RelationSample, TypedLayer
from tasks.sampling.relational.type_features import TypeFeatures, gather_columns
from tasks.sampling.rows.features import node_id_tensor
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import ALWAYS, GraphStore

_NEVER = 1 << 62
"""The cut of a row that has no time: it sees everything."""
_NOTHING: Mapping[int, Array | None] = {}
_sorted: WeakKeyDictionary[GraphStore, RelationalEdges] = WeakKeyDictionary()
_lock = threading.Lock()


def sorted_edges(store: GraphStore) -> RelationalEdges:
    """Return a graph's edges by relation and time, sorted once: training and validation share them."""
    with _lock:
        if store not in _sorted:
            manifest, facts = store.manifest, graph_facts(store.manifest)
            ends = enumerate(zip(manifest.edge_types, facts.relation_ends, strict=True))
            relations = [Relation(name, *pair, number in manifest.own_keys) for number, (name, pair) in ends]
            tasks = facts.label_type if facts.label_type != facts.seed_type else None
            _sorted[store] = RelationalEdges(store, relations, tasks)
        return _sorted[store]


def share_edges(store: GraphStore, other: GraphStore) -> None:
    """Have another view of a graph use its sorted edges."""
    if store.manifest.relation_ends:
        edges = sorted_edges(store)
        with _lock:
            _sorted[other] = edges


class SeedMoments:
    """Which row is asked about for a labelled row, and as of when.

    A task asks about its entity as of its own time, and a labelled row that is no task about itself: what is before
    that time is seen, and of its own time the row and what its own foreign keys name (`RelationalEdges`). A row without
    a time sees all.
    """

    def __init__(self, store: GraphStore, facts: GraphFacts) -> None:
        self._facts = facts
        self._time = store["node_time"] if facts.has_times else None
        self._name = store.manifest.target_type
        self._is_task = facts.label_type != facts.seed_type
        if self._is_task:
            self._indptr, self._indices = store["csr_indptr"], store["csr_indices"]
            if self._time is None:
                raise DataError(f"{store.manifest.dataset}: {self._name} are predicted at moments, and have no times")

    def entities(self, seeds: Array) -> Array:
        """Return the rows asked about, id (n,). Raises DataError for a task that is of no entity, or of several."""
        if not self._is_task:
            return seeds
        first, last = self._indptr[seeds], self._indptr[seeds + 1]
        if (last - first != 1).any():
            wrong = int(np.argmax(last - first != 1))
            raise DataError(
                f"node {int(seeds[wrong])} of {self._name} is joined to {int(last[wrong] - first[wrong])} entities; "
                "each task is of one: give every row of the labels' table a key that its entities' table has"
            )
        return np.asarray(self._indices[first])

    def cuts(self, seeds: Array) -> Array | None:
        """Return the moments before which each seed sees, int64 (n,); None where rows have no times."""
        if self._time is None:
            return None
        time = np.asarray(self._time[seeds], np.int64)
        return time if self._is_task else np.where(time == ALWAYS, _NEVER, time)


class TypedNeighborhoods:
    """Batches around labelled rows; several threads may share one."""

    def __init__(
        self,
        store: GraphStore,
        fanouts: Sequence[int] | Mapping[str, Sequence[int]],
        *,
        newest: bool,
        numbered: Mapping[int, Array | None] = _NOTHING,
        walks: tuple[ImportanceWalksConfig, int] | None = None,
    ) -> None:
        """Open a graph.

        Args:
            store: the graph.
            fanouts: edges that a row takes of each relation, from the seeds outwards.
            newest: whether it takes the newest of more, else any.
            numbered: types whose rows' numbers in their table are told, for a model that learns a row for each
                (`RelationalModel.numbered`); None: the table has the rows in their order.
            walks: options and number of layers where a row's neighbours are what its walks visit most, and not those
                of `fanouts` (`RelationalModel.walks`).

        Raises RecipeError, DataError: options or a graph that do not fit.
        """
        self.facts = graph_facts(store.manifest)
        self.moments = None if store.manifest.ranking else SeedMoments(store, self.facts)
        self._numbered, self._node_ids = dict(numbered), store.get("node_ids")
        self._type_offsets = store.manifest.type_offsets
        edges = sorted_edges(store)
        self.sampler: RelationalSampler | ImportanceSampler
        if walks is None:
            positions = bool(self.facts.has_edge_features)
            self.sampler = RelationalSampler(edges, fanouts, newest=newest, positions=positions)
        else:
            self.sampler = ImportanceSampler.of_store(store, edges, *walks)
        self._feat, self._codes = TypeFeatures(store, "feat"), TypeFeatures(store, "feat_cat")
        self._time = store.get("node_time")
        self._edge_feat, self._edge_codes = store.get("edge_feat"), store.get("edge_feat_cat")
        self._edge_time = store.get("edge_time") if self.facts.has_times else None

    def batch(self, seeds: Array, key: int, target: Tensor) -> TypedBatch:
        """Return the batch of labelled rows, int64 (n,), with what their scores should be; draws come from `key`."""
        assert self.moments is not None, "rankings have batches of their own"
        inputs, blocks, rows = self.around(self.moments.entities(seeds), self.moments.cuts(seeds), key)
        return TypedBatch(
            blocks=blocks,
            inputs=inputs,
            target=target,
            num_seeds=len(seeds),
            seed_type=self.facts.seed_type,
            rows=torch.from_numpy(rows),
            num_edges=sum(block.num_edges for block in blocks),
        )

    def around(self, nodes: Array, cuts: Array | None, key: int) -> tuple[TypedInputs, list[TypedBlock], Array]:
        """Sample around nodes of any types, id (n,), as of cuts, int64 (n,); also return each one's row of its type."""
        neighborhood = self.sampler.sample(nodes, cuts, key)
        of_types = (None,) * len(neighborhood.ids) if neighborhood.cuts is None else neighborhood.cuts
        types = [
            self._inputs(t, some, cut) for t, (some, cut) in enumerate(zip(neighborhood.ids, of_types, strict=True))
        ]
        return (
            TypedInputs(types),
            [self._block(layer, of_types) for layer in neighborhood.layers],
            neighborhood.seed_rows,
        )

    def _numbers(self, t: int, nodes: Array) -> Tensor | None:
        """Return the numbers of a type's rows in its table, int64 (n,), where they are told."""
        if t not in self._numbered:
            return None
        own = nodes if self._node_ids is None else self._node_ids[nodes]
        place, numbers = np.asarray(own, np.int64) - self._type_offsets[t], self._numbered[t]
        return torch.from_numpy(place if numbers is None else numbers[place])

    def _inputs(self, t: int, nodes: Array, cut: Array | None) -> TypeInputs:
        facts = self.facts
        columns = columns_of(facts.node_columns, t, facts.feature_dim)
        codes = columns_of(facts.node_codes, t, len(facts.categories))
        age = None
        if facts.has_times:
            assert self._time is not None
            age = ages(np.asarray(self._time[nodes]), cut, facts.age_unit)
        return TypeInputs(
            node_id_tensor(nodes),
            self._feat.gather(t, nodes, columns, np.float32),
            self._codes.gather(t, nodes, codes, np.int64),
            age,
            self._numbers(t, nodes),
        )

    def _block(self, layer: TypedLayer, cuts: Sequence[Array | None]) -> TypedBlock:
        sampled = zip(self.sampler.numbers, self.sampler.relations, layer.relations, strict=True)
        relations = [self._edges(number, relation, drawn, layer, cuts) for number, relation, drawn in sampled]
        return TypedBlock(relations, layer.num_src, layer.num_dst)

    def _edges(
        self, number: int, relation: Relation, drawn: RelationSample, layer: TypedLayer, cuts: Sequence[Array | None]
    ) -> Edges:
        made = Edges(
            number,
            relation.source,
            relation.target,
            torch.from_numpy(drawn.indptr),
            torch.from_numpy(drawn.indices),
            layer.num_src[relation.source],
        )
        if drawn.weights is not None:
            made.weight = torch.from_numpy(drawn.weights)
            return made
        facts = self.facts
        columns = columns_of(facts.edge_columns, number, facts.edge_feature_dim)
        codes = columns_of(facts.edge_codes, number, len(facts.edge_categories))
        if columns or codes:
            assert drawn.positions is not None
            made.edge_feat = _columns(self._edge_feat, drawn.positions, columns, np.float32)
            made.edge_feat_cat = _columns(self._edge_codes, drawn.positions, codes, np.int64)
            made.edge_age = self._edge_ages(drawn, cuts[relation.target])
        return made

    def _edge_ages(self, drawn: RelationSample, cut: Array | None) -> Tensor:
        assert drawn.positions is not None
        if self._edge_time is None:
            return torch.full((len(drawn.positions),), torch.nan)
        of_edges = None if cut is None else np.repeat(cut[: len(drawn.indptr) - 1], np.diff(drawn.indptr))
        return ages(np.asarray(self._edge_time[drawn.positions]), of_edges, self.facts.age_unit)


def ages(time: Array, cut: Array | None, unit: int) -> Tensor:
    """Return how long before their cuts times are, int64 (n,), in `unit`, as float32; NaN where either is not there."""
    if cut is None:
        return torch.full((len(time),), torch.nan)
    known = (time != ALWAYS) & (cut != _NEVER)
    age = (np.where(known, cut, 0) - np.where(known, time, 0)) / unit
    return torch.from_numpy(np.where(known, age, np.nan).astype(np.float32))


def _columns(table: Array | None, rows: Array, columns: Sequence[int], dtype: Any) -> Tensor | None:
    return None if table is None or not columns else gather_columns(table, rows, columns, dtype)
