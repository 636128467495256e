"""What a learning rate's schedule is."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from configs.base import ComponentConfig


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
