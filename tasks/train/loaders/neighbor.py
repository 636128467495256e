"""Mini-batches of nodes with sampled neighbourhoods."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, cast

import numpy as np
import torch
from torch import Tensor

from configs.errors import RecipeError
from configs.registry import LOADERS
from models.block import Batch, Block, Inputs
from models.kernels.sparse.adjacency import split_rows
from models.kernels.threads import num_threads, run_rows
from tasks.arrays import Array
from tasks.sampling.neighborhoods.in_edges import Sample, Seeds
from tasks.sampling.neighborhoods.neighbors import NeighborSampler
from tasks.sampling.neighborhoods.relabel import asked_edges
from tasks.sampling.parts.graph import PartGraph
from tasks.sampling.parts.neighborhoods import PartNeighborhoods
from tasks.sampling.rows.features import FeatureSource, make_blocks, mean_block
from tasks.sampling.rows.gather import mean_rows, table_tiles
from tasks.sampling.rows.labels import targets, without_labels
from tasks.storage.graph_store import MISSING_IN_EDGES, GraphStore
from tasks.train.loaders.base import LabelLoader, TrainingData, shared_table
from tasks.train.loaders.config_base import SampledConfig
from tasks.train.loaders.configs import NeighborConfig


@LOADERS.register("neighbor")
class NeighborLoader(LabelLoader):
    """Seeds are labelled nodes; each layer sees a sample of in-edges (arXiv:1706.02216, section 3.1)."""

    def __init__(self, config: NeighborConfig, data: TrainingData) -> None:
        """Open a graph. Raises RecipeError for options that do not fit it, or the model."""
        store = data.store
        super().__init__(store.manifest, store["train_idx"], store["label"])
        self.store = store
        self.batch_size = config.batch_size
        self.neighborhoods = open_neighborhoods(config, config.first_hop, data)

    def batch(self, positions: Array, key: int) -> Batch:
        """Sample around the seeds."""
        return next(self.batches([(positions, key)]))

    def batches(self, requests: Sequence[tuple[Array, int]]) -> Iterator[Batch]:
        """Sample around the seeds of each."""
        distinct, seeds = self._seeds(requests)
        labels = self.labels_of([nodes for nodes, _ in distinct])
        around = self.neighborhoods.around_all(seeds)
        for parts in zip(distinct, labels, around, strict=True):
            yield self._make(*parts)

    def labels_of(self, seeds: Sequence[Array]) -> list[Array]:
        """Return the labels of lists of seeds, which other ranks may hold."""
        return self.store.rows_of("label", seeds)

    def rehearse(self, groups: Sequence[Sequence[tuple[Array, int]]]) -> None:
        """Find out what such batches read."""
        if isinstance(self.neighborhoods, PartNeighborhoods):
            self.neighborhoods.keep_most_read([self._seeds(requests)[1] for requests in groups])

    def _seeds(self, requests: Sequence[tuple[Array, int]]) -> tuple[list[tuple[Array, Array]], list[Seeds]]:
        """Return each request's distinct nodes, ascending, so that neighbours in memory are read together.

        With them the places of its seeds among them, and what is sampled around.
        """
        distinct = [np.unique(np.asarray(self.seeds[positions]), return_inverse=True) for positions, _ in requests]
        return distinct, [Seeds(nodes, key) for (nodes, _), (_, key) in zip(distinct, requests, strict=True)]

    def _make(self, distinct: tuple[Array, Array], label: Array, around: tuple[list[Block], Inputs]) -> Batch:
        """Return the batch of distinct seeds (n,), of which seed i of the batch is number distinct[1][i]."""
        (seeds, rows), (blocks, inputs) = distinct, around
        repeated = len(seeds) < len(rows)
        return Batch(
            blocks=blocks,
            inputs=without_labels(inputs, slice(len(seeds))),  # else a seed would read its own
            target=targets(self.manifest, label[rows] if repeated else label),
            num_seeds=len(rows),
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
        first_hop: FirstHop = "sampled",
        scratch: Path | None = None,
    ) -> None:
        """Open a graph for a model of as many layers as there are `fanouts`, from the seeds outwards.

        `scratch`: folder for a table of means, shared by the machine's ranks; None: the system's own.
        """
        self.features = features
        self.first_hop = first_hop
        self.indptr = np.asarray(store["csc_indptr"])
        self.missing = store.get(MISSING_IN_EDGES)
        self.mean = precomputed_mean(store, features, scratch) if first_hop == "precomputed" else None
        self.sampler = NeighborSampler(
            self.indptr,
            store["csc_indices"],
            fanouts if self.mean is None else fanouts[:-1],
            inverse_chances=features.edge_weight is not None,
            positions=features.reads_edges,
            asked=asked_edges(store),
            edge_type=features.edge_type if len(store.manifest.edge_types) > 1 else None,
        )

    def around_all(self, batches: Sequence[Seeds]) -> Iterator[tuple[list[Block], Inputs]]:
        """Sample around the seeds of each batch, see `around`."""
        for batch in batches:
            yield self.around(batch.nodes, batch.key, batch.excluded)

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
        return [mean_block(outer, mean), *make_blocks(inner, self.features)], inputs

    def number(self, ids: Array) -> tuple[Array, Array]:
        """Return local numbers of `ids` (int64, same shape) and the distinct ids in order of first appearance."""
        return self.sampler.number(ids)

    def _mean_of_all(self, nodes: Array, mean: Tensor) -> Block:
        """Return the block of nodes whose mean over all in-edges is known."""
        degree = self.sampler.edges.degrees(nodes)
        indptr = np.zeros(len(nodes) + 1, np.int64)
        np.cumsum(degree, out=indptr[1:], dtype=np.int64)
        if self.missing is not None:
            degree += self.missing[nodes]
        return mean_block(Sample(indptr, np.empty(0, np.int32), None, degree), mean)


def open_neighborhoods(config: SampledConfig, first_hop: str, data: TrainingData) -> Neighborhoods | PartNeighborhoods:
    """Open a graph as a recipe says. Raises RecipeError for options that do not fit it, or the model."""
    fanouts = config.fanouts(data.num_layers or len(config.fanout or ()))
    hop = choose_first_hop(first_hop, fanouts, data.features, reads_mean=data.reads_mean)
    if isinstance(data.store, PartGraph):
        if hop == "precomputed":
            raise RecipeError(
                "train.loader.first_hop=precomputed takes means over the whole graph, and train.strategy=partitioned "
                "holds parts of it; take train.loader.first_hop=auto"
            )
        return PartNeighborhoods(data.store, data.features, fanouts, fused=hop == "fused")
    return Neighborhoods(data.store, data.features, fanouts, first_hop=hop, scratch=data.scratch)


FirstHop = Literal["sampled", "fused", "precomputed"]


def choose_first_hop(option: str, fanouts: tuple[int, ...], features: FeatureSource, *, reads_mean: bool) -> FirstHop:
    """Resolve `train.loader.first_hop`, the `option`: `auto` is fused where the model allows it.

    `reads_mean`: whether the first layer reads only a mean of the neighbours (`GraphModel.reads_mean`). Raises
    RecipeError: the model reads the neighbours in another way, or a fan-out would do nothing.
    """
    possible = reads_mean and features.feat is not None and features.feat_cat is None and not features.reads_edges
    if option == "auto":
        return "fused" if possible else "sampled"
    if option != "sampled" and not possible:
        if features.edge_feat is not None or features.edge_feat_cat is not None:
            raise RecipeError(
                f"train.loader.first_hop={option} hands the first layer a mean of its neighbours' features, and this "
                "model reads what edges carry besides; take train.loader.first_hop=auto, or model.edge_features=false"
            )
        raise RecipeError(
            f"train.loader.first_hop={option} hands the first layer a mean of its neighbours' numeric features, and "
            "this model reads them in another way; take train.loader.first_hop=auto, or a model that takes a mean or "
            "sum of plain features, such as graphsage"
        )
    if option == "precomputed" and fanouts[-1] >= 0:
        numbers = ",".join(map(str, (*fanouts[:-1], -1)))
        raise RecipeError(
            f"train.loader.first_hop=precomputed takes all neighbours of the outermost hop, so that its fan-out "
            f"{fanouts[-1]} would do nothing; set train.loader.fanout={numbers}"
        )
    return cast(FirstHop, option)


def precomputed_mean(store: GraphStore, features: FeatureSource, scratch: Path | None) -> Array:
    """Return the mean of each node's in-neighbours' numeric features, 0 without any, in one pass over the edges.

    Returns:
        (N, D) float32, or bfloat16 as uint16, memory-mapped read-only (see `shared_table`).

    Raises StageError: the disk has no room.
    """
    assert features.table is not None, "a mean is taken of numeric features"
    table, shape = features.table, (store.manifest.num_nodes, features.table.shape[1])
    kind = np.dtype(np.uint16 if features.dtype == torch.bfloat16 else np.float32)
    # Ranks may have graphs of their own (partition_parallel): the edges are part of the name.
    edges = zlib.crc32(np.ascontiguousarray(store["csc_indptr"]).data)
    name = f"first-hop-{edges:08x}-{kind.itemsize}.npy"
    return shared_table(scratch, name, shape, kind, lambda mean, _: _fill(np.asarray(mean), store, table))


def _fill(mean: Array, store: GraphStore, table: Array) -> None:
    """Fill mean (N, D) on all of torch's threads."""
    indptr, indices = np.asarray(store["csc_indptr"]), np.asarray(store["csc_indices"])
    bounds = split_rows(indptr, num_threads())
    for tile in table_tiles(table, mean):
        run_rows(mean_rows, bounds, *tile, None, indptr, indices, None, mean.reshape(-1), mean.shape[1])
