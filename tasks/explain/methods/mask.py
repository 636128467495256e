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
        config, soft, hood = self.config, SoftScore(scored, by_direction=scored.hood.units.both_ways), scored.hood
        column_of = scored.columns.column_of[: 0 if soft.feat is None else soft.feat.shape[1]]
        masks = [torch.zeros(soft.num_units, device=scored.device)]
        if soft.feat is not None:
            masks.append(torch.full((int(column_of[-1]) + 1,), _FEATURES_START, device=scored.device))
        masks = [mask.requires_grad_() for mask in masks]
        usual = torch.from_numpy(scored.columns.usual).to(masks[0])
        ones = torch.ones(soft.num_units, device=scored.device)
        kept = scored.asked.value(soft.outputs(ones, soft.feat).detach())
        optimizer = torch.optim.Adam(masks, lr=config.learning_rate)
        for _ in range(config.steps):
            optimizer.zero_grad()
            edges, feat = masks[0].sigmoid(), soft.feat
            if feat is not None:
                feat = usual[: feat.shape[1]] + masks[1].sigmoid()[column_of] * (feat - usual[: feat.shape[1]])
            loss = self._distance(scored, soft.outputs(edges, feat), kept) + config.size * edges.sum()
            for mask in masks:
                loss = loss + config.entropy * _entropy(mask).mean()
            loss.backward()
            optimizer.step()
        weights = [mask.detach().sigmoid().double().cpu().numpy() for mask in masks]
        units, every = hood.units, np.arange(len(hood.units))
        both = weights[0].reshape(len(units), -1).mean(1)
        found = [Effects("edge", both, units.source, units.target, units.relation, units.count, unit=every)]
        if soft.feat is not None:
            seeds = np.zeros(len(weights[1]), np.int64)
            found.append(Effects("feature", weights[1], seeds, seeds, feature=np.arange(len(seeds))))
        note = "effects are weights between 0 and 1, of features for all nodes together"
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
