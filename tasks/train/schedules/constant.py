"""A learning rate that stays."""

from __future__ import annotations

from configs.registry import SCHEDULES
from tasks.train.schedules.base import Schedule, ScheduleConfig


@SCHEDULES.register("constant")
class Constant(Schedule):
    """Stays at the peak."""

    Config = ScheduleConfig

    def factor(self, done: float) -> float:
        """All of it."""
        return 1.0
