"""Every rank holds the whole model and handles its share of each step's seeds."""

from __future__ import annotations

from configs.registry import STRATEGIES
from tasks.train.strategies.base import Strategy


@STRATEGIES.register("data_parallel")
class DataParallel(Strategy):
    """Learns as one rank with batches `world_size` times as large."""
