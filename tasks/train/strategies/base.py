"""How ranks share the work: a strategy says which seeds a rank handles in a step, and wraps the model.

A new one is a file in this folder: `@STRATEGIES.register("mine")` on a class with this interface.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from configs.base import ComponentConfig


@dataclass(frozen=True)
class Ranks:
    """The processes of a job."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and evaluates."""
        return self.rank == 0


class Strategy:
    """Base of the strategies."""

    class Config(ComponentConfig):
        """No options."""

    def __init__(self, config: ComponentConfig, ranks: Ranks) -> None:
        self.config: Any = config
        self.ranks = ranks

    def steps(self, num_seeds: int, batch_size: int) -> int:
        """Return the steps of an epoch: the same number on every rank, else collectives would wait for ever."""
        raise AssertionError(f"{type(self).__name__} defines no steps")

    def positions(self, num_seeds: int, step: int, steps: int) -> NDArray[np.int64]:
        """Return where in the shuffled split this rank's seeds of a step stand; every rank gets equally many."""
        raise AssertionError(f"{type(self).__name__} defines no positions")

    def wrap(self, model: nn.Module) -> nn.Module:
        """Return the model so that its backward pass joins the ranks' gradients."""
        raise AssertionError(f"{type(self).__name__} does not wrap")
