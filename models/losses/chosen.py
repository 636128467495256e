"""The loss of a training: what `train.loss` names, or what is usual for each type of label."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from configs.base import ComponentConfig
from configs.label_types import label_type
from configs.registry import LOSSES
from models.facts import GraphFacts
from models.losses.base import LabelLoss
from models.losses.configs import AutoLossConfig, chosen_loss

Loss = Callable[[Tensor, Tensor, int], Tensor]
"""Scores, target, and how many training edges, rows or graphs they are of -> the mean, ()."""


@LOSSES.register("auto")
class AutoLoss(LabelLoss):
    """What is usual for the labels; another loss is made in its place (`make_loss`)."""


def make_loss(
    config: ComponentConfig, task_type: str, facts: GraphFacts, class_weights: Sequence[Tensor | None] = ()
) -> Loss:
    """Return the loss of a task; `class_weights` has what `LabelLoss` takes, or None, for each of its tasks."""
    if facts.head_types:
        parts = zip(facts.head_types, class_weights or [None] * len(facts.head_types), strict=True)
        return SeveralLosses([loss_of(head, config, weight) for head, weight in parts], facts)
    if facts.rank_type is not None:
        return _ranked
    return loss_of(task_type, config, class_weights[0] if class_weights else None)


def loss_of(task_type: str, config: ComponentConfig | None = None, class_weight: Tensor | None = None) -> Loss:
    """Return the loss of a type of labels or of links; what is usual where none is given, or it is for others."""
    made: Loss = LOSSES.create(chosen_loss(config or AutoLossConfig(), task_type), class_weight)
    return made


def _ranked(scores: Tensor, target: Tensor, num_seeds: int) -> Tensor:
    """Mean loss of right pairs (`models.relational.ranking`): of scores (m, 2) by softmax; () is the loss itself."""
    return scores if not scores.dim() else F.cross_entropy(scores, target)


class SeveralLosses:
    """Weighted sum of several tasks' mean losses: scores (n, out_dim) and target (n, K), the tasks' side by side.

    Classes are numbers, NaN for none; a regression's scores and targets are in the units of the labels, and its errors
    count in their standard deviations.
    """

    def __init__(self, losses: Sequence[Loss], facts: GraphFacts) -> None:
        self._losses, self._facts = losses, facts

    def __call__(self, scores: Tensor, target: Tensor, num_seeds: int) -> Tensor:
        """Return the sum, ()."""
        facts, total = self._facts, torch.zeros((), device=scores.device)
        label, score = 0, 0
        widths = zip(facts.head_types, facts.head_labels, facts.head_scores, facts.head_weights, strict=True)
        for loss, (task_type, num_labels, num_scores, weight) in zip(self._losses, widths, strict=True):
            task_scores, task_target = scores[:, score : score + num_scores], target[:, label : label + num_labels]
            kind = label_type(task_type)
            if kind.one_of_many:
                task_target = torch.nan_to_num(task_target[:, 0], nan=-1.0).long()
            elif kind.is_number:
                scale = torch.tensor(facts.label_scale[score : score + num_scores], device=scores.device)
                task_scores, task_target = task_scores / scale, task_target / scale  # the mean is in neither's error
            total = total + weight * loss(task_scores, task_target, num_seeds)
            label, score = label + num_labels, score + num_scores
        return total
