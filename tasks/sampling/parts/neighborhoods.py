"""Blocks around seeds in a graph in parts, with the inputs of their outermost nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from models.block import Block, Inputs
from tasks.arrays import Array
from tasks.sampling.neighborhoods.in_edges import Seeds
from tasks.sampling.parts.graph import CACHE_SHARE, PartGraph
from tasks.sampling.parts.rows import PartFeatures, make_block
from tasks.sampling.parts.sampler import PartSampler
from tasks.sampling.rows.features import FeatureSource, mean_block


class PartNeighborhoods:
    """`Neighborhoods` for some batches at once; all ranks call it together, from one thread."""

    def __init__(
        self, graph: PartGraph, features: FeatureSource, fanouts: tuple[int, ...], *, fused: bool = False
    ) -> None:
        """Open a machine's part for a model of as many layers as there are `fanouts`, from the seeds outwards.

        `fused`: the outermost hop reaches the model as a mean of features.
        """
        self.fused = fused
        self.features = PartFeatures(graph, features)
        self.sampler = PartSampler(
            graph,
            fanouts,
            inverse_chances=features.edge_weight is not None,
            columns=self.features.edge_columns(),
            edge_type=features.edge_type if len(graph.manifest.edge_types) > 1 else None,
        )

    def keep_most_read(self, groups: Sequence[Sequence[Seeds]]) -> None:
        """Keep the rows of other machines that most groups of batches would fetch, as many as the cache has room for.

        Only the groups' samples are drawn for it.
        """
        graph, store = self.features.graph, self.features.rows
        room = graph.cache_bytes
        if room is None:
            room = (graph.own[1] - graph.own[0]) * store.row_bytes * CACHE_SHARE
        missing: list[Array] = []
        for group in groups:
            sampled = self.sampler.sample(group, open_last=self.fused)
            wanted = [batch.nodes for batch in sampled]
            wanted += [batch.layers[0].indices for batch in sampled] if self.fused else []
            missing.append(store.missing(wanted).copy())
        nodes, counts = np.unique(np.concatenate(missing), return_counts=True)
        chosen = np.lexsort((nodes, -counts))[: int(room // store.row_bytes)]
        store.keep(np.sort(nodes[chosen]))

    def around_all(self, batches: Sequence[Seeds]) -> Iterator[tuple[list[Block], Inputs]]:
        """Sample around the seeds of each batch and yield what `Neighborhoods.around` returns for it.

        All that comes from other ranks is there before the first; each is put together when it is asked for. All are
        taken before this is called again.
        """
        sampled = self.sampler.sample(batches, open_last=self.fused)
        nodes = [batch.nodes for batch in sampled]
        if self.fused:
            means = self.features.inputs_and_mean(nodes, [batch.layers[0] for batch in sampled])
            for batch, (inputs, mean) in zip(sampled, means, strict=True):
                yield [mean_block(batch.layers[0], mean), *map(make_block, batch.layers[1:])], inputs
            return
        for batch, (inputs, degree) in zip(sampled, self.features.inputs(nodes), strict=True):
            if batch.lowered is not None:
                degree[: len(batch.lowered)] -= batch.lowered
            batch.layers[0].degree = degree
            yield list(map(make_block, batch.layers)), inputs

    def number(self, ids: Array) -> tuple[Array, Array]:
        """Return local numbers of `ids` (int64, same shape) and the distinct ids in order of first appearance."""
        return self.sampler.number(ids)
