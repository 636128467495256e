"""Blocks around seeds in a graph in parts, with the inputs of their outermost nodes."""

from __future__ import annotations

from collections.abc import Sequence

from models.block import Block, Inputs
from tasks.sampling.features import FeatureSource, mean_block
from tasks.sampling.in_edges import Method, Seeds
from tasks.sampling.parts.exchange import Array
from tasks.sampling.parts.features import PartFeatures, make_block
from tasks.sampling.parts.graph import PartGraph
from tasks.sampling.parts.sampler import PartSampler


class PartNeighborhoods:
    """`Neighborhoods` for some batches at once; all ranks call it together, from one thread."""

    def __init__(
        self,
        graph: PartGraph,
        features: FeatureSource,
        fanouts: tuple[int, ...],
        *,
        sampler: Method = "uniform",
        fused: bool = False,
    ) -> None:
        """Open a machine's part for a model of as many layers as there are `fanouts`, from the seeds outwards.

        `fused`: the outermost hop reaches the model as a mean of features.
        """
        self.fused = fused
        self.features = PartFeatures(graph, features)
        self.sampler = PartSampler(
            graph,
            fanouts,
            method=sampler,
            inverse_chances=features.edge_weight is not None,
            columns=self.features.edge_columns(),
        )

    def around_all(self, batches: Sequence[Seeds]) -> list[tuple[list[Block], Inputs]]:
        """Sample around the seeds of each batch; the result is that of `Neighborhoods.around` for each."""
        sampled = self.sampler.sample(batches, open_last=self.fused)
        nodes = [batch.nodes for batch in sampled]
        if self.fused:
            means = self.features.inputs_and_mean(nodes, [batch.layers[0] for batch in sampled])
            return [
                ([mean_block(batch.layers[0], mean), *map(make_block, batch.layers[1:])], inputs)
                for batch, (inputs, mean) in zip(sampled, means, strict=True)
            ]
        found = []
        for batch, (inputs, degree) in zip(sampled, self.features.inputs(nodes), strict=True):
            if batch.lowered is not None:
                degree[: len(batch.lowered)] -= batch.lowered
            batch.layers[0].degree = degree
            found.append((list(map(make_block, batch.layers)), inputs))
        return found

    def number(self, ids: Array) -> tuple[Array, Array]:
        """Return local numbers of `ids` (int64, same shape) and the distinct ids in order of first appearance."""
        return self.sampler.number(ids)
