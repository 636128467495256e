"""Mini-batches of edges, with negatives or labels, and sampled neighbourhoods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numba import njit
from torch import Tensor

from configs.registry import LOADERS
from models.block import Batch
from tasks.arrays import Array
from tasks.edge_ends import are_never_joined, ends_of
from tasks.sampling.negatives import TRIES, NegativeSampler, draw_pair
from tasks.sampling.neighborhoods.in_edges import Seeds
from tasks.sampling.neighborhoods.neighbors import derive_key
from tasks.sampling.parts.graph import PartGraph
from tasks.sampling.parts.neighborhoods import PartNeighborhoods
from tasks.sampling.parts.sampler import count_edges
from tasks.sampling.rows.features import take_rows
from tasks.sampling.rows.labels import targets
from tasks.storage.graph_store import GraphStore
from tasks.train.loaders.base import LabelLoader, Loader, TrainingData
from tasks.train.loaders.config_base import NegativesConfig
from tasks.train.loaders.configs import EdgeConfig, LabelledEdgeConfig
from tasks.train.loaders.neighbor import open_neighborhoods


class PairSource:
    """Training edges and drawn negatives of each."""

    def __init__(self, store: GraphStore, config: NegativesConfig) -> None:
        self.edges = store["train_edges"]
        self.negatives: PartNegatives | NegativeSampler
        if isinstance(store, PartGraph):
            self.negatives = PartNegatives(store, config.num_negatives)
        else:
            self.negatives = NegativeSampler(store, config.num_negatives)
        self.num_seeds = len(self.edges)

    def draw_all(self, requests: Sequence[tuple[Array, int]]) -> list[tuple[Array, Tensor]]:
        """Return pairs and their target, 1 or 0, for each pair of positions and key.

        Pairs are int64 (2, n * (1 + num_negatives)), the positives first.
        """
        positives = [np.asarray(self.edges[positions], np.int64) for positions, _ in requests]
        keys = [derive_key(key, 1) for _, key in requests]
        negatives = self.negatives.draw_all(list(zip(positives, keys, strict=True)))
        drawn = []
        for positive, negative in zip(positives, negatives, strict=True):
            target = torch.zeros(len(positive) + len(negative))
            target[: len(positive)] = 1
            drawn.append((np.ascontiguousarray(np.concatenate([positive, negative]).T), target))
        return drawn


@LOADERS.register("edge")
class EdgeLoader(Loader):
    """Seeds are training edges; their ends' neighbourhoods are sampled without the batch's own positive edges.

    Left in, an edge would tell the model its own answer.
    """

    def __init__(self, config: EdgeConfig, data: TrainingData) -> None:
        """Open a graph. Raises RecipeError for options that do not fit it, or the model."""
        self.pairs = PairSource(data.store, config)
        self.num_seeds, self.batch_size = self.pairs.num_seeds, config.batch_size
        self.neighborhoods = open_neighborhoods(config, config.first_hop, data)

    def batch(self, positions: Array, key: int) -> Batch:
        """Draw negatives and sample around all ends."""
        return next(self.batches([(positions, key)]))

    def batches(self, requests: Sequence[tuple[Array, int]]) -> Iterator[Batch]:
        """Draw negatives and sample around all ends, for each request."""
        drawn = self.pairs.draw_all(requests)
        pairs, seeds = self._seeds(drawn, requests)
        around = self.neighborhoods.around_all(seeds)
        for (positions, _), (_, target), local, (blocks, inputs) in zip(requests, drawn, pairs, around, strict=True):
            batch = Batch(blocks, inputs, target, len(positions), pairs=torch.from_numpy(local))
            batch.num_edges = sum(block.num_edges for block in blocks)
            yield batch

    def rehearse(self, groups: Sequence[Sequence[tuple[Array, int]]]) -> None:
        """Find out what such batches read."""
        if isinstance(self.neighborhoods, PartNeighborhoods):
            groups_of_seeds = [self._seeds(self.pairs.draw_all(requests), requests)[1] for requests in groups]
            self.neighborhoods.keep_most_read(groups_of_seeds)

    def _seeds(
        self, drawn: Sequence[tuple[Array, Tensor]], requests: Sequence[tuple[Array, int]]
    ) -> tuple[list[Array], list[Seeds]]:
        """Return each request's pairs in local numbers, int64 (2, n), and what is sampled around them."""
        numbered = [self.neighborhoods.number(pairs) for pairs, _ in drawn]
        seeds = [
            Seeds(nodes, key, excluded=local[:, : len(positions)])
            for (local, nodes), (positions, key) in zip(numbered, requests, strict=True)
        ]
        return [local for local, _ in numbered], seeds


class PartNegatives:
    """Draws what `NegativeSampler` draws; all ranks call it together, with equally many batches, from one thread."""

    def __init__(self, graph: PartGraph, num_negatives: int) -> None:
        self.graph, self.num_negatives = graph, num_negatives
        first, end = (node - graph.first for node in graph.own)
        of_ends = [graph.get(name) for name in ("edge_role", "edge_side")]
        self.ends = ends_of(*(None if rows is None else graph.exchange.gather(rows[first:end]) for rows in of_ends))

    def draw_all(self, batches: Sequence[tuple[Array, int]]) -> list[Array]:
        """Return the negatives of each batch of positives, int64 (n, 2), drawn under a key."""
        drawn = [np.empty((len(positive) * self.num_negatives, 2), np.int64) for positive, _ in batches]
        pending = [np.arange(len(pairs)) for pairs in drawn]
        num_nodes = self.graph.manifest.num_nodes
        for number in range(TRIES):
            for (_, key), rows, out in zip(batches, pending, drawn, strict=True):
                _propose(self.ends, key, number, num_nodes, rows, out)
            asked = np.concatenate([out[rows] for rows, out in zip(pending, drawn, strict=True)])
            edges = count_edges(self.graph, asked.astype(self.graph["csc_indices"].dtype)) > 0
            refused = edges | are_never_joined(asked[:, 0], asked[:, 1], self.ends.side)
            ends = np.cumsum([len(rows) for rows in pending])[:-1]
            pending = [rows[again] for rows, again in zip(pending, np.split(refused, ends), strict=True)]
            if not self.graph.exchange.largest(sum(map(len, pending))):
                break
        return drawn


@njit(cache=True, nogil=True)
def _propose(ends, key, number, num_nodes, rows, out):  # type: ignore[no-untyped-def]
    """Fill rows of `out` with what is drawn in try `number`."""
    for row in rows:
        out[row, 0], out[row, 1] = draw_pair(ends, key, row, number, num_nodes)


@LOADERS.register("labelled_edge")
class LabelledEdgeLoader(LabelLoader):
    """Seeds are labelled edges; the ends' neighbourhoods are sampled without the batch's own edges.

    So training sees what evaluation sees, whose edges carry no messages either. Where scored edges are kept, all stay.
    """

    def __init__(self, config: LabelledEdgeConfig, data: TrainingData) -> None:
        """Open a graph. Raises RecipeError for options that do not fit it, or the model."""
        store = data.store
        super().__init__(store.manifest, store["train_idx"], store["edge_label"])
        self.ends, self.feat, self.feat_cat = store["edge_ends"], store.get("scored_feat"), store.get("scored_feat_cat")
        self.batch_size = config.batch_size
        self.neighborhoods = open_neighborhoods(config, config.first_hop, data)

    def batch(self, positions: Array, key: int) -> Batch:
        """Sample around the ends of the edges at some positions."""
        edges = np.asarray(self.seeds[positions])
        local, nodes = self.neighborhoods.number(np.ascontiguousarray(self.ends[edges].T, np.int64))
        excluded = None if self.manifest.keep_known_pairs else local
        [(blocks, inputs)] = self.neighborhoods.around_all([Seeds(nodes, key, excluded)])
        return Batch(
            blocks=blocks,
            inputs=inputs,
            target=targets(self.manifest, np.asarray(self.labels[edges])),
            num_seeds=len(edges),
            pairs=torch.from_numpy(local),
            own_feat=take_rows(self.feat, edges, np.float32),
            own_feat_cat=take_rows(self.feat_cat, edges, np.int64),
            num_edges=sum(block.num_edges for block in blocks),
        )
