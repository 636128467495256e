"""A learning rate that falls in steps."""

from __future__ import annotations

from pydantic import Field, field_validator

from configs.base import FloatTuple
from configs.registry import SCHEDULES
from tasks.train.schedules.base import Schedule, ScheduleConfig


@SCHEDULES.register("step")
class Step(Schedule):
    """Falls to a tenth after one half and once more after three quarters of the steps."""

    class Config(ScheduleConfig):
        """When it falls, and by how much."""

        at: FloatTuple = (0.5, 0.75)
        """Shares of the steps after which it falls, ascending."""
        gamma: float = Field(default=0.1, gt=0, lt=1)
        """What it is multiplied by each time."""

        @field_validator("at")
        @classmethod
        def _ascending_shares(cls, value: tuple[float, ...]) -> tuple[float, ...]:
            if not value or list(value) != sorted(set(value)) or not 0 < value[0] <= value[-1] < 1:
                raise ValueError("at needs ascending shares of the steps, each between 0 and 1")
            return value

    def factor(self, done: float) -> float:
        """Multiplied for every share that is over."""
        return float(self.config.gamma ** sum(done >= share for share in self.config.at))
