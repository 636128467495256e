"""GNNExplainer (Ying et al., NeurIPS 2019, https://arxiv.org/abs/1903.03894, equations 5 to 7)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from configs.registry import EXPLAINERS
from tasks.explain.base import Effects, Explainer, Explanation
from tasks.explain.configs import MaskConfig
from tasks.explain.scored import ScoredNeighborhood
from tasks.explain.soft_edges import SoftScore

_FEATURES_START = 3.0
"""Features begin as nearly whole (weight .95), edges as halves: else what edges carry would be lost with them."""


@EXPLAINERS.register("mask")
class Mask(Explainer):
    """A weight between 0 and 1 for each edge and each feature: few of them, that keep the score as it is."""

    Config = MaskConfig

    def explain(self, scored: ScoredNeighborhood) -> Explanation:
        """Learn the weights; those of features are shared by all nodes, and bring features back from their means."""
        config, soft = self.config, SoftScore(scored, by_direction=scored.hood.units.both_ways)
        features = np.unique(np.concatenate([np.empty(0, np.int64), *(one.column for one in soft.numbers.values())]))
        edges, of_features = torch.zeros_like(soft.ones), soft.ones.new_full((len(features),), _FEATURES_START)
        masks = [edges.requires_grad_(), of_features.requires_grad_()]
        kept = scored.asked.value(soft.outputs(soft.ones).detach())
        optimizer = torch.optim.Adam(masks, lr=config.learning_rate)
        reached = soft.ones
        for step in range(config.steps):
            optimizer.zero_grad()
            weight, of_column, tables = edges.sigmoid(), of_features.sigmoid(), dict[str, Tensor]()
            for name, one in soft.numbers.items():
                own = of_column[torch.from_numpy(np.searchsorted(features, one.column))]
                tables[name] = one.usual + own * (one.values - one.usual)
            loss = self._distance(scored, soft.outputs(weight, tables), kept)
            if not step:  # what no layer reads, or only towards what counts for nothing, has no gradient
                [slope] = torch.autograd.grad(loss, [edges], retain_graph=True, materialize_grads=True)
                reached = (slope != 0).to(weight)
            loss = loss + config.size * (weight * reached).sum()
            loss = loss + (_entropy(edges) * reached).sum() / reached.sum().clamp(min=1)
            loss = loss + _entropy(of_features).sum() / max(1, len(features))
            loss.backward()
            optimizer.step()
        weight = (edges.detach().sigmoid() * reached).view(len(scored.hood.units), -1).mean(1)
        effects = [one.double().cpu().numpy() for one in (weight, of_features.detach().sigmoid())]
        found = [Effects("edge", effects[0], np.arange(len(effects[0])))]
        found.append(Effects("feature", effects[1], np.full(len(features), -1), features))
        note = "effects are weights between 0 and 1, of features for all nodes and edges together"
        return Explanation(float(kept[0]), found, [note])

    def _distance(self, scored: ScoredNeighborhood, outputs: Tensor, kept: Tensor) -> Tensor:
        """Return -log of the class's probability, or of a number how far it is from what it was."""
        if scored.asked.label_type.has_classes:
            margin = scored.asked.margin(outputs)
            return F.softplus(-margin if float(kept[0]) >= 0.5 or scored.asked.columns > 1 else margin).sum()
        return (scored.asked.value(outputs) - kept).square().sum() / kept.square().sum().clamp(min=1.0)


def _entropy(mask: Tensor) -> Tensor:
    """Return the entropy of the weights that a mask's sigmoid is."""
    weight = mask.sigmoid()
    return F.softplus(-mask) * weight + F.softplus(mask) * (1 - weight)
