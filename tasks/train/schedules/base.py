"""How a learning rate moves: what a schedule is, and the usual ones."""

from __future__ import annotations

import math
from typing import Any

from pydantic import Field

from configs.base import ComponentConfig
from configs.registry import SCHEDULES


class ScheduleConfig(ComponentConfig):
    """Options of every schedule."""

    warmup_steps: int = Field(default=0, ge=0)
    """Steps over which the learning rate rises from 0 before the schedule begins."""


class Schedule:
    """How the learning rate moves after the warm-up."""

    def __init__(self, config: Any) -> None:
        self.config = config

    def factor(self, done: float) -> float:
        """Return the share of the peak learning rate, when `done` of the steps after the warm-up, 0 to 1, are over."""
        raise AssertionError(f"{type(self).__name__} defines no factor")

    def share(self, step: int, total_steps: int, warmup: int) -> float:
        """Return the share of the peak learning rate in a step, the first `warmup` of which rise to it."""
        if step < warmup:
            return (step + 1) / warmup
        return self.factor((step - warmup) / max(1, total_steps - warmup))


@SCHEDULES.register("constant")
class Constant(Schedule):
    """Stays at the peak."""

    Config = ScheduleConfig

    def factor(self, done: float) -> float:
        """All of it."""
        return 1.0


@SCHEDULES.register("cosine")
class Cosine(Schedule):
    """Falls to 0 as half a cosine (Loshchilov and Hutter, arXiv:1608.03983, without restarts)."""

    Config = ScheduleConfig

    def factor(self, done: float) -> float:
        """Slowly at first and in the end."""
        return 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


@SCHEDULES.register("linear")
class LinearSchedule(Schedule):
    """Falls to 0 in a line."""

    Config = ScheduleConfig

    def factor(self, done: float) -> float:
        """Evenly."""
        return max(0.0, 1 - done)
