"""Losses by task type. Missing labels (-1, or NaN in a float label) cost nothing.

None asks how many labels there are before it goes on: that would wait for a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from configs.label_types import label_type

if TYPE_CHECKING:
    from models.facts import GraphFacts

Loss = Callable[..., Tensor]


def cross_entropy(scores: Tensor, target: Tensor, class_weight: Tensor | None = None) -> Tensor:
    """Mean softmax cross-entropy: scores (n, C), target int64 (n,); -1 is no label.

    `class_weight` (C,): that of a row is multiplied by its class's; the mean is over rows, not over weights, so that
    batches of a split add up to the same whatever classes each has.
    """
    total = F.cross_entropy(scores, target, weight=class_weight, ignore_index=-1, reduction="sum")
    return total / (target >= 0).sum().clamp(min=1)


def binary_cross_entropy(scores: Tensor, target: Tensor, class_weight: Tensor | None = None) -> Tensor:
    """Mean logistic loss over the labels that exist: scores and target (n, T), target in {0, 1, NaN}.

    `class_weight` (T, 2): that of a label is multiplied by its column's weight of 0 or of 1.
    """
    return _over_labels(F.binary_cross_entropy_with_logits, scores, target, class_weight)


def squared_error(scores: Tensor, target: Tensor) -> Tensor:
    """Mean squared error over the labels that exist: scores and target (n, T)."""
    return _over_labels(F.mse_loss, scores, target)


def _over_labels(loss: Loss, scores: Tensor, target: Tensor, class_weight: Tensor | None = None) -> Tensor:
    is_labelled = ~torch.isnan(target)
    losses = loss(scores, torch.where(is_labelled, target, 0.0), reduction="none")
    if class_weight is not None:
        losses = losses * torch.where(target > 0.5, class_weight[:, 1], class_weight[:, 0])
    return torch.where(is_labelled, losses, 0.0).sum() / is_labelled.sum().clamp(min=1)


def link_loss(scores: Tensor, target: Tensor) -> Tensor:
    """Sum of the mean logistic losses of positive and of negative pairs: scores (n,), target 1 or 0 (n,).

    Each side counts the same however many negatives there are (as in OGB's link examples).
    """
    loss = F.binary_cross_entropy_with_logits(scores, target, reduction="none")
    positive = target > 0.5
    sides = (torch.where(side, loss, 0.0).sum() / side.sum() for side in (positive, ~positive))
    return sum(sides, torch.zeros((), device=loss.device))


def ranking_loss(scores: Tensor, target: Tensor) -> Tensor:
    """Mean loss of right pairs (`models.relational.ranking`): of scores (m, 2) by softmax; (m, 1) are losses."""
    return scores.mean() if scores.shape[1] == 1 else cross_entropy(scores, target)


def loss_of_several(
    scores: Tensor, target: Tensor, facts: GraphFacts, class_weights: Sequence[Sequence[Tensor]] = ()
) -> Tensor:
    """Weighted sum of several tasks' mean losses: scores (n, out_dim) and target (n, K), the tasks' side by side.

    Classes are numbers, NaN for none; a regression's scores and targets are in the units of the labels, and its errors
    count in their standard deviations. `class_weights`: of each task none, or one tensor as its loss takes it.
    """
    total = torch.zeros((), device=scores.device)
    label, score = 0, 0
    widths = zip(facts.head_types, facts.head_labels, facts.head_scores, facts.head_weights, strict=True)
    for number, (task_type, num_labels, num_scores, weight) in enumerate(widths):
        task_scores, task_target = scores[:, score : score + num_scores], target[:, label : label + num_labels]
        kind = label_type(task_type)
        if kind.one_of_many:
            task_target = torch.nan_to_num(task_target[:, 0], nan=-1.0).long()
        elif kind.is_number:
            scale = torch.tensor(facts.label_scale[score : score + num_scores], device=scores.device)
            task_scores, task_target = task_scores / scale, task_target / scale  # the mean falls out of the difference
        total = total + weight * loss_of(task_type)(
            task_scores, task_target, *(class_weights[number] if class_weights else ())
        )
        label, score = label + num_labels, score + num_scores
    return total


LOSSES: dict[str, Loss] = {
    "multiclass": cross_entropy,
    "binary": binary_cross_entropy,
    "multilabel": binary_cross_entropy,
    "regression": squared_error,
    "link": link_loss,
    "ranking": ranking_loss,
}


def loss_of(task_type: str) -> Loss:
    """Return the loss of a type of label, or of pairs or rankings."""
    return LOSSES[task_type]
