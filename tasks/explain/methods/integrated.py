"""Integrated gradients (Sundararajan et al., ICML 2017, https://arxiv.org/abs/1703.01365, equation 1)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from configs.registry import EXPLAINERS
from tasks.explain.base import Effects, Explainer, Explanation, Part
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
        soft, steps = SoftScore(scored), self.config.steps
        edges, columns = torch.zeros_like(soft.ones, dtype=torch.float64), dict[str, Tensor]()
        way = {name: one.values - one.usual for name, one in soft.numbers.items()}

        def at(share: float) -> dict[str, Tensor]:
            return {name: one.usual + share * way[name] for name, one in soft.numbers.items()}

        for step in range(steps):
            share = (step + 0.5) / steps
            of_edges, of_columns = soft.gradients(share * soft.ones, at(share), odds=False)
            edges += of_edges.double() / steps
            columns = {name: columns.get(name, 0) + slope.double() / steps for name, slope in of_columns.items()}
        with torch.no_grad():
            score, first = (float(scored.asked.value(soft.outputs(s * soft.ones, at(s)))[0]) for s in (1.0, 0.0))
        found = [Effects("edge", edges.cpu().numpy(), np.arange(len(edges)))]
        counts: dict[Part, int] = {"feature": len(scored.hood.nodes), "edge feature": len(scored.hood.units)}
        for part, count in counts.items():
            effect = np.zeros((count + 1, len(scored.names)))  # the last row: of the asked edge itself
            for name, one in soft.numbers.items():
                if one.part == part:
                    by_number = (columns[name] * way[name]).cpu().numpy()
                    np.add.at(effect, (one.place[:, None], one.column), by_number)
            place, feature = np.nonzero(effect)
            found.append(Effects(part, effect[place, feature], np.where(place < count, place, -1), feature))
        total = sum(float(one.effect.sum()) for one in found)
        largest = max((float(np.abs(one.effect).max(initial=0)) for one in found), default=0.0)
        notes = [
            f"effects add up to {total:.4f}: the score is {score:.4f}, and {first:.4f} with edges that carry nothing"
        ]
        if abs(total - (score - first)) > _GAP * max(largest, abs(score - first)):
            notes.append(f"the sum is off by {total - (score - first):.4f}: take more steps")
        return Explanation(score, found, notes)
