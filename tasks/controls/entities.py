"""What is known of the entities of tasks as of their moments: their own rows, and what lies one key away.

For models that predict rows at moments. Nothing later than a row's moment has a part in it: what is seen is what the
batches of training could see (`tasks.sampling.relational`). Of what a row's own foreign keys name, its ends, the same
is known: a payment's customer and merchant, how many payments each of them had before, and how long ago.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from models.kernels.sparse.segment import segment_reduce
from models.relational.encoders import columns_of
from tasks.arrays import Array, blocks
from tasks.sampling.relational.batches import SeedMoments, ages, sorted_edges
from tasks.sampling.relational.edges import Relation
from tasks.sampling.relational.sampler import RelationalSampler, RelationSample, TypedSample
from tasks.sampling.relational.type_features import TypeFeatures, gather_columns
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import ALWAYS, GraphStore, create_array

MOST_SEEN = 1000
"""Edges of a relation that are looked at: the newest. A row with more has that count."""
_CHUNK_ROWS = 1 << 13


class EntityRows:
    """Features of tasks, in files; row i is that of `rows[i]`."""

    def __init__(self, store: GraphStore, rows: Array, scratch: Path) -> None:
        """Compute them for labelled nodes, int64 (n,) ascending; `scratch` takes the files."""
        self.rows = rows
        self._store, self._facts = store, graph_facts(store.manifest)
        self._numbers_of, self._codes_of = TypeFeatures(store, "feat"), TypeFeatures(store, "feat_cat")
        self._moments = SeedMoments(store, self._facts)
        self._edges = edges = sorted_edges(store)
        self._sampler = RelationalSampler(edges, (MOST_SEEN,), newest=edges.times is not None)
        facts, kind = self._facts, self._facts.seed_type
        self.columns = columns_of(facts.node_columns, kind, facts.feature_dim)
        """Which numbers the entities' rows have, among those of all types."""
        self._codes = columns_of(facts.node_codes, kind, len(facts.categories))
        self._into = edges.into[kind]
        self._keys = [place for place in self._into if edges.relations[place].is_own_key]
        ends = [edges.relations[place].source for place in self._keys]
        self._end_codes = [columns_of(facts.node_codes, end, len(facts.categories)) for end in ends]
        seen = [*self._into, *(place for end in ends for place in edges.into[end])]
        width = sum(2 + sum(map(len, self._averaged(place))) for place in seen)
        self.numbers = create_array(scratch / "entity-numbers.npy", (len(rows), 1 + len(self.columns)), np.float32)
        """float32 (n, D + 1): numbers of the entity's own row, and its age at the moment; NaN where it has none."""
        self.codes = create_array(scratch / "entity-codes.npy", (len(rows), len(self._codes)), np.int32)
        """int32 (n, C): categories of the entity's own row."""
        self.nearby = create_array(scratch / "entity-nearby.npy", (len(rows), width), np.float32)
        """float32 (n, F): for each relation into the entity how many edges there are before the moment, the age of the
        newest, and the means of the neighbours' and the edges' numbers, NaN where there is none; then the same of
        each end."""
        self.end_codes = create_array(
            scratch / "entity-end-codes.npy", (len(rows), sum(map(len, self._end_codes))), np.int32
        )
        """int32 (n, E): categories of the ends, -1 where there is none."""
        for part in blocks(len(rows), _CHUNK_ROWS):
            self._fill(part)

    def places(self, rows: Array) -> Array:
        """Return the places of labelled nodes, int64 (n,)."""
        return np.searchsorted(self.rows, rows)

    def _averaged(self, place: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the columns of a relation's sources and of its edges; `place`: in the sampler's relations."""
        facts, edges = self._facts, self._edges
        source, number = edges.relations[place].source, edges.edge_types[place]
        of_source = columns_of(facts.node_columns, source, facts.feature_dim)
        return of_source, columns_of(facts.edge_columns, number, facts.edge_feature_dim)

    def _fill(self, part: slice) -> None:
        seeds = self.rows[part]
        nodes, cuts = self._moments.entities(seeds), self._moments.cuts(seeds)
        numbers = self._numbers_of.gather(self._facts.seed_type, nodes, self.columns, np.float32)
        if numbers is not None:
            self.numbers[part, :-1] = numbers.numpy()
        time = np.full(len(nodes), ALWAYS) if cuts is None else np.asarray(self._store["node_time"][nodes])
        self.numbers[part, -1] = ages(time, cuts, self._facts.age_unit).numpy()
        own_codes = self._codes_of.gather(self._facts.seed_type, nodes, self._codes, np.int64)
        if own_codes is not None:
            self.codes[part] = own_codes.numpy()
        sample = self._sampler.sample(nodes, cuts, 0)
        columns = [self._summary(sample, place) for place in self._into]
        codes = [np.empty((len(sample.ids[self._facts.seed_type]), 0), np.int32)]
        for place, end_codes in zip(self._keys, self._end_codes, strict=True):
            of_end, codes_of_end = self._end(sample, place, end_codes)
            columns.append(of_end)
            codes.append(codes_of_end)
        if columns:
            self.nearby[part] = np.concatenate(columns, axis=1)[sample.seed_rows]
        self.end_codes[part] = np.concatenate([one[: len(codes[-1])] for one in codes], axis=1)[sample.seed_rows]

    def _end(self, sample: TypedSample, place: int, wanted: Sequence[int]) -> tuple[Array, Array]:
        """Return what is one key away from an end of the distinct rows of a sample, float32 (m, F), and its codes."""
        relation, drawn = self._edges.relations[place], sample.layers[0].relations[place]
        some = np.flatnonzero(np.diff(drawn.indptr))
        ends = sample.ids[relation.source][drawn.indices[drawn.indptr[some]]]
        cuts = None if sample.cuts is None else sample.cuts[relation.target][some]
        further = self._sampler.sample(ends, cuts, 0)
        columns = [self._summary(further, into) for into in self._edges.into[relation.source]]
        width = sum(one.shape[1] for one in columns)
        nearby = np.full((len(drawn.indptr) - 1, width), np.nan, np.float32)
        codes = np.full((len(nearby), len(wanted)), -1, np.int32)
        if columns:
            nearby[some] = np.concatenate(columns, axis=1)[further.seed_rows]
        end_codes = self._codes_of.gather(relation.source, ends, wanted, np.int64)
        if end_codes is not None:
            codes[some] = end_codes.numpy()
        return nearby, codes

    def _summary(self, sample: TypedSample, place: int) -> Array:
        """Return one relation's columns of `nearby` for the distinct rows of a sample, float32 (m, F)."""
        relation, drawn = self._edges.relations[place], sample.layers[0].relations[place]
        count = np.diff(drawn.indptr)
        columns = [count[:, None].astype(np.float32), self._newest(sample, relation, drawn)[:, None]]
        of_source, of_edge = self._averaged(place)
        sources = sample.ids[relation.source][drawn.indices]
        tables = [self._numbers_of.gather(relation.source, sources, of_source, np.float32)]
        if of_edge:
            assert drawn.positions is not None
            tables.append(gather_columns(self._store["edge_feat"], drawn.positions, of_edge, np.float32))
        for x in tables:
            if x is not None:
                means = segment_reduce(x, torch.from_numpy(drawn.indptr), "mean").numpy()
                columns.append(np.where(count[:, None] > 0, means, np.nan))
        return np.concatenate(columns, axis=1)

    def _newest(self, sample: TypedSample, relation: Relation, drawn: RelationSample) -> Array:
        """Return the age of the newest edge, float32 (m,): it is the last one of each row. Of an end, its own age."""
        newest = np.full(len(drawn.indptr) - 1, np.nan, np.float32)
        if sample.cuts is None:
            return newest
        assert drawn.positions is not None
        some = np.diff(drawn.indptr) > 0
        last = drawn.indptr[1:][some] - 1
        time = np.asarray(self._store["node_time"][sample.ids[relation.source][drawn.indices[last]]])
        if "edge_time" in self._store and not relation.is_own_key:
            time = np.maximum(time, self._store["edge_time"][drawn.positions[last]])
        cuts = sample.cuts[relation.target][: len(newest)][some]
        newest[some] = ages(time, cuts, self._facts.age_unit).numpy()
        return newest
