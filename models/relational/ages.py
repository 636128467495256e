"""How long ago something was, as numbers that a linear map can use."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

_PERIODS_DAYS = (1.0, 7.0, 30.44, 91.31, 365.25, 1461.0)
"""A day, a week, a month, a quarter, a year, four years."""
_LONG = math.log1p(10_000.0)
"""Days whose logarithm becomes 1: 27 years."""


class AgeEncoding(nn.Module):
    """Days (n,) -> (n, width): 1 where there is an age, log(1 + days), and with `sines` sin and cos by period.

    All are relative to the moment that is asked about, never a date: another moment of the same past looks alike. Rows
    without an age (NaN) are zeros.
    """

    def __init__(self, *, sines: bool) -> None:
        super().__init__()
        periods = _PERIODS_DAYS if sines else ()
        self.width = 2 + 2 * len(periods)
        self.frequency: Tensor
        self.register_buffer("frequency", torch.tensor([2 * math.pi / days for days in periods]), persistent=False)

    def forward(self, age: Tensor) -> Tensor:
        """Encode each age."""
        has_time = ~torch.isnan(age)
        days = torch.where(has_time, age, 0.0).clamp(min=0)
        columns = [torch.ones_like(days).unsqueeze(1), (torch.log1p(days) / _LONG).unsqueeze(1)]
        if len(self.frequency):
            # In float32 a phase of 10 000 days is right to a minute.
            phase = days.unsqueeze(1) * self.frequency
            columns += [torch.sin(phase), torch.cos(phase)]
        return torch.cat(columns, 1) * has_time.unsqueeze(1)
