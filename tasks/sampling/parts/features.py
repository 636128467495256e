"""What a model reads of nodes and edges of a graph in parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from models.block import Block, Inputs
from tasks.sampling.parts.exchange import Array
from tasks.sampling.parts.graph import PartGraph
from tasks.sampling.parts.rows import Located, PartRows
from tasks.sampling.parts.sampler import PartSample
from tasks.sampling.rows.features import FeatureSource, count_types, node_id_tensor
from tasks.sampling.rows.gather import gather_mean, gather_rows

_NODE_TABLES = ("feat_cat", "node_type", "label")
_EDGE_TABLES = ("edge_feat", "edge_feat_cat", "edge_type", "edge_weight")
_DEGREE = "in_degree"


class PartFeatures:
    """`FeatureSource` over a graph in parts: for some batches at once; all ranks call it together, from one thread."""

    def __init__(self, graph: PartGraph, own: FeatureSource) -> None:
        """`own`: of this machine's rows; all ranks together."""
        self.own = own = _alike(graph, own)
        tables: dict[str, Array] = {_DEGREE: np.diff(graph["csc_indptr"]).astype(np.float32)}
        if own.table is not None:
            tables["feat"] = own.table
        tables |= {name: table for name in _NODE_TABLES if (table := getattr(own, name)) is not None}
        self.graph, self.rows = graph, PartRows(graph, tables)

    def edge_columns(self) -> dict[str, Array]:
        """Return what edges carry, by name: rows of this machine's in-edges."""
        found = {name: getattr(self.own, name) for name in _EDGE_TABLES}
        return {name: table for name, table in found.items() if table is not None}

    def inputs(self, nodes: Sequence[Array]) -> Iterator[tuple[Inputs, Array]]:
        """Yield the inputs of lists of nodes, and their in-degrees in the whole graph, float32 (n,)."""
        located = self.rows.fetch(nodes)
        for number, ids in enumerate(nodes):
            inputs = self._inputs(ids, located, number)
            if self.own.table is not None:
                rows = located.rows[number]
                inputs = replace(inputs, feat=gather_rows(self.own.table, rows, self.own.dtype, located.extra["feat"]))
            yield inputs, self.rows.take(_DEGREE, located, number)

    def inputs_and_mean(self, nodes: Sequence[Array], outer: Sequence[PartSample]) -> Iterator[tuple[Inputs, Tensor]]:
        """Yield the inputs of destinations and the means of their sources' numeric features, (n, D).

        `outer` are the layers whose destinations are lists of `nodes`, and whose sources are node ids.
        """
        assert self.own.table is not None, "a mean is taken of numeric features"
        located = self.rows.fetch([*nodes, *(layer.indices for layer in outer)])
        for number, (ids, layer) in enumerate(zip(nodes, outer, strict=True)):
            rows, sources = located.rows[number], located.rows[len(nodes) + number]
            extra = located.extra["feat"]
            feat, mean = gather_mean(self.own.table, rows, layer.indptr, sources, self.own.dtype, extra)
            yield replace(self._inputs(ids, located, number), feat=feat), mean

    def _inputs(self, ids: Array, located: Located, number: int) -> Inputs:
        """Return all but the numeric features."""
        known = {name: self.rows.take(name, located, number) for name in _NODE_TABLES if name in self.rows.tables}
        codes, types, label = (known.get(name) for name in _NODE_TABLES)
        node_type = None if types is None else torch.from_numpy(types.astype(np.int64))
        return Inputs(
            node_id_tensor(ids),
            feat_cat=None if codes is None else torch.from_numpy(codes.astype(np.int64)),
            label=None if label is None else torch.from_numpy(label),
            node_type=node_type,
            node_type_counts=count_types(node_type),
        )


def _alike(graph: PartGraph, own: FeatureSource) -> FeatureSource:
    """Return the features with rows of one kind on all ranks: where one has no room for a copy, nobody has one."""
    if own.dtype != torch.bfloat16 or own.rows != "stored" or own.table is None:
        return own
    return replace(own, may_copy=False) if graph.exchange.largest(int(own.table is own.feat)) else own


def make_block(layer: PartSample) -> Block:
    """Turn a sampled layer, whose sources' degrees are known, into a block with what its edges carry."""
    indptr, indices, degree = map(torch.from_numpy, (layer.indptr, layer.indices, layer.degree))
    block = Block(indptr, indices, len(degree), degree=degree)
    block.weight = None if layer.weight is None else torch.from_numpy(layer.weight)
    columns = layer.columns
    for name, dtype in (("edge_feat", np.float32), ("edge_feat_cat", np.int64), ("edge_type", np.int64)):
        if name in columns:
            setattr(block, name, torch.from_numpy(columns[name].astype(dtype, copy=False)))
    block.edge_type_counts = count_types(block.edge_type)
    if "edge_weight" in columns:
        weight = torch.from_numpy(columns["edge_weight"].astype(np.float32, copy=False))
        block.weight = weight if block.weight is None else weight * block.weight
    return block
