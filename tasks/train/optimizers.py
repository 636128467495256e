"""Optimizers and learning rates."""

from __future__ import annotations

import math
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
    """Return the optimizer of the recipe; on GPUs one launch moves all parameters (not yet run on a GPU)."""
    parameters = list(parameters)
    options: dict[str, Any] = {"lr": scaled_learning_rate(train, world_size), "weight_decay": train.weight_decay}
    on_gpu = all(parameter.is_cuda for parameter in parameters)
    if on_gpu:
        options["fused"] = True
    if train.optimizer == "sgd":
        return torch.optim.SGD(parameters, momentum=0.9, **options)
    if on_gpu and train.cuda_graph:
        options["capturable"] = True
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

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        return schedule.factor((step - warmup) / max(1, total_steps - warmup))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def describe_rate(train: TrainConfig, world_size: int, total_steps: int) -> str:
    """Say in a line how the learning rate comes about and moves."""
    factor = {"none": "1", "linear": f"{world_size}", "sqrt": f"{math.sqrt(world_size):.4g}"}[train.lr_scaling]
    schedule = train.schedule
    assert isinstance(schedule, ScheduleConfig)
    warmup = f"{schedule.warmup_steps:,} steps of warm-up, then" if schedule.warmup_steps else "no warm-up,"
    return (
        f"learning rate {train.learning_rate:g} x {factor} (lr_scaling={train.lr_scaling}, ranks: {world_size}) = "
        f"{scaled_learning_rate(train, world_size):g}; {warmup} {schedule.name} over {total_steps:,} steps"
    )
