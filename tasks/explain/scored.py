"""A model's score of a node or a pair, computed from its neighbourhood alone: as it is, and as it would be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from configs.errors import RecipeError
from models.base import GraphModel
from models.block import Batch, Block, Inputs
from models.layers.output_heads import EdgeHead
from tasks.arrays import Array, offsets
from tasks.explain.asked_score import AskedScore
from tasks.explain.features import NO_FEATURES, Features
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
    feature: Array
    """int64 (V,): a column (its number among `names`) that is as usual, -1: none, ..."""
    place: Array
    """int64 (V,): ... of this node, one of the seeds; columns of edges: of this unit, or -1: of the asked edge."""


class ScoredNeighborhood:
    """What a model says of some seeds, by their neighbourhood; `Predictor` says the same where that is whole."""

    def __init__(
        self,
        store: GraphStore,
        model: GraphModel,
        columns: Features,
        asked: AskedScore,
        most_edges: int,
        edge_columns: Features = NO_FEATURES,
    ) -> None:
        """Open a graph. Raises RecipeError: the model's scores do not follow from hops around a node."""
        if not model.is_layered or model.table is not None or not len(model.layers) or model.facts.many_graphs:
            raise RecipeError(
                f"{model.config.name} does not compute a score from the hops around a node, one layer a hop: edges and "
                "neighbours of it cannot be left out; explain a model such as graphsage, gcn, gat, gin, rgcn or sgc"
            )
        self.store, self.model, self.columns, self.most_edges = store, model, columns, most_edges
        self.edge_columns, self.names = edge_columns, [*columns.names, *edge_columns.names]
        self.features = FeatureSource.of(store, model)
        model.eval().requires_grad_(False)  # of its weights nobody asks for gradients
        self.device = next(model.parameters()).device
        self.asked = self._asked = asked

    def look_at(self, item: Array) -> None:
        """Look at a node (1,), at both ends of a pair (2,), or, of a model of edges, at an edge (1,)."""
        self.own: list[Tensor | None] | None = None
        """What the asked edge carries itself: numbers and codes, (1, width) each."""
        if isinstance(self.model.head, EdgeHead):
            kinds = {"scored_feat": np.float32, "scored_feat_cat": np.int64}
            tables = [(self.store.get(name), kind) for name, kind in kinds.items()]
            self.own = [None if table is None else torch.from_numpy(table[item].astype(kind)) for table, kind in tables]
            item = np.asarray(self.store["edge_ends"][item[0]])
        seeds, self.rows = np.unique(item.astype(self.store["csc_indices"].dtype), return_inverse=True)
        self.hood: Neighborhood = neighborhood_of(self.store, seeds, len(self.model.layers), self.most_edges)
        self._ends = [edge_ends(layer) for layer in self.hood.layers]
        self.inputs = self.features.inputs(self.hood.nodes)
        self.asked = self._asked.predicted(self.outputs(self.variants(1)))

    @property
    def reads_edge_columns(self) -> bool:
        """Whether messages carry columns of edges."""
        return self.features.edge_feat is not None or self.features.edge_feat_cat is not None

    def variants(self, count: int) -> Variants:
        """Return so many graphs that do not differ yet."""
        removed, none = np.zeros((count, len(self.hood.units)), bool), np.full(count, -1)
        return Variants(removed, np.zeros((count, len(self.hood.nodes)), np.int64), none, none)

    @property
    def at_once(self) -> int:
        """How many variants are scored in a pass."""
        edges = sum(len(layer.indices) for layer in self.hood.layers)
        rows = len(self.hood.layers[0].degree if self.model.reads_degrees else self.hood.layers[0].indptr)
        widest = max(self.model.encoder.out_dim, self.model.config.hidden_dim)
        return max(1, min(_EDGES_A_PASS // max(1, edges), 64 * _EDGES_A_PASS // (rows * widest)))

    def scores(self, variants: Variants) -> Array:
        """Score variants in one pass, as one graph of which each is a part; as `AskedScore.scores`: float64 (V, 2)."""
        return self.asked.scores(self.outputs(variants))

    def outputs(self, variants: Variants) -> Tensor:
        """Return the model's outputs, (V, C) or (V,)."""
        count = len(variants.removed)
        with evaluating(self.model):
            blocks, local = self.blocks(variants)
            inputs = _rows_of(self.inputs, local)
            own = self.own and [None if table is None else table.repeat(count, 1) for table in self.own]
            number = variants.feature - len(self.columns.names)  # among those of edges
            graph = np.flatnonzero((variants.feature >= 0) & (number < 0))
            rows = variants.place[graph] * count + graph
            _set_usual([inputs.feat, inputs.feat_cat], self.columns, rows, variants.feature[graph])
            graph = np.flatnonzero((number >= 0) & (variants.place < 0))
            _set_usual(own or [], self.edge_columns, graph, number[graph])
            return self.represented(blocks, inputs, own, count)

    def represented(
        self, blocks: list[Block], inputs: Inputs, own: list[Tensor | None] | None, count: int = 1
    ) -> Tensor:
        """Return the outputs of `count` graphs in one: of blocks whose destinations are each node `count` times.

        `own` has what each graph's asked edge carries.
        """
        blocks = [block.to(self.device) for block in blocks]
        vectors = self.model.represent(Batch(blocks, inputs.to(self.device), torch.empty(0), 0))
        ends = [vectors[row * count : (row + 1) * count] for row in self.rows.tolist()]
        if own is None:
            scores: Tensor = self.model.score(*ends)
            return scores
        numbers, codes = (None if table is None else table.to(self.device) for table in own)
        return self.model.score_edges(ends[0], ends[1], numbers, codes)

    def blocks(self, variants: Variants) -> tuple[list[Block], Array]:
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
            indptr = offsets(np.bincount(row, minlength=num_dst * count))
            of_edge = source[edge]
            indices = np.where(of_edge < copied, of_edge * count + graph, copied * (count - 1) + of_edge)
            degree = np.repeat(layer.degree, np.where(np.arange(num_src) < copied, count, 1))
            degree[: copied * count] -= variants.lowered[:, :copied].T.ravel()
            ends, known = torch.from_numpy(indices.astype(np.int32)), torch.from_numpy(degree)
            block = Block(torch.from_numpy(indptr), ends, len(degree), degree=known)
            assert layer.positions is not None
            block = self.features.attach(block, layer.positions[edge])
            rows = np.flatnonzero(hood.unit_of[number][edge] == variants.place[graph])
            feature = variants.feature[graph[rows]] - len(self.columns.names)
            _set_usual([block.edge_feat, block.edge_feat_cat], self.edge_columns, rows, feature)
            blocks.append(block)
        return blocks, np.repeat(np.arange(num_nodes), np.where(np.arange(num_nodes) < num_copied, count, 1))


def _rows_of(inputs: Inputs, local: Array) -> Inputs:
    rows, values = torch.from_numpy(local), vars(inputs).items()
    taken: Any = {name: value[rows] for name, value in values if isinstance(value, Tensor)}
    return Inputs(**taken, node_type_counts=count_types(taken.get("node_type")))


def _set_usual(tables: Sequence[Tensor | None], columns: Features, rows: Array, feature: Array) -> None:
    """Put what is usual into a column each of some rows, int64 (k,) both, of numbers and codes; of -1 there is none."""
    first = 0
    for table in tables:
        if table is not None:
            last = first + table.shape[1]
            number, place = np.nonzero(feature[:, None] == columns.column_of[first:last])
            table[rows[number], place] = torch.from_numpy(columns.usual[first:last][place]).to(table)
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
