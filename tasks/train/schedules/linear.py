"""A learning rate that falls in a line."""

from __future__ import annotations

from configs.registry import SCHEDULES
from tasks.train.schedules.base import Schedule, ScheduleConfig


@SCHEDULES.register("linear")
class Linear(Schedule):
    """Falls to 0 in a line."""

    Config = ScheduleConfig

    def factor(self, done: float) -> float:
        """Evenly."""
        return max(0.0, 1 - done)
