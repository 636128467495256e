"""A model's score of a node or a pair, computed from its neighbourhood alone: as it is, and as it would be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from configs.errors import RecipeError
from models.base import GraphModel
from models.block import Batch, Block, Inputs
from tasks.arrays import Array
from tasks.explain.asked_score import AskedScore
from tasks.explain.features import Features
from tasks.explain.neighborhood import Neighborhood, edge_ends, neighborhood_of
from tasks.inference.predictor import evaluating
from tasks.sampling.rows.features import FeatureSource, count_types
from tasks.storage.graph_store import GraphStore

_EDGES_A_PASS = 1 << 20
"""Of all variants that are scored at a time, with as many values of their nodes' widest vectors times 64."""


@dataclass(frozen=True)
class Variants:
    """V graphs that differ from the neighbourhood."""

    removed: Array
    """bool (V, U): units of edges that are left out."""
    lowered: Array
    """int64 (V, n): by how much that lowers each node's in-degree in the whole graph."""
    column: Array | None = None
    """int64 (V,): a column of features that the node `of_node` has as usual."""
    of_node: int = 0


class ScoredNeighborhood:
    """What a model says of some seeds, by their neighbourhood; `Predictor` says the same where that is whole."""

    def __init__(
        self, store: GraphStore, model: GraphModel, columns: Features, asked: AskedScore, most_edges: int
    ) -> None:
        """Open a graph. Raises RecipeError: the model's scores do not follow from hops around a node."""
        if not model.is_layered or model.table is not None or not len(model.layers) or model.facts.many_graphs:
            raise RecipeError(
                f"{model.config.name} does not compute a score from the hops around a node, one layer a hop: edges and "
                "neighbours of it cannot be left out; explain a model such as graphsage, gcn, gat, gin, rgcn or sgc"
            )
        self.store, self.model, self.columns, self.most_edges = store, model, columns, most_edges
        self.features = FeatureSource.of(store, model)
        model.requires_grad_(False)  # of its weights nobody asks for gradients
        self.device = next(model.parameters()).device
        self.asked = self._asked = asked

    def look_at(self, seeds: Array) -> None:
        """Look at a node (1,) or at both ends of a pair (2,), id."""
        distinct, self.rows = np.unique(seeds.astype(self.store["csc_indices"].dtype), return_inverse=True)
        self.hood: Neighborhood = neighborhood_of(self.store, distinct, len(self.model.layers), self.most_edges)
        self._ends = [edge_ends(layer) for layer in self.hood.layers]
        self.__dict__.pop("inputs", None)
        self.asked = self._asked
        if self.asked.code is None:
            self.asked = self.asked.likeliest(self.outputs(self.variants(1)))

    @cached_property
    def inputs(self) -> Inputs:
        """What is known of the nodes."""
        return self.features.inputs(self.hood.nodes)

    def variants(self, count: int) -> Variants:
        """Return so many graphs that do not differ yet."""
        hood = self.hood
        return Variants(np.zeros((count, len(hood.units)), bool), np.zeros((count, len(hood.nodes)), np.int64))

    @property
    def at_once(self) -> int:
        """How many variants are scored in a pass."""
        edges = sum(len(layer.indices) for layer in self.hood.layers)
        rows = len(self.hood.layers[0].degree if self.model.reads_degrees else self.hood.layers[0].indptr)
        widest = max(self.model.encoder.out_dim, self.model.config.hidden_dim)
        return max(1, min(_EDGES_A_PASS // max(1, edges), 64 * _EDGES_A_PASS // (rows * widest)))

    def scores(self, variants: Variants) -> Array:
        """Score variants in one pass, as one graph of which each is a part: float64 (V,)."""
        return self.asked.value(self.outputs(variants)).cpu().numpy()

    def odds(self, variants: Variants) -> Array:
        """Return the same before it is squeezed between 0 and 1, beside it: float64 (V, 2)."""
        outputs = self.outputs(variants)
        return torch.stack([self.asked.value(outputs), self.asked.margin(outputs)], 1).cpu().numpy()

    def outputs(self, variants: Variants) -> Tensor:
        """Return the model's outputs, (V, C) or (V,)."""
        with evaluating(self.model):
            blocks, local = self._blocks(variants)
            inputs = _rows_of(self.inputs, local)
            _change(inputs, variants, self.columns)
            return self.represented(blocks, inputs, len(variants.removed))

    def represented(self, blocks: list[Block], inputs: Inputs, count: int = 1) -> Tensor:
        """Return the outputs of `count` graphs in one: of blocks whose destinations are each node `count` times."""
        blocks = [block.to(self.device) for block in blocks]
        vectors = self.model.represent(Batch(blocks, inputs.to(self.device), torch.empty(0), 0))
        ends = [vectors[row * count : (row + 1) * count] for row in self.rows.tolist()]
        scores: Tensor = self.model.score(*ends)
        return scores

    def plain_blocks(self) -> list[Block]:
        """Return the neighbourhood's own blocks."""
        return self._blocks(self.variants(1))[0]

    def _blocks(self, variants: Variants) -> tuple[list[Block], Array]:
        """Return the blocks of V graphs as one, and the local number of each row of the outermost sources.

        Copies of a node lie side by side: row j * V + v is node j of graph v, so that destinations come first. Nodes
        that are sources only are there once, unless the model reads their degrees.
        """
        hood, count, blocks = self.hood, len(variants.removed), list[Block]()
        num_nodes, num_copied = len(hood.nodes), 0
        for number, layer in enumerate(hood.layers):
            source, target = self._ends[number]
            graph, edge = np.nonzero(~variants.removed[:, hood.unit_of[number]])
            row = target[edge] * count + graph
            order = np.argsort(row, kind="stable")
            graph, edge = graph[order], edge[order]
            num_src, num_dst = len(layer.degree), len(layer.indptr) - 1
            copied = num_dst if number == 0 and not self.model.reads_degrees else num_src
            num_copied = copied if number == 0 else num_copied
            indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=num_dst * count))])
            of_edge = source[edge]
            indices = np.where(of_edge < copied, of_edge * count + graph, copied * (count - 1) + of_edge)
            degree = np.repeat(layer.degree, np.where(np.arange(num_src) < copied, count, 1))
            degree[: copied * count] -= variants.lowered[:, :copied].T.ravel()
            block = Block(
                torch.from_numpy(indptr),
                torch.from_numpy(indices.astype(np.int32)),
                len(degree),
                degree=torch.from_numpy(degree),
            )
            assert layer.positions is not None
            blocks.append(self.features.attach(block, layer.positions[edge]))
        return blocks, np.repeat(np.arange(num_nodes), np.where(np.arange(num_nodes) < num_copied, count, 1))


def _rows_of(inputs: Inputs, local: Array) -> Inputs:
    """Return rows of inputs."""
    rows = torch.from_numpy(local)
    taken: Any = {name: None if value is None else value[rows] for name, value in _tensors(inputs)}
    taken["node_type_counts"] = count_types(taken["node_type"])
    return Inputs(**taken)


def _tensors(inputs: Inputs) -> Iterator[tuple[str, Tensor | None]]:
    for name in ("node_ids", "feat", "feat_cat", "label", "node_type"):
        yield name, getattr(inputs, name)


def _change(inputs: Inputs, variants: Variants, columns: Features) -> None:
    """Put what is usual into a column of a node's copies."""
    if variants.column is None:
        return
    first = 0
    for table in (inputs.feat, inputs.feat_cat):
        if table is not None:
            last = first + table.shape[1]
            graph, place = np.nonzero(variants.column[:, None] == columns.column_of[first:last])
            values = torch.from_numpy(columns.usual[first:last][place]).to(table)
            table[variants.of_node * len(variants.column) + graph, place] = values
            first = last


def edges_left_out(scored: ScoredNeighborhood, removed: Array) -> Variants:
    """Return graphs without the units of edges that `removed`, bool (V, U), names."""
    units, variants = scored.hood.units, scored.variants(len(removed))
    variants.removed[:] = removed
    graph, unit = np.nonzero(removed)
    np.add.at(variants.lowered, (graph, units.target[unit]), units.count[unit])
    if units.both_ways:
        of_source = np.where(units.source == units.target, 0, units.count)  # a loop is one edge
        np.add.at(variants.lowered, (graph, units.source[unit]), of_source[unit])
    return variants


def nodes_left_out(scored: ScoredNeighborhood, nodes: Array) -> Variants:
    """Return a graph for each node, local numbers int64 (V,), without it and its edges."""
    variants, hood, store = scored.variants(len(nodes)), scored.hood, scored.store
    units = hood.units
    order = np.argsort(hood.nodes, kind="stable")
    for number, node in enumerate(nodes.tolist()):
        variants.removed[number] = (units.source == node) | (units.target == node)
        first, last = (int(store["csr_indptr"][hood.nodes[node] + step]) for step in (0, 1))
        reached = np.asarray(store["csr_indices"][first:last])
        place = order[np.minimum(np.searchsorted(hood.nodes, reached, sorter=order), len(order) - 1)]
        np.add.at(variants.lowered[number], place[hood.nodes[place] == reached], 1)
        variants.lowered[number, node] = 0  # what it is itself nobody hears of
    return variants
