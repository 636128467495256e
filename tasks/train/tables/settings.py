"""What `null` in a recipe comes to on a graph: how many samples, how they are cut into pools."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from configs.training import TableTrainConfig
from tasks.storage.manifests import GraphManifest

_POOLS = 500
"""Of a training: with several blocks, how often all of them are gone through."""
_LEAST_PAIRS = 1 << 16


@dataclass(frozen=True)
class Settings:
    """Numbers of a training."""

    num_blocks: int
    total_chunks: int
    chunks_a_pool: int

    @property
    def num_pools(self) -> int:
        """Pools of the training: its steps."""
        return -(-self.total_chunks // self.chunks_a_pool)


def usual_samples(manifest: GraphManifest) -> float:
    """Return the positive samples of a training whose recipe does not say: 2,000 a node, 200 an edge at least."""
    return float(max(2000 * manifest.num_nodes, 200 * manifest.num_edges))


def make_settings(train: TableTrainConfig, manifest: GraphManifest, expected: float) -> Settings:
    """Cut a training into chunks of `expected` pairs and pools of chunks."""
    strategy: Any = train.strategy
    samples = train.samples or usual_samples(manifest)
    total = max(1, math.ceil(samples / expected))
    blocks = strategy.blocks or 1
    pool = strategy.pool or max(samples / _POOLS, _LEAST_PAIRS)
    return Settings(blocks, total, min(total, max(1, round(pool / expected))))
