"""Removal: the score, and the score without an edge, a neighbour or a feature; hundreds of them in one pass."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import numpy as np
import torch

from configs.errors import RecipeError
from configs.registry import EXPLAINERS
from tasks.arrays import Array
from tasks.explain.base import Effects, Explainer, Explanation
from tasks.explain.configs import RemovalConfig
from tasks.explain.scored import ScoredNeighborhood, Variants, edges_left_out, nodes_left_out
from tasks.explain.soft_edges import SoftScore
from tasks.storage.graph_store import slices


@EXPLAINERS.register("removal")
class Removal(Explainer):
    """The exact change of the score when an edge, a neighbour or a feature is left out. Any GNN."""

    Config = RemovalConfig

    def explain(self, scored: ScoredNeighborhood) -> Explanation:
        """Leave each part out by itself."""
        hood, units = scored.hood, scored.hood.units
        score = scored.odds(scored.variants(1))[0]
        edges, nodes = self._candidates(scored)
        notes = []
        for kind, chosen, count in (("edges", edges, len(units)), ("neighbours", nodes, int((hood.hop > 0).sum()))):
            if len(chosen) < count:
                notes.append(f"{len(chosen):,} of {count:,} {kind} were left out one by one, by the score's gradient")
        without = self._scores(scored, edges, lambda some: edges_left_out(scored, _one_hot(some, len(units))))
        ends = {"source": units.source[edges], "target": units.target[edges]}
        of_edges = {"relation": units.relation[edges], "count": units.count[edges], "unit": edges}
        found = [Effects("edge", **ends, **of_edges, **_changes(score, without))]
        degree = sum(np.bincount(end, units.count, len(hood.nodes)) for end in (units.source, units.target))
        count_of = np.asarray(degree)[nodes].astype(np.int64)
        without = self._scores(scored, nodes, lambda some: nodes_left_out(scored, some))
        found.append(Effects("node", source=nodes, target=nodes, count=count_of, **_changes(score, without)))
        found += [self._features(scored, seed, score) for seed in np.flatnonzero(hood.hop == 0).tolist()]
        return Explanation(float(score[0]), found, notes)

    def _candidates(self, scored: ScoredNeighborhood) -> tuple[Array, Array]:
        """Return units of edges and nodes, those that count most by the gradient, at most so many of each."""
        hood, most, units = scored.hood, self.config.most, scored.hood.units
        nodes = np.flatnonzero(hood.hop > 0)
        if max(len(units), len(nodes)) <= most:
            return np.arange(len(units)), nodes
        nearness = -np.minimum(hood.hop[units.source], hood.hop[units.target]).astype(np.float64)
        counts = nearness
        with suppress(RecipeError):
            soft = SoftScore(scored)
            slope = soft.gradients(torch.ones(soft.num_units, device=scored.device), soft.feat, odds=True)[1]
            counts = slope.abs().cpu().numpy().astype(np.float64)
        of_node = np.zeros(len(hood.nodes))
        for end in (units.source, units.target):
            np.add.at(of_node, end, counts)
        edges = np.lexsort([-nearness, -counts])[:most]
        return np.sort(edges), np.sort(nodes[np.argsort(-of_node[nodes], kind="stable")[:most]])

    def _features(self, scored: ScoredNeighborhood, seed: int, score: Array) -> Effects:
        """Set each column of a seed to what is usual."""
        columns = np.arange(len(scored.columns.names))[: self.config.most]

        def changed(some: Array) -> Variants:
            return replace(scored.variants(len(some)), column=some, of_node=seed)

        without, seeds = self._scores(scored, columns, changed), np.full(len(columns), seed)
        return Effects("feature", source=seeds, target=seeds, feature=columns, **_changes(score, without))

    def _scores(self, scored: ScoredNeighborhood, parts: Array, left_out: Callable[[Array], Variants]) -> Array:
        results = [scored.odds(left_out(parts[part])) for part in slices(len(parts), scored.at_once)]
        return np.concatenate([np.empty((0, 2)), *results])


def _changes(score: Array, without: Array) -> dict[str, Array]:
    """Return what scores and odds (n, 2) without parts make of these, as fields of Effects."""
    effect, odds = (score - without).T
    return {"effect": effect, "odds": odds, "without": without[:, 0]}


def _one_hot(places: Array, width: int) -> Array:
    return places[:, None] == np.arange(width)
