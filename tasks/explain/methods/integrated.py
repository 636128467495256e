"""Integrated gradients (Sundararajan et al., ICML 2017, https://arxiv.org/abs/1703.01365, equation 1)."""

from __future__ import annotations

import numpy as np
import torch

from configs.registry import EXPLAINERS
from tasks.explain.base import Effects, Explainer, Explanation
from tasks.explain.configs import IntegratedConfig
from tasks.explain.scored import ScoredNeighborhood
from tasks.explain.soft_edges import SoftScore

_GAP = 0.02
"""Of the sum of effects from the difference of scores, as a share of the largest effect, that is worth a word."""


@EXPLAINERS.register("integrated")
class Integrated(Explainer):
    """The mean gradient on the way from nothing to the graph, times the way: what adds up to the score's change."""

    Config = IntegratedConfig

    def explain(self, scored: ScoredNeighborhood) -> Explanation:
        """Go the way in steps; gradients are taken in the middle of each (midpoint rule)."""
        soft, hood, steps = SoftScore(scored), scored.hood, self.config.steps
        ones = torch.ones(soft.num_units, device=scored.device)
        start = None if soft.feat is None else self._usual(scored, soft.feat)
        edges, features = torch.zeros_like(ones, dtype=torch.float64), None
        for step in range(steps):
            share = (step + 0.5) / steps
            feat = None if soft.feat is None or start is None else start + share * (soft.feat - start)
            _, of_edges, of_features = soft.gradients(share * ones, feat, odds=False)
            edges += of_edges.double() / steps
            if of_features is not None:
                features = of_features.double() / steps + (0 if features is None else features)
        with torch.no_grad():
            score, first = (
                float(scored.asked.value(soft.outputs(weight, feat).detach())[0])
                for weight, feat in ((ones, soft.feat), (torch.zeros_like(ones), start))
            )
        units, every = hood.units, np.arange(len(hood.units))
        found = [
            Effects("edge", edges.cpu().numpy(), units.source, units.target, units.relation, units.count, unit=every)
        ]
        total = float(edges.sum())
        if features is not None and soft.feat is not None and start is not None:
            by_number = (features * (soft.feat - start)).cpu().numpy()
            effect = np.zeros((len(hood.nodes), len(scored.columns.names)))
            np.add.at(effect.T, scored.columns.column_of[: by_number.shape[1]], by_number.T)
            total += float(effect.sum())
            node, column = np.nonzero(effect)
            found.append(Effects("feature", effect[node, column], node, node, feature=column))
        largest = max((float(np.abs(one.effect).max(initial=0)) for one in found), default=0.0)
        notes = [
            f"effects add up to {total:.4f}: the score is {score:.4f}, and {first:.4f} with edges that carry nothing"
        ]
        if abs(total - (score - first)) > _GAP * max(largest, abs(score - first)):
            notes.append(f"the sum is off by {total - (score - first):.4f}: take more steps")
        return Explanation(score, found, notes)

    def _usual(self, scored: ScoredNeighborhood, feat: torch.Tensor) -> torch.Tensor:
        """Return the features that the way begins with, (n, D)."""
        usual = torch.from_numpy(scored.columns.usual[: feat.shape[1]]).to(feat)
        return usual.expand_as(feat)
