"""Mini-batches of nodes with sampled neighbourhoods."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from configs.errors import RecipeError
from configs.registry import LOADERS
from models.block import Batch, Block, Inputs
from tasks.sampling.draws import in_degrees
from tasks.sampling.features import FeatureSource, make_blocks
from tasks.sampling.labels import targets, without_labels
from tasks.sampling.neighbors import Method, NeighborSampler
from tasks.storage.graph_store import MISSING_IN_EDGES, GraphStore
from tasks.train.loaders.base import Array, LabelLoader, TrainingData
from tasks.train.loaders.config_base import SampledConfig
from tasks.train.loaders.configs import NeighborConfig
from tasks.train.loaders.first_hop import FirstHop, choose_first_hop, precomputed_mean


@LOADERS.register("neighbor")
class NeighborLoader(LabelLoader):
    """Seeds are labelled nodes; each layer sees a sample of in-edges (arXiv:1706.02216, section 3.1)."""

    def __init__(self, config: NeighborConfig, data: TrainingData) -> None:
        """Open a graph. Raises RecipeError for options that do not fit it, or the model."""
        store = data.store
        super().__init__(store.manifest, store["train_idx"], store["label"])
        self.batch_size = config.batch_size
        self.neighborhoods = Neighborhoods.of(config, config.first_hop, data)

    def batch(self, positions: Array, key: int) -> Batch:
        """Sample around the seeds."""
        chosen = np.asarray(self.seeds[positions])
        seeds, rows = np.unique(chosen, return_inverse=True)  # ascending: neighbours in memory are read together
        repeated = len(seeds) < len(chosen)
        blocks, inputs = self.neighborhoods.around(seeds, key)
        return Batch(
            blocks=blocks,
            inputs=without_labels(inputs, slice(len(seeds))),  # else a seed would read its own
            target=targets(self.manifest, self.labels[chosen if repeated else seeds]),
            num_seeds=len(positions),
            rows=torch.from_numpy(rows) if repeated else None,
            num_edges=sum(block.num_edges for block in blocks),
        )


class Neighborhoods:
    """Blocks around seeds, with the inputs of their outermost nodes; several threads may share one."""

    def __init__(
        self,
        store: GraphStore,
        features: FeatureSource,
        fanouts: tuple[int, ...],
        *,
        sampler: Method = "uniform",
        first_hop: FirstHop = "sampled",
        scratch: Path | None = None,
    ) -> None:
        """Open a graph for a model of as many layers as there are `fanouts`, from the seeds outwards.

        `scratch`: folder for a table of means, shared by the machine's ranks; None: the system's own. Raises
        RecipeError: `sampler` does not fit the graph.
        """
        _check_sampler(sampler, store, fanouts)
        self.features = features
        self.first_hop = first_hop
        self.indptr = np.asarray(store["csc_indptr"])
        self.missing = store.get(MISSING_IN_EDGES)
        self.mean = precomputed_mean(store, features, scratch) if first_hop == "precomputed" else None
        self.sampler = NeighborSampler(
            self.indptr,
            store["csc_indices"],
            fanouts if self.mean is None else fanouts[:-1],
            method=sampler,
            edge_weight=store["edge_weight"] if sampler == "weighted" else None,
            inverse_chances=features.edge_weight is not None,
            positions=features.reads_edges,
        )

    @classmethod
    def of(cls, config: SampledConfig, first_hop: str, data: TrainingData) -> Neighborhoods:
        """Open a graph as a recipe says. Raises RecipeError for options that do not fit it, or the model."""
        fanouts = config.fanouts(data.num_layers or len(config.fanout or ()))
        hop = choose_first_hop(first_hop, fanouts, data.features, reads_mean=data.reads_mean)
        return cls(data.store, data.features, fanouts, sampler=config.sampler, first_hop=hop, scratch=data.scratch)

    def around(self, seeds: Array, key: int, excluded: Array | None = None) -> tuple[list[Block], Inputs]:
        """Sample around distinct seeds; the arguments are those of `NeighborSampler.sample`.

        Returns:
            One block a layer, from the outermost to the seeds, and the inputs of the outermost block's sources.
        """
        fused = self.first_hop == "fused"
        nodes, layers = self.sampler.sample(seeds, key, excluded, open_last=fused)
        if self.missing is not None:
            for layer in layers:
                layer.degree += self.missing[nodes[: len(layer.degree)]]
        if self.mean is not None:
            assert excluded is None, "a mean over all neighbours cannot leave edges out"
            inputs, mean = self.features.inputs_and_known_mean(nodes, self.mean)
            return [self._mean_of_all(nodes, mean), *make_blocks(layers, self.features)], inputs
        if not fused:
            return make_blocks(layers, self.features), self.features.inputs(nodes)
        outer, *inner = layers
        inputs, mean = self.features.inputs_and_mean(nodes, outer.indptr, outer.indices)
        degree = outer.degree
        if outer.weight is not None:
            # LABOR's weights are equal for all edges into a node: the mean needs none, and a sum is the mean times
            # their sum.
            degree = _weight_sums(outer.indptr, outer.weight)
        return [_mean_block(outer.indptr, degree, mean), *make_blocks(inner, self.features)], inputs

    def _mean_of_all(self, nodes: Array, mean: Tensor) -> Block:
        """Return the block of nodes whose mean over all in-edges is known."""
        degree = np.empty(len(nodes), np.float32)
        indptr = np.zeros(len(nodes) + 1, np.int64)
        in_degrees(self.indptr, nodes, degree)
        np.cumsum(degree, out=indptr[1:], dtype=np.int64)
        if self.missing is not None:
            degree += self.missing[nodes]
        return _mean_block(indptr, degree, mean)


def _mean_block(indptr: Array, degree: Array, mean: Tensor) -> Block:
    """Return a block whose sources are its destinations, since the mean over its edges is known."""
    return Block(
        torch.from_numpy(indptr),
        torch.empty(0, dtype=torch.int32),
        len(degree),
        degree=torch.from_numpy(degree),
        mean=mean,
    )


def _weight_sums(indptr: Array, weight: Array) -> Array:
    """Return the sum of each destination's weights (E,), which are alike within it: float32 (num_dst,)."""
    if not len(weight):
        return np.zeros(len(indptr) - 1, np.float32)
    first = weight[np.minimum(indptr[:-1], len(weight) - 1)]
    return (np.diff(indptr) * first).astype(np.float32)


def _check_sampler(sampler: Method, store: GraphStore, fanouts: tuple[int, ...]) -> None:
    if sampler == "weighted" and "edge_weight" not in store:
        raise RecipeError(
            f"train.loader.sampler=weighted draws by the edges' weights and {store.manifest.dataset} has none; "
            "take train.loader.sampler=uniform"
        )
    if sampler != "uniform" and all(fanout < 0 for fanout in fanouts):
        raise RecipeError(
            f"train.loader.sampler={sampler} does nothing where every fan-out is -1, all neighbours; remove it or set "
            "train.loader.fanout to numbers"
        )
