"""Optimizers and learning rates."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from configs.errors import RecipeError
from configs.registry import SCHEDULES
from configs.training import TrainConfig
from tasks.train.job import scaled_learning_rate
from tasks.train.schedules.base import Schedule, ScheduleConfig


def make_optimizer(train: TrainConfig, parameters: Iterable[nn.Parameter], world_size: int) -> torch.optim.Optimizer:
    """Return the optimizer of the recipe.

    On CPUs a parameter's step is one pass. Over 3.3 M parameters on one core Adam's takes 5.6 ms so and 14.6 ms as ten
    operations (Emerald Rapids, November 2026); they round differently. On GPUs one launch moves all parameters (not yet
    run on a GPU).
    """
    rate = scaled_learning_rate(train, world_size)
    options: dict[str, Any] = {"lr": rate, "weight_decay": train.weight_decay, "fused": True}
    if train.optimizer == "sgd":
        return torch.optim.SGD(parameters, momentum=0.9, **options)
    kind = torch.optim.AdamW if train.optimizer == "adamw" else torch.optim.Adam
    return kind(parameters, **options)


def make_scheduler(
    train: TrainConfig, optimizer: torch.optim.Optimizer, total_steps: int
) -> torch.optim.lr_scheduler.LambdaLR:
    """Return the schedule, by step: a linear warm-up from 0, then `train.schedule` over the steps that are left.

    Raises RecipeError: the warm-up is longer than the training.
    """
    schedule: Schedule = SCHEDULES.create(train.schedule)
    warmup = schedule.config.warmup_steps
    if warmup >= total_steps and warmup:
        raise RecipeError(
            f"train.schedule.warmup_steps={warmup} leaves nothing of the run's {total_steps} steps; lower it or raise "
            "train.epochs"
        )
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: schedule.share(step, total_steps, warmup))


def describe_rate(train: TrainConfig, world_size: int, total_steps: int) -> str:
    """Say in a line how the learning rate comes about and moves."""
    schedule = train.schedule
    assert isinstance(schedule, ScheduleConfig)
    warmup = f"{schedule.warmup_steps:,} steps of warm-up, then " if schedule.warmup_steps else ""
    return (
        f"learning rate {scaled_learning_rate(train, world_size):g} (lr_scaling={train.lr_scaling}, ranks: "
        f"{world_size}); {warmup}{schedule.name} over {total_steps:,} steps"
    )
