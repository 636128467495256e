"""Neighbour sampling over a graph in parts: each rank draws for the nodes that it holds, whoever asks.

A hop sends the nodes of all batches in hand to the ranks that hold them, and gets back how many in-edges were drawn for
each, and their sources. What is drawn for a node depends on the batch's key and the node alone, and nodes get their
local numbers in the order in which one process would meet them: the layers are equal to `NeighborSampler`'s to the bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numba import njit

from models.kernels.memory import recycled
from tasks.arrays import Array, offsets
from tasks.pair_set import FREE
from tasks.sampling.neighborhoods.by_relation import RelationInEdges
from tasks.sampling.neighborhoods.in_edges import InEdges, Sample, Seeds, find_edge
from tasks.sampling.neighborhoods.neighbors import derive_key
from tasks.sampling.neighborhoods.relabel import hash_pairs, leave_out
from tasks.sampling.parts.graph import PartGraph
from tasks.sampling.parts.kernels import add_up, as_rows, count_owners, deal_out, merge_edges, take_either

_CHANCES = "chances"


@dataclass
class PartSample(Sample):
    """One sampled layer; `degree` has the destinations' only, and `positions` is None."""

    columns: dict[str, Array] = field(default_factory=dict)
    """What the edges carry, by name: (E, ...)."""


@dataclass(frozen=True)
class _Answer:
    """What was drawn for a list of nodes that other ranks asked for."""

    told: Array
    """int32 (n, 2): edges taken and in-degree of each node."""
    ids: Array
    """(E,): their sources."""
    columns: Mapping[str, Array]
    """By name, (E, ...)."""


@dataclass(frozen=True)
class Sampled:
    """The layers of one batch."""

    nodes: Array
    """Ids of the outermost layer's sources (its destinations if it is open), seeds first."""
    layers: list[PartSample]
    """From the outermost to the seeds; of the outermost one's sources the degrees are left to the caller."""
    lowered: Array | None
    """float32 (num_seeds,): in-edges that are excluded of each seed; None: nothing is."""


class PartSampler:
    """Samples blocks of edges around seeds. All ranks call it together, with equally many batches, from one thread.

    Memory: 4 bytes a node of the whole graph, as far as batches reach.
    """

    def __init__(
        self,
        graph: PartGraph,
        fanouts: tuple[int, ...],
        *,
        inverse_chances: bool = False,
        columns: Mapping[str, Array] | None = None,
        edge_type: Array | None = None,
    ) -> None:
        """Open a machine's part.

        Args:
            graph: the part.
            fanouts, inverse_chances: as of `NeighborSampler`.
            columns: what edges carry, by name: (E, ...) of the in-edges of this part.
            edge_type: int16 (E,): `fanouts` are of each relation; None: of all together.
        """
        self.graph, self.fanouts = graph, fanouts
        self.columns = dict(columns or {})
        self._names = (*self.columns, *((_CHANCES,) if inverse_chances else ()))
        options: Any = {"first": graph.first, "inverse_chances": inverse_chances}
        arrays = graph["csc_indptr"], graph["csc_indices"]
        if edge_type is None:
            self.edges = InEdges(*arrays, **options)
        else:
            self.edges = RelationInEdges(*arrays, edge_type, runs_before=self._runs_before, **options)

    def _runs_before(self, run_offsets: Array) -> int:
        """Return how many runs the ranks of machines before this one have; all ranks together."""
        graph = self.graph
        first, end = run_offsets[np.array(graph.own) - graph.first]
        of_ranks = graph.exchange.gather(np.array([end - first]))
        return int(of_ranks[: np.searchsorted(graph.bounds, graph.first)].sum())

    def number(self, ids: Array) -> tuple[Array, Array]:
        """Do what `NeighborSampler.number` does."""
        return self.graph.numbering.number_all(ids)

    def sample(self, batches: Sequence[Seeds], *, open_last: bool = False) -> list[Sampled]:
        """Sample around the seeds of each batch, as `NeighborSampler.sample` does.

        `open_last`: the outermost hop's sources keep their ids.
        """
        dtype = self.edges.indices.dtype
        seeds = [np.ascontiguousarray(batch.nodes, dtype) for batch in batches]
        excluded = self._excluded(batches, seeds)
        nodes = list(seeds)
        layers: list[list[PartSample]] = [[] for _ in batches]
        for hop, fanout in enumerate(self.fanouts):
            keys = [derive_key(batch.key, hop) for batch in batches]
            for number, layer in enumerate(self._draw(nodes, fanout, keys)):
                if excluded:
                    banned, lowered = excluded[number]
                    layer.positions = np.arange(len(layer.indices))
                    leave_out(layer, len(lowered), banned)
                    layer.columns = {name: column[layer.positions] for name, column in layer.columns.items()}
                    layer.positions = None
                    layer.degree[: len(lowered)] -= lowered
                if not (open_last and hop == len(self.fanouts) - 1):
                    layer.indices, nodes[number] = self._number(nodes[number], layer.indices)
                layers[number].append(layer)
        for of_batch in layers:  # a layer's sources are the next one's destinations
            for layer, outer in pairwise(of_batch):
                layer.degree = outer.degree
        return [
            Sampled(some, of_batch[::-1], excluded[number][1] if excluded else None)
            for number, (some, of_batch) in enumerate(zip(nodes, layers, strict=True))
        ]

    def _excluded(self, batches: Sequence[Seeds], seeds: Sequence[Array]) -> list[tuple[Array, Array]]:
        """Return each batch's hash table of excluded edges, and how many in-edges each seed loses, (num_seeds,).

        No batch's where none excludes any.
        """
        tables = [
            hash_pairs(some, batch.excluded)
            for batch, some in zip(batches, seeds, strict=True)
            if batch.excluded is not None
        ]
        if not tables:
            return []
        keys = [table[table != FREE] for table in tables]
        of = [some % max(1, len(nodes)) for some, nodes in zip(keys, seeds, strict=True)]
        pairs = [
            np.stack([some // max(1, len(nodes)), nodes[targets]], 1)
            for some, targets, nodes in zip(keys, of, seeds, strict=True)
        ]
        counts = count_edges(self.graph, np.concatenate(pairs).astype(self.edges.indices.dtype))
        per_batch = np.split(counts, offsets([len(some) for some in keys])[1:-1])
        lost = [
            np.bincount(targets, some, len(nodes)).astype(np.float32)
            for targets, some, nodes in zip(of, per_batch, seeds, strict=True)
        ]
        return list(zip(tables, lost, strict=True))

    def _number(self, known: Array, ids: Array) -> tuple[Array, Array]:
        """Return the ids' local numbers, and all nodes: those that have numbers already come first."""
        numbering = self.graph.numbering
        numbering.start()
        numbering.number(known)
        local = numbering.number(ids)
        nodes = recycled(numbering.count, known.dtype)
        nodes[:] = numbering.nodes[: numbering.count]
        return local, nodes

    def _draw(self, nodes: Sequence[Array], fanout: int, keys: Sequence[int]) -> list[PartSample]:
        """Draw one layer's edges into each batch's nodes; sources are ids."""
        exchange, world_size = self.graph.exchange, self.graph.exchange.world_size
        asked_of = np.zeros((world_size, len(nodes)), np.int64)
        where = self.graph.first, self.graph.end, self.graph.bounds
        own = [recycled(count_owners(some, *where, asked_of[:, batch]), some.dtype) for batch, some in enumerate(nodes)]
        heads = np.stack([asked_of, np.broadcast_to(np.asarray(keys, np.int64), asked_of.shape)], 2)
        heads_in = exchange.counts(heads)
        message = recycled(int(asked_of.sum()), nodes[0].dtype)
        starts = offsets(asked_of.reshape(-1))[:-1].reshape(asked_of.shape)
        places = [recycled(len(some), np.int64) for some in nodes]
        for batch, some in enumerate(nodes):
            deal_out(some, *where, starts[:, batch].copy(), own[batch], message, places[batch])
        out, back = asked_of.sum(1).tolist(), heads_in[..., 0].sum(1).tolist()
        questions = recycled(sum(back), message.dtype)
        wait = exchange.start(message, out, questions, back)
        drawn = [self.edges.draw(some, fanout, key) for some, key in zip(own, keys, strict=True)]
        wait()
        told = self._exchange_answers(self._answer(questions, heads_in, fanout), back, out)
        told_indptr = offsets(told.told[:, 0])
        return [self._merge(*pair, told, told_indptr) for pair in zip(places, drawn, strict=True)]

    def _answer(self, questions: Array, heads: Array, fanout: int) -> list[_Answer]:
        """Draw for other ranks; heads int64 (world_size, batches, 2): nodes asked for, and their batch's key."""
        answers = []
        start = 0
        for of_rank in heads:
            samples = []
            for count, key in of_rank.tolist():
                samples.append(self.edges.draw(questions[start : start + count], fanout, key))
                start += count
            carried = [self._carried(sample) for sample in samples]
            answers.append(
                _Answer(
                    np.concatenate([np.stack([np.diff(s.indptr), s.degree], 1) for s in samples]).astype(np.int32),
                    np.concatenate([sample.indices for sample in samples]),
                    {name: np.concatenate([of[name] for of in carried]) for name in self._names},
                )
            )
        return answers

    def _exchange_answers(self, answers: list[_Answer], counts: list[int], expected: list[int]) -> _Answer:
        """Send each rank its answer; return what the ranks answered, end to end."""
        exchange = self.graph.exchange
        told = exchange.send(np.concatenate([answer.told for answer in answers]), counts, expected)
        ends = offsets(told[:, 0])[offsets(np.asarray(expected))]
        edges_out, edges_in = [len(answer.ids) for answer in answers], np.diff(ends).tolist()
        ids = exchange.send(np.concatenate([answer.ids for answer in answers]), edges_out, edges_in)
        columns = {
            name: exchange.send(np.concatenate([answer.columns[name] for answer in answers]), edges_out, edges_in)
            for name in self._names
        }
        return _Answer(told, ids, columns)

    def _carried(self, drawn: Sample) -> dict[str, Array]:
        """Return what the edges carry that were drawn here, and one over the chances that they had."""
        columns = {name: np.asarray(column[drawn.positions]) for name, column in self.columns.items()}
        return columns if drawn.weight is None else {**columns, _CHANCES: drawn.weight}

    def _merge(self, place: Array, drawn: Sample, told: _Answer, told_indptr: Array) -> PartSample:
        """Join what was drawn here and what other ranks drew for a batch."""
        indptr, degree = recycled(len(place) + 1, np.int64), recycled(len(place), np.float32)
        add_up(place, drawn.indptr, told.told, indptr)
        total = int(indptr[-1])
        ids = recycled(total, drawn.indices.dtype)
        edges = recycled(total, np.int64) if self._names else None
        order = np.arange(len(drawn.indices)) if self._names else None
        of_drawn = (drawn.indptr, drawn.degree, drawn.indices, order)
        merge_edges(place, *of_drawn, told.told, told_indptr, told.ids, indptr, degree, ids, edges)
        columns = {name: _either(own, told.columns[name], edges) for name, own in self._carried(drawn).items()}
        return PartSample(indptr, ids, None, degree, columns.pop(_CHANCES, None), columns)


def _either(own: Array, told: Array, edges: Array | None) -> Array:
    """Return own[e] for edges e >= 0, told[~e] for others: (E, ...)."""
    assert edges is not None
    out = recycled((len(edges), *own.shape[1:]), own.dtype)
    take_either(as_rows(own), as_rows(told), edges, as_rows(out))
    return out


def count_edges(graph: PartGraph, pairs: Array) -> Array:
    """Return how many edges the graph has from pairs[i, 0] to pairs[i, 1]: int32 (n,); all ranks together."""
    where = graph.first, graph.end, graph.bounds
    exchange = graph.exchange
    targets = np.ascontiguousarray(pairs[:, 1])
    counts = np.zeros(exchange.world_size, np.int64)
    own = np.empty(count_owners(targets, *where, counts), pairs.dtype)
    message, place = np.empty(int(counts.sum()), pairs.dtype), np.empty(len(pairs), np.int64)
    deal_out(targets, *where, offsets(counts)[:-1], own, message, place)
    here = place >= 0
    question = np.empty((len(message), 2), pairs.dtype)
    question[~place[~here]] = pairs[~here]
    back = exchange.counts(counts[:, None])[:, 0].tolist()
    asked = exchange.send(question, counts.tolist(), back)
    answer = exchange.send(_count(graph, asked), back, counts.tolist())
    num_edges = np.empty(len(pairs), np.int32)
    num_edges[here], num_edges[~here] = _count(graph, pairs[here]), answer[~place[~here]]
    return num_edges


def _count(graph: PartGraph, pairs: Array) -> Array:
    counts = np.zeros(len(pairs), np.int32)
    _count_parallel(graph["csc_indptr"], np.asarray(graph["csc_indices"]), graph.first, pairs, counts)
    return counts


@njit(cache=True, nogil=True)
def _count_parallel(indptr, indices, first, pairs, counts):  # type: ignore[no-untyped-def]
    for i in range(len(pairs)):
        source, target = pairs[i, 0], pairs[i, 1] - first
        at = find_edge(indptr, indices, source, target)
        if at >= 0:
            while at < indptr[target + 1] and indices[at] == source:
                counts[i] += 1
                at += 1
