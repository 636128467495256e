"""Predictions of a graph in parts: every rank computes the vectors of its own nodes and fetches those around them."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from configs.errors import DataError
from models.base import GraphModel
from models.kernels.memory import give_back, recycled
from tasks.arrays import blocks
from tasks.evaluators.prediction import Prediction
from tasks.inference.layerwise import CHUNK_EDGES, Layerwise, scratch_array, widest
from tasks.inference.predictor import evaluating
from tasks.processes.mapped import rows_at_random
from tasks.processes.memory import available_bytes
from tasks.sampling.neighborhoods.neighbors import NeighborSampler
from tasks.sampling.parts.graph import PartGraph
from tasks.sampling.parts.ranges import Array, Ranges, find_sources
from tasks.sampling.rows.features import FeatureSource

_CHUNK_ROWS = 1 << 16
_FREE_SHARE = 0.5
"""Of the memory that is free, for the rows of two layers of all ranks of a machine."""
_EDGE_TABLES = ("edge_feat", "edge_feat_cat", "edge_weight", "edge_type")


class PartLayerwise(Layerwise):
    """Runs models over a rank's own nodes, layer by layer; ranks send each other rows of what borders on theirs.

    Nodes are numbered from the rank's first one on; those that other ranks compute follow. Their rows come once a
    layer, and lie in the scratch file behind the rank's own. Where memory has no room for so many rows, and that file
    would be read from the disk again and again, they come for each chunk that wants them, and are not kept.
    """

    encodes_always = True  # rows of other ranks' nodes cannot be looked up

    def __init__(
        self,
        graph: PartGraph,
        ranges: Ranges,
        device: torch.device,
        scratch: Path | None = None,
        chunk_edges: int = CHUNK_EDGES,
    ) -> None:
        """Find the nodes around this rank's own; all ranks together."""
        self.ranges, self.device, self.scratch, self.chunk_edges = ranges, device, scratch, chunk_edges
        self.local_size = graph.local_size
        first, end = ranges.own
        self.nodes = slice(first - graph.first, end - graph.first)
        """This rank's rows among the machine's."""
        indptr = graph["csc_indptr"][self.nodes.start : self.nodes.stop + 1]
        self.edges = slice(int(indptr[0]), int(indptr[-1]))
        """Its in-edges among the machine's."""
        indices = np.asarray(graph["csc_indices"][self.edges])
        local = scratch_array(scratch, len(indices), 1, np.int32).reshape(-1)
        self.others = find_sources(indices, ranges.own, graph.manifest.num_nodes, local)
        """Nodes of other ranks that messages come from, ascending."""
        self.first_node, self.num_nodes = first, end - first
        self.num_held = self.num_nodes + len(self.others)
        indptr = indptr - indptr[0]
        self.indptr = np.concatenate([indptr, np.full(len(self.others), indptr[-1])])
        self.sampler = NeighborSampler(self.indptr, local, (-1,))
        degree = np.diff(indptr).astype(np.float32)
        self._degree = np.concatenate([degree, ranges.fetch(degree, self.others)])
        self._pieces = -(-ranges.exchange.largest(len(self.others)) // _CHUNK_ROWS)
        self.by_chunk = False

    def vectors(self, model: GraphModel, features: FeatureSource, nodes: Array | None) -> NDArray[np.float32]:
        """Return vectors as `Layerwise.vectors` does; all ranks together."""
        held = 2 * 4 * widest(model) * (self.num_nodes + len(self.others))  # bytes of a layer's rows and the next one's
        room = _FREE_SHARE * available_bytes() / self.local_size
        self.by_chunk = bool(self.ranges.exchange.largest(int(held > room)))
        self.num_held = self.num_nodes if self.by_chunk else self.num_nodes + len(self.others)
        if not self.by_chunk:
            return super().vectors(model, features, nodes)
        give_back()
        with rows_at_random(features.table) if features.table is not None else nullcontext():
            return super().vectors(model, features, nodes)

    def _encode(self, model: GraphModel, features: FeatureSource, rows: int) -> Array | None:
        """Encode this rank's nodes, and have those of others; no copy of features as they are where memory is short."""
        if self.by_chunk and model.encoder.is_plain:
            return features.table
        return super()._encode(model, features, rows)

    def rows_of(self, before: Array, sources: Array) -> Array:
        """Return rows of sources; those of other ranks' nodes are fetched where they are not held."""
        if not self.by_chunk:
            return super().rows_of(before, sources)
        rows = recycled((len(sources), before.shape[1]), np.float32)
        here = sources < self.num_nodes
        rows[here] = before[sources[here]]
        there = np.flatnonzero(~here)
        order = there[np.argsort(sources[there])]
        rows[order] = self.ranges.fetch(before, self.others[sources[order] - self.num_nodes])
        return rows

    def most_chunks(self, count: int) -> int:
        """Ask all ranks, where each chunk is fetched by all of them together."""
        return self.ranges.exchange.largest(count) if self.by_chunk else count

    def answer_others(self, before: Array | None) -> None:
        """Send rows, and ask for none."""
        assert before is not None
        self.ranges.fetch(before, self.others[:0])

    def complete(self, rows: Array) -> None:
        """Fetch the rows of other ranks' nodes, a piece at a time; all ranks together."""
        for piece in range(0 if self.by_chunk else self._pieces):
            some = slice(piece * _CHUNK_ROWS, (piece + 1) * _CHUNK_ROWS)
            nodes = self.others[some]
            into = rows[self.num_nodes + some.start : self.num_nodes + some.start + len(nodes)]
            into[...] = self.ranges.fetch(rows[: self.num_nodes], nodes)

    def degrees(self, sources: Array, counted: Array) -> Array:
        """Return those of the whole graph."""
        return self._degree[sources]

    def own_features(self, features: FeatureSource) -> FeatureSource:
        """Return what a model reads of this rank's nodes and in-edges, of that which it reads of the machine's."""
        changed: dict[str, Any] = {}
        for item in fields(features):
            table = getattr(features, item.name)
            if item.init and isinstance(table, np.ndarray):
                changed[item.name] = table[self.edges if item.name in _EDGE_TABLES else self.nodes]
        return replace(features, **changed)


class PartPredictor:
    """Applies models to a graph in parts; all ranks call it together."""

    def __init__(
        self,
        graph: PartGraph,
        ranges: Ranges,
        *,
        device: torch.device,
        batch_size: int = 16384,
        scratch: Path | None = None,
        chunk_edges: int = CHUNK_EDGES,
    ) -> None:
        """Open nothing yet; `ranges`: of the calling thread. The other arguments are those of `Predictor`."""
        self.graph, self.device, self.batch_size = graph, device, batch_size
        self.ranges = ranges
        self._scratch, self._chunk_edges = scratch, chunk_edges
        self._layerwise: PartLayerwise | None = None

    def split_nodes(self, model: GraphModel, split: str) -> Prediction:
        """Score a split's nodes: on rank 0 all of them, on the others none."""
        self._need(f"{split}_idx")
        nodes = self.graph.own_seeds(split)
        scores = self.ranges.to_main(self.node_scores(model, nodes))
        return Prediction(scores=scores, label=self.ranges.to_main(self.graph.own_rows("label", nodes)))

    def split_pairs(self, model: GraphModel, split: str) -> Prediction:
        """Score a split's edges and negatives, every rank equally many: on rank 0 all of them, on the others none."""
        kinds = (f"{split}_edges", f"{split}_negative")
        parts = []
        with evaluating(model):
            vectors = self.node_vectors(model)
            for name in kinds:
                self._need(name)
                pairs = self.graph.even_rows(name)
                scores = self.pair_scores(model, vectors, pairs.reshape(-1, 2))
                parts.append(self.ranges.to_main(scores.reshape(pairs.shape[:-1])))
        relations, by_relation = None, [f"{split}_relation", f"{split}_negative_relation"]
        if all(name in self.graph for name in by_relation):
            true, false = (self.ranges.to_main(self.graph.even_rows(name)) for name in by_relation)
            relations = true, false
        of_negatives = self.graph.manifest.negative_kinds
        return Prediction(positive=parts[0], negative=parts[1], relations=relations, negative_kinds=of_negatives)

    def link_scores(self, model: GraphModel, positive: Array, negative: Array) -> Prediction:
        """Score pairs as `Predictor.link_scores` does; each rank gives some of its own, or none."""
        with evaluating(model):
            vectors = self.node_vectors(model)
            return Prediction(
                positive=self.pair_scores(model, vectors, positive),
                negative=self.pair_scores(model, vectors, negative.reshape(-1, 2)).reshape(negative.shape[:-1]),
            )

    def _need(self, name: str) -> None:
        if name not in self.graph:
            dataset = self.graph.manifest.dataset
            raise DataError(f"{dataset} has no {name}; leave that split out of evaluate.splits")

    def pair_scores(self, model: GraphModel, vectors: Array, pairs: Array) -> Array:
        """Score pairs of any nodes, int (n, 2), by all ranks' `vectors` of their own; n differs by rank."""
        scores = np.empty(len(pairs), np.float32)
        rounds = -(-self.ranges.exchange.largest(len(pairs)) // self.batch_size)
        for number in range(rounds):
            part = slice(number * self.batch_size, (number + 1) * self.batch_size)
            ends = np.asarray(pairs[part], np.int64)
            rows = self.ranges.fetch_any(vectors, ends.reshape(-1)).reshape(len(ends), 2, vectors.shape[1])
            if len(ends):
                both = (torch.from_numpy(np.ascontiguousarray(rows[:, end])).to(self.device) for end in (0, 1))
                scores[part] = model.score(*both).cpu().numpy()
        return scores

    def node_scores(self, model: GraphModel, nodes: Array) -> Array:
        """Score distinct nodes of this rank's own, integer (n,): float32 (n, C)."""
        scores = np.empty((len(nodes), model.facts.out_dim), np.float32)
        with evaluating(model):
            vectors = self.node_vectors(model, nodes)
            for part in blocks(len(nodes), self.batch_size):
                rows = torch.from_numpy(np.asarray(vectors[part])).to(self.device)
                scores[part] = model.score(rows).cpu().numpy()
        return scores

    def node_vectors(self, model: GraphModel, nodes: Array | None = None) -> Array:
        """Return the model's vectors of this rank's nodes (None: all of its own), see `Predictor.node_vectors`."""
        if self._layerwise is None:
            self._layerwise = PartLayerwise(self.graph, self.ranges, self.device, self._scratch, self._chunk_edges)
        features = self._layerwise.own_features(FeatureSource.of(self.graph, model))
        local = None if nodes is None else np.asarray(nodes, np.int64) - self.ranges.own[0]
        return self._layerwise.vectors(model, features, local)
