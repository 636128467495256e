"""A learning rate that falls as a cosine."""

from __future__ import annotations

import math

from configs.registry import SCHEDULES
from tasks.train.schedules.base import Schedule, ScheduleConfig


@SCHEDULES.register("cosine")
class Cosine(Schedule):
    """Falls to 0 as half a cosine (Loshchilov and Hutter, arXiv:1608.03983, without restarts)."""

    Config = ScheduleConfig

    def factor(self, done: float) -> float:
        """Slowly at first and in the end."""
        return 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
