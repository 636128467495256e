"""Removal: the score, and the score without an edge, a neighbour or a feature; hundreds of them in one pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from configs.registry import EXPLAINERS
from tasks.arrays import Array, blocks
from tasks.explain.base import Effects, Explainer, Explanation, Part
from tasks.explain.configs import RemovalConfig
from tasks.explain.scored import ScoredNeighborhood, Variants, edges_left_out, nodes_left_out
from tasks.explain.soft_edges import SoftScore


@EXPLAINERS.register("removal")
class Removal(Explainer):
    """The exact change of the score when an edge, a neighbour or a feature is left out. Any GNN."""

    Config = RemovalConfig

    def explain(self, scored: ScoredNeighborhood) -> Explanation:
        """Leave each part out by itself."""
        hood, units, notes = scored.hood, scored.hood.units, list[str]()
        score = scored.scores(scored.variants(1))[0]
        edges, nodes = self._candidates(scored)

        def without(parts: Array, left_out: Callable[[Array], Variants]) -> Array:
            scores = [scored.scores(left_out(parts[some])) for some in blocks(len(parts), scored.at_once)]
            return np.concatenate([np.empty((0, 2)), *scores])

        def usual(some: Array) -> Variants:
            return replace(scored.variants(len(some)), place=some[:, 0], feature=some[:, 1])

        def features(part: Part, places: Array, columns: Array) -> Effects:
            parts = np.stack(np.meshgrid(places, columns, indexing="ij"), 2).reshape(-1, 2)[: self.config.most]
            return Effects.left_out(part, parts[:, 0], score, without(parts, usual), feature=parts[:, 1])

        for kind, chosen, count in (("edges", edges, len(units)), ("neighbours", nodes, int((hood.hop > 0).sum()))):
            if len(chosen) < count:
                notes.append(f"{len(chosen):,} of {count:,} {kind} were left out one by one, by the score's gradient")
        of_edges = without(edges, lambda some: edges_left_out(scored, some[:, None] == np.arange(len(units))))
        of_nodes = without(nodes, lambda some: nodes_left_out(scored, some))
        reached, degree = (of_all[nodes] for of_all in _edges_of_nodes(scored))
        found = [
            Effects.left_out("edge", edges, score, of_edges),
            Effects.left_out("node", nodes, score, of_nodes, count=reached, degree=degree),
            features("feature", np.flatnonzero(hood.hop == 0), np.arange(len(scored.columns.names))),
        ]
        edge_columns = np.arange(len(scored.columns.names), len(scored.names))
        carriers = [np.array([-1])] if scored.own else []
        carriers += [edges[np.argsort(-np.abs(found[0].moved), kind="stable")]] if scored.reads_edge_columns else []
        if carriers and len(edge_columns):
            found.append(features("edge feature", np.concatenate(carriers), edge_columns))
        return Explanation(float(score[0]), found, notes)

    def _candidates(self, scored: ScoredNeighborhood) -> tuple[Array, Array]:
        """Return units of edges and nodes, those that count most by the gradient, at most so many of each."""
        hood, most, units = scored.hood, self.config.most, scored.hood.units
        nodes = np.flatnonzero(hood.hop > 0)
        if max(len(units), len(nodes)) <= most:
            return np.arange(len(units)), nodes
        soft = SoftScore(scored)
        slope = soft.gradients(soft.ones, {}, odds=True)[0].abs().cpu().numpy().astype(np.float64)
        of_node = np.zeros(len(hood.nodes))
        for end in (units.source, units.target):
            np.add.at(of_node, end, slope)
        hops = np.minimum(hood.hop[units.source], hood.hop[units.target])
        edges = np.lexsort([hops, -slope])[:most]
        return np.sort(edges), np.sort(nodes[np.argsort(-of_node[nodes], kind="stable")[:most]])


def _edges_of_nodes(scored: ScoredNeighborhood) -> tuple[Array, Array]:
    """Return how many edges each node has in the neighbourhood and in the graph, int64 (n,) both."""
    hood, units, store = scored.hood, scored.hood.units, scored.store
    incoming = np.where(units.both_ways & (units.source == units.target), 0, units.count)  # such a loop is one edge
    ends = ((units.source, units.count), (units.target, incoming))
    reached = sum(np.bincount(end, count, len(hood.nodes)) for end, count in ends)
    starts = [store[name] for name in ("csc_indptr", "csr_indptr")[: 1 + (not units.both_ways)]]
    degree = sum(np.asarray(start[hood.nodes + 1] - start[hood.nodes], np.int64) for start in starts)
    return np.asarray(reached).astype(np.int64), np.asarray(degree)
