"""What a model reads of nodes and edges of a graph in parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from configs.errors import RecipeError
from models.block import Block, Inputs
from tasks.sampling.parts.device_rows import DeviceRows, ExchangedRows
from tasks.sampling.parts.exchange import Array
from tasks.sampling.parts.graph import PartGraph
from tasks.sampling.parts.rows import Located, PartRows
from tasks.sampling.parts.sampler import PartSample
from tasks.sampling.parts.wholegraph import WholeGraphRows
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
        self.device_rows: DeviceRows | None = None
        """What is there of numeric features where devices hold them."""

    def to(self, device: torch.device) -> None:
        """Let devices hold numeric features, if they are to; all ranks together. Errors of `open_device_rows`."""
        if self.own.feat is None:
            return
        if self.own.on_devices:
            self.device_rows = open_device_rows(self.graph, self.own, device)
            print(self.device_rows.describe())
        elif self.own.rows_on == "auto" and device.type == "cuda":
            print(
                "features lie in CPU memory; train.strategy.rows_on=device, which has not run on a GPU yet, holds "
                "them in the GPUs' memory"
            )

    @property
    def stores(self) -> list[PartRows | DeviceRows]:
        """All that fetches rows."""
        return [self.rows] if self.device_rows is None else [self.rows, self.device_rows]

    def edge_columns(self) -> dict[str, Array]:
        """Return what edges carry, by name: rows of this machine's in-edges."""
        found = {name: getattr(self.own, name) for name in _EDGE_TABLES}
        return {name: table for name, table in found.items() if table is not None}

    def inputs(self, nodes: Sequence[Array]) -> Iterator[tuple[Inputs, Array]]:
        """Yield the inputs of lists of nodes, and their in-degrees in the whole graph, float32 (n,)."""
        located = self.rows.fetch(nodes)
        pending = None if self.device_rows is None else self.device_rows.place(nodes)
        for number, ids in enumerate(nodes):
            inputs = self._inputs(ids, located, number)
            if pending is not None:
                inputs = replace(inputs, pending=pending[number])
            elif self.own.table is not None:
                rows = located.rows[number]
                inputs = replace(inputs, feat=gather_rows(self.own.table, rows, self.own.dtype, located.extra["feat"]))
            yield inputs, self.rows.take(_DEGREE, located, number)

    def inputs_and_mean(self, nodes: Sequence[Array], outer: Sequence[PartSample]) -> Iterator[tuple[Inputs, Tensor]]:
        """Yield the inputs of destinations and the means of their sources' numeric features, (n, D).

        `outer` are the layers whose destinations are lists of `nodes`, and whose sources are node ids. Where devices
        hold the features, they and the means are pending.
        """
        if self.device_rows is not None:
            located = self.rows.fetch(nodes)
            for number, pending in enumerate(self.device_rows.place(nodes, outer)):
                no_columns_yet = torch.empty(len(nodes[number]), 0)
                yield replace(self._inputs(nodes[number], located, number), pending=pending), no_columns_yet
            return
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


def open_device_rows(graph: PartGraph, features: FeatureSource, device: torch.device) -> DeviceRows:
    """Let devices hold the features, as `features.rows_on` says; all ranks together.

    Raises RecipeError: this rank has no GPU, there is no room, or WholeGraph cannot be had.
    """
    refuse_device(device, features.rows_on)
    kind = ExchangedRows if features.rows_on == "device" else WholeGraphRows
    return kind(graph, features, device)


def refuse_device(device: torch.device, rows_on: str) -> None:
    """Raise RecipeError where a rank computes on the CPU."""
    if device.type != "cuda":
        raise RecipeError(
            f"train.strategy.rows_on={rows_on} needs a GPU, and this rank computes on the CPU; set "
            "train.strategy.rows_on=host"
        )


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
