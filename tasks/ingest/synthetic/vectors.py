"""Generated vectors to look at: groups that are curved sheets, some of them near to each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from configs.registry import DATASETS
from tasks.arrays import Array, blocks
from tasks.ingest.base import GeneratedDataset
from tasks.ingest.synthetic.configs import SyntheticVectorsConfig
from tasks.stage import StageContext

_CHUNK_ROWS = 1 << 16
_FAMILY = 3
"""Groups of a family, whose centres are near to each other."""
_WAVES = 6
"""Sines and cosines that bend a sheet."""


@DATASETS.register("synthetic_vectors")
class SyntheticVectors(GeneratedDataset):
    """Generated vectors: groups that are curved sheets; three groups each make a family.

    A row is c_g + B_g w(s, t) + noise: c_g a group's centre, B_g a random frame, w sines and cosines of a place (s, t)
    within the group. A good map has the groups apart, families side by side, and `along` (s) in order within a group.
    """

    config: SyntheticVectorsConfig

    def ingest(self, context: StageContext) -> dict[str, Any]:
        """Write rows in chunks."""
        from tasks.ingest.vectors.gathered import Gathered, write_vectors

        config = self.config
        rng = np.random.default_rng(config.seed)
        group = rng.integers(config.num_groups, size=config.num_rows)
        places = rng.random((config.num_rows, 2), dtype=np.float32)
        kept = {"family": pa.array([f"family {g // _FAMILY}" for g in group]), "along": pa.array(places[:, 0])}
        names = pa.array([f"group {g}" for g in range(config.num_groups)])
        gathered = Gathered(
            num_rows=config.num_rows,
            chunks=lambda: self._chunks(group, places),
            labels=("multiclass", group.astype(np.int64), names),
            kept=kept,
        )
        return write_vectors(gathered, "generated vectors", context.work)

    def _chunks(self, group: Array, places: Array) -> Iterator[Array]:
        config = self.config
        rng = np.random.default_rng([config.seed, 1])
        families = -(-config.num_groups // _FAMILY)
        centres = 4 * rng.standard_normal((families, config.dim)).repeat(_FAMILY, 0)[: config.num_groups]
        centres += 1.5 * rng.standard_normal((config.num_groups, config.dim))
        frames = rng.standard_normal((config.num_groups, 2 * _WAVES, config.dim)) / np.sqrt(_WAVES)
        bends = np.array([[3, 2, 1, 0, 1, 2], [0, 1, 2, 2, 1, 0]], np.float32)
        for rows in blocks(config.num_rows, _CHUNK_ROWS):
            groups, angles = group[rows], places[rows] @ bends
            waves = np.concatenate([np.sin(angles), np.cos(angles)], 1)  # (n, 2 * _WAVES)
            noise = config.noise * rng.standard_normal((len(groups), config.dim))
            bent = np.einsum("nw,nwd->nd", waves, frames[groups])
            yield (centres[groups] + 2 * bent + noise).astype(np.float32)
